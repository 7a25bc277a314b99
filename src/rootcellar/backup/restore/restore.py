"""Carrying out a restore plan: from objects to a member that etcd starts on.

The order, and why a crash or an error anywhere loses nothing: everything is built and proven in
`.rootcellar-new` inside the data directory; only then is `member` exchanged, in one step (`place.py`).
Whatever fails before leaves the old data in force and takes its own half-built files with it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names, records
from rootcellar.backup.catalogue.ownership import ForkIntent
from rootcellar.backup.catalogue.timeline import leave_fork_intent
from rootcellar.backup.objects.pipeline import download
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.objects.sealing.seal import NOTHING, decrypt, unlock
from rootcellar.backup.restore import place, versions
from rootcellar.backup.restore.database import Applied, Piece, Progress, apply_deltas, write_full
from rootcellar.backup.restore.membership import RAFT_TERM, Stamped, bump_revision, raft_index, stamp
from rootcellar.backup.restore.pins import pinned_plan
from rootcellar.backup.restore.plan import KUBERNETES_BUMP, PlannedMember, PlannedObject, RestorePlan
from rootcellar.backup.restore.preflight import check_quota, check_space
from rootcellar.backup.restore.replay import StoredDelta
from rootcellar.backup.restore.rows import Window
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import (
    ChainError,
    DamagedObjectError,
    ProofError,
    RecordError,
    StoreError,
    TargetError,
)
from rootcellar.mvcc.hashkv import HashKV, hash_kv
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.rows import KeyRows
from rootcellar.mvcc.truncate import truncate_after
from rootcellar.wal.durable import sync_directory
from rootcellar.wal.snapfile import write_snap
from rootcellar.wal.write import write_wal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.backup.objects.sealing.seal import Unlocked
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of a restore.  `hashkv` is that of the history before any bump; `seconds` maps phases to
    times.
    """

    revision: int
    last_time: str
    hashkv: HashKV
    compared: bool
    compact_revision: int
    bumped_to: int | None
    for_etcd: str
    cluster_id: str
    members: dict[str, str]
    quarantined: tuple[str, ...]
    alarms_dropped: tuple[str, ...]
    leases_created: int
    leases_of_unknown_ttl: int
    auth_enabled: bool
    size: int
    events: int
    seconds: dict[str, float]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Built:
    """A proven database file and what is to be told of it."""

    applied: Applied
    stamped: Stamped
    hashkv: HashKV
    compared: bool
    bumped_to: int | None
    for_etcd: versions.Minor
    size: int


def restore(
    plan: RestorePlan,
    store: Store,
    targets: Mapping[str, Path],
    *,
    replace: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = lambda _phase, _more: None,
    read: dict[str, str] | None = None,
    keyring: Keyring = NO_KEYS,
) -> Restored | None:
    """Build the members named in `targets` (name -> data directory) from one download.

    `read` is filled with the sha256 of every object's stored bytes, by key.  `keyring` opens what is
    encrypted; whether it does is found out before anything is written but the data directory itself.

    None when every target holds this very restore already.  Raises TargetError (occupied, running, no space,
    no permission, version), QuotaError, NoKeyError, DamagedObjectError, ChainError, ProofError, StoreError;
    the old data is then as it was.
    """
    clock = _Clock()
    planned = {plan.member(name).name: path for name, path in targets.items()}
    try:
        with ExitStack() as stack:
            for data_dir in planned.values():
                _make_dir(data_dir)
                stack.enter_context(place.locked(data_dir))
                place.settle(data_dir, now())
            todo = {name: path for name, path in planned.items() if not _holds(path, plan, name)}
            if not todo:
                return None
            for data_dir in todo.values():
                _refuse_occupied(data_dir, replace=replace)
            check_quota(plan)
            check_space(plan, list(todo.values()))
            unlocked = unlock_plan(store, plan, keyring)
            clock.lap("preflight")
            for data_dir in todo.values():
                stack.callback(_leave_settled, data_dir, now)
            stack.enter_context(pinned_plan(store, plan, by="rootcellar restore"))
            return _restore(plan, store, todo, now, progress, clock, {} if read is None else read, unlocked)
    except DamagedObjectError as error:
        error.hint = _provable(plan, error.name) or error.hint
        raise
    except OSError as error:
        raise _told(error) from error


