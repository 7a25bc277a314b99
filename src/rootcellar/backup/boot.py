"""A real etcd on what was restored: whether it starts, serves, and has the same history.

That it ends is a word against the data only when the data is to blame: an etcd that something else ended, or
for which the machine had no room, or that ends on an empty directory too, has neither proven nor disproven
anything.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from rootcellar.bolt.append import Transaction
from rootcellar.errors import EtcdDeniedError, EtcdError, EtcdUnavailableError, ProofError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess

if TYPE_CHECKING:
    from pathlib import Path

    from rootcellar.etcd.process import EtcdBinary
    from rootcellar.mvcc.hashkv import HashKV

_DYING = 5.0
"""Seconds that a process whose connections broke has to be seen as ended."""

_NO_ROOM = (
    "no space left",
    "disk quota exceeded",
    "cannot allocate memory",
    "out of memory",
    "too many open files",
)
_NOTHING_SAID = "that says nothing of the backup"


def boot(binary: EtcdBinary, data_dir: Path, *, name: str, expected: HashKV, has_authentication: bool) -> str:
    """Start `binary` on the member `name` in `data_dir`, scratch that it writes to; what came of it, told.

    Raises ProofError: it cannot serve this data, or has another history than `expected`.  EtcdError: that
    was not found out.
    """
    told = f"etcd {binary.version} answered with the same HashKV"
    if has_authentication:
        # Users and roles are loaded only while authentication is on, and only those who have a password may
        # ask for a hash: so it has to serve with them first, and is asked without.
        _ask(binary, data_dir, name, None)
        _switch_off_authentication(data_dir / "member" / "snap" / "db")
        told = f"{told}; with its users and roles it served too"
    wanted = (expected.hash, expected.revision, expected.compact_revision)
    answer = None
    # A HashKV at exactly the compaction that etcd has just finished comes from a cache that nothing can
    # recompute; a second start has forgotten it.
    for _ in range(2):
        answer = _ask(binary, data_dir, name, expected.revision)
        if answer == wanted:
            return told
    raise ProofError(f"etcd {binary.version} answered HashKV {answer}, not {wanted}")


def _ask(binary: EtcdBinary, data_dir: Path, name: str, revision: int | None) -> tuple[int, int, int] | None:
    """(hash, revision, compact revision) at `revision` from an etcd that is started for it.

    None for `revision`: whether it serves is all that is asked.  Raises ProofError, EtcdError.
    """
    with (
        EtcdProcess(binary, data_dir, name=name) as process,
        EtcdClient([process.client_url]) as client,
    ):
        try:
            if revision is None:
                with suppress(EtcdDeniedError):  # said behind the read that needs a leader: it serves
                    process.wait_ready(client)
                return None
            process.wait_ready(client)
            found = client.hash_kv(revision)
        except EtcdError as error:
            _blame(process, error)
    return found.hash, revision, found.compact_revision


def _blame(process: EtcdProcess, error: EtcdError) -> NoReturn:
    """Raise ProofError when `error` came of the data that `process` was started on, else EtcdError."""
    what = f"etcd {process.binary.version}"
    code = process.ended(within=_DYING)
    if code is None:
        if isinstance(error, EtcdUnavailableError):
            raise error
        raise ProofError(f"{what} answered: {error.message}") from error
    if code < 0:
        raise EtcdError(
            f"{what} was ended by signal {-code}", hint=f"{_NOTHING_SAID}: for its memory?"
        ) from error
    words = process.last_words
    if any(each in words.lower() for each in _NO_ROOM):
        raise EtcdError(f"{what} ended: {words}", hint=f"{_NOTHING_SAID}: give it that room") from error
    _start_on_nothing(process.binary, process.data_dir.with_name("nothing"))
    raise ProofError(f"{what} ended over it: {words}") from error


def _start_on_nothing(binary: EtcdBinary, data_dir: Path) -> None:
    """Raises EtcdError when it ends there too."""
    with EtcdProcess(binary, data_dir) as process, EtcdClient([process.client_url]) as client:
        try:
            process.wait_ready(client)
        except EtcdError as error:
            raise EtcdError(
                f"etcd {binary.version} does not start on an empty directory either: {process.last_words}",
                hint=f"{_NOTHING_SAID}: see what it wants of this machine",
            ) from error


def _switch_off_authentication(path: Path) -> None:
    with Transaction(path) as transaction:
        bucket = transaction.reader.bucket(b"auth")
        rows = dict(bucket.items()) if bucket else {}
        transaction.replace(b"auth", {**rows, b"authEnabled": b"\0"}.items())
        transaction.commit()