def unlock_plan(store: Store, plan: RestorePlan, keyring: Keyring) -> Unlocked:
    """The keys to all that a plan reads.  Raises NoKeyError, DamagedObjectError, StoreErrors."""
    return unlock(store, (each.key for each in (plan.full, *plan.deltas)), keyring)


def _leave_settled(data_dir: Path, now: Callable[[], datetime]) -> None:
    """Whatever happened: take away what was built and never put in force, and nothing else."""
    with suppress(OSError):
        place.settle(data_dir, now())


def _restore(
    plan: RestorePlan,
    store: Store,
    todo: Mapping[str, Path],
    now: Callable[[], datetime],
    progress: Progress,
    clock: _Clock,
    read: dict[str, str],
    unlocked: Unlocked,
) -> Restored:
    build = secrets.token_hex(16)
    owners = {name: place.Owner.of(path) for name, path in todo.items()}
    built_in = {name: place.prepare(path, build) for name, path in todo.items()}
    databases = []
    for name, directory in built_in.items():
        owners[name].give(directory)  # finds out now, not after the download, whether that is permitted
        (directory / "snap").mkdir(mode=0o700)
        databases.append(directory / "snap" / "db")
    built = _build(plan, store, databases[0], progress, clock, read, unlocked)
    for other in databases[1:]:
        shutil.copyfile(databases[0], other)
        other.chmod(0o600)
    clock.lap("copies")
    members = [planned.member() for planned in plan.members]
    for name, directory in built_in.items():
        planned = plan.member(name)
        write_snap(directory / "snap", term=RAFT_TERM, index=raft_index(members), members=members)
        write_wal(
            directory / "wal",
            member_id=int(planned.id, 16),
            cluster_id=int(plan.cluster_id, 16),
            term=RAFT_TERM,
            index=raft_index(members),
            voters=[member.id for member in members],
        )
        place.finish(directory, {"build": build, **_note(plan, planned, built)}, owners[name])
    warnings = _announce(plan, store, built, now())
    for path in todo.values():
        place.refuse_running_etcd(path)  # before the first member is swapped, rather than between two
    quarantined = [place.put_in_force(path, now()) for path in todo.values()]
    clock.lap("swap")
    return Restored(
        revision=built.applied.revision,
        last_time=built.applied.last_time,
        hashkv=built.hashkv,
        compared=built.compared,
        compact_revision=built.hashkv.compact_revision,
        bumped_to=built.bumped_to,
        for_etcd=str(built.for_etcd),
        cluster_id=plan.cluster_id,
        members={name: str(path) for name, path in todo.items()},
        quarantined=tuple(str(path) for path in quarantined if path is not None),
        alarms_dropped=tuple(
            f"{alarm.kind} of member {alarm.member:x}" for alarm in built.stamped.alarms_dropped
        ),
        leases_created=len(built.stamped.leases_created),
        leases_of_unknown_ttl=len(built.stamped.leases_of_unknown_ttl),
        auth_enabled=built.stamped.auth_enabled,
        size=built.size,
        events=built.applied.events,
        seconds=clock.laps,
        warnings=warnings,
    )


def _build(
    plan: RestorePlan,
    store: Store,
    path: Path,
    progress: Progress,
    clock: _Clock,
    read: dict[str, str],
    unlocked: Unlocked,
) -> _Built:
    """One database file for the plan's cluster, fsynced by its commits, its structure and HashKV proven."""
    fetch_full(path, store, plan.full, read, unlocked, progress)
    path.chmod(0o600)
    clock.lap("full")
    compared = compare(plan, path)
    members = [planned.member() for planned in plan.members]
    spool = path.parent / "spool"
    spool.mkdir()
    pieces = [
        _piece(store, planned, plan, spool / f"{number}", read, unlocked)
        for number, planned in enumerate(plan.deltas)
    ]
    with Transaction(path) as transaction:
        source = StoreMeta.read(transaction.reader)
        for_etcd = versions.target(
            plan.for_etcd,
            versions.of_file(
                source.storage_version,
                source.cluster_version,
                plan.source_version,
                has_term=source.term > 0,
            ),
        )
        if plan.upto is not None and plan.upto < source.revision:
            truncated = truncate_after(transaction, plan.upto)
            applied = Applied(plan.upto, plan.compact_revision, leases=truncated.leases)
        else:
            applied = apply_deltas(
                transaction, pieces, compact_revision=plan.compact_revision, progress=progress
            )
        if plan.must_stop and applied.reached_end:
            raise ChainError(
                f"what was written after revision {applied.revision} and before that time is missing",
                hint=f"restore with --to-revision {applied.revision}",
            )
        if plan.upto is not None and plan.moment is None and applied.revision != plan.upto:
            raise TargetError(
                f"the chain ends at revision {applied.revision}, before {plan.upto}",
                hint=f"restore with --to-revision {applied.revision} or less",
            )
        if not plan.deltas and plan.compact_revision > applied.revision:
            raise TargetError(
                f"it cannot be compacted at revision {plan.compact_revision}: it ends at {applied.revision}",
                hint="compact at or below its last revision",
            )
        stamped = stamp(transaction, members, applied, plan.lease_ttls)
        transaction.commit(both_metas=True)
    shutil.rmtree(spool)
    clock.lap("deltas")
    with BoltFile(path) as file:
        check(file)
        found = hash_kv(file)
        is_kubernetes = KeyRows(file).any_key_begins(b"/registry/")
    clock.lap("proof")
    by = plan.bump_revision if plan.bump_revision is not None else KUBERNETES_BUMP * is_kubernetes
    bumped_to = bump_revision(path, by) if by else None
    size = path.stat().st_size
    check_quota(plan, size=size)
    return _Built(applied, stamped, found, compared, bumped_to, for_etcd, size)


def compare(plan: RestorePlan, path: Path) -> bool:
    """Hold the full at `path` against the HashKV that was recorded of it: what the live etcd answered when it
    was taken, if it was asked, or what was folded into it.  Whether it was; raises ProofError.
    """
    expected = plan.expected
    if expected is None:
        return False
    with BoltFile(path) as file:
        found = hash_kv(file, expected.revision, compact_revision=expected.compact_revision)
    if expected.hash != found.hash:
        raise ProofError(
            f"at revision {found.revision} the source had HashKV {expected.hash}, the full has {found.hash}",
            hint="do not use it: turn to another full, and compare the members of the source",
        )
    return True


def _piece(
    store: Store,
    planned: PlannedObject,
    plan: RestorePlan,
    spooled: Path,
    read: dict[str, str],
    unlocked: Unlocked,
) -> Piece:
    """A delta to apply.  With a compaction it is read twice, so its proven bytes are kept in `spooled`."""
    stored = StoredDelta(planned.key, planned.suffix, planned.last, Window(0, plan.upto, plan.moment))

    def stored_bytes() -> Iterable[bytes]:
        if plan.compact_revision < 0:
            return proven_bytes(store, planned, read, unlocked)
        return _spooled(spooled, proven_bytes(store, planned, read, unlocked))

    return Piece(stored, planned.size, stored_bytes)


def fetch_full(
    path: Path,
    store: Store,
    full: PlannedObject,
    read: dict[str, str],
    unlocked: Unlocked,
    progress: Progress,
) -> None:
    """A full's database as a file at `path`, every hash held.  Raises what `proven_bytes` and `write_full`
    do.
    """
    write_full(
        path,
        proven_bytes(store, full, read, unlocked),
        name=full.key,
        suffix=full.suffix,
        has_tail=full.has_tail,
        progress=progress,
    )


def proven_bytes(
    store: Store, planned: PlannedObject, read: dict[str, str], unlocked: Unlocked = NOTHING
) -> Iterator[bytes]:
    """An object's bytes, decrypted if they have to be; see `stored_bytes`.  Raises NoKeyError too."""
    stored = stored_bytes(store, planned, read)
    name = names.read(planned.key)
    if name is None or not name.is_encrypted:
        return stored
    return decrypt(stored, planned.key, unlocked.file_key(planned.key))


def stored_bytes(store: Store, planned: PlannedObject, read: dict[str, str]) -> Iterator[bytes]:
    """An object's stored bytes, held against the sha256 in its record, if there is one, at the end.

    Notes in `read` the sha256 of what was read, by key.  Raises DamagedObjectError, StoreError.
    """
    digest = hashlib.sha256()
    for chunk in download(store, planned.key, planned.size):
        digest.update(chunk)
        yield chunk
    read[planned.key] = digest.hexdigest()
    if planned.sha256 and read[planned.key] != planned.sha256:
        raise DamagedObjectError(
            planned.key,
            "is not the object that was recorded: its sha256 differs",
            hint="restore from another chain or another store, or stop before this object",
        )


def _spooled(path: Path, chunks: Iterable[bytes]) -> Iterator[bytes]:
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
        part.rename(path)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def _provable(plan: RestorePlan, damaged: str) -> str | None:
    """What can still be restored of the plan's chain when one of its objects is damaged."""
    if damaged == plan.full.key:
        if names.read(damaged) is None:
            return None  # a single backup, of no store
        return "its chain has no other beginning: restore with --exclude this object, from an older full"
    last = plan.full.last
    for planned in plan.deltas:
        if planned.key == damaged:
            return f"the chain is sound up to revision {last}: restore with --to-revision {last}"
        last = planned.last
    return None


def _make_dir(data_dir: Path) -> None:
    made = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in made:
            sync_directory(path.parent)
    except OSError as error:
        raise TargetError(
            f"{data_dir} cannot be made: {error.strerror}", hint="give a data directory that can be written"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise TargetError(f"{data_dir} cannot be written", hint="run as its owner, or as root")


def _holds(data_dir: Path, plan: RestorePlan, name: str) -> bool:
    found = place.read_note(data_dir / place.MEMBER)
    return found is not None and (found.get("id"), found.get("member")) == (plan.digest, name)


def _refuse_occupied(data_dir: Path, *, replace: bool) -> None:
    place.refuse_running_etcd(data_dir)
    if (data_dir / place.MEMBER).exists() and not replace:
        raise TargetError(
            f"{data_dir} holds an etcd member already",
            hint="use --replace: the old data is kept in quarantine beside the new",
        )


def _announce(plan: RestorePlan, store: Store, built: _Built, now: datetime) -> tuple[str, ...]:
    """Leave a fork intent, so that the next capture opens a new timeline; what went wrong with that.

    Its lack is no reason not to restore.  A crash after it leaves an intent for a fork that never came:
    captures compare HashKV before they believe one.
    """
    if not plan.announce:
        return ()
    intent = ForkIntent(
        nonce=plan.digest[:16],
        timeline=plan.timeline,
        forked_at=built.applied.revision,
        revision=built.bumped_to or built.applied.revision,
        cluster_id=plan.cluster_id,
        created_at=now,
        by="rootcellar restore",
        hashkv=records.HashKV(built.hashkv.hash, built.hashkv.revision, built.hashkv.compact_revision),
    )
    try:
        leave_fork_intent(store, intent)
    except (StoreError, RecordError) as error:
        told = f"no fork intent could be left in {plan.store} ({error.message}): "
        return (told + "the next capture will find the fork by comparing HashKV",)
    return ()


def _note(plan: RestorePlan, planned: PlannedMember, built: _Built) -> dict[str, object]:
    return {
        "id": plan.digest,
        "member": planned.name,
        "cluster": plan.cluster_id,
        "store": plan.store,
        "full": plan.full.key,
        "revision": built.applied.revision,
        "bumpedTo": built.bumped_to,
    }


def _told(error: OSError) -> TargetError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TargetError(
            "the file system is full; the old data is untouched",
            hint="free space there, or restore into another file system and move the result",
        )
    return TargetError(
        f"{error.filename or 'the target'}: {error.strerror or error}", hint="the old data is untouched"
    )


class _Clock:
    """Seconds per phase, by a clock that no one sets."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._began = self._last = time.monotonic()

    def lap(self, phase: str) -> None:
        """The time since the lap before belongs to `phase`."""
        now = time.monotonic()
        self.laps[phase] = round(now - self._last, 3)
        self.laps["total"] = round(now - self._began, 3)
        self._last = now
