"""Whether a data directory is fit to start etcd on.

Decided by our own readers, without starting etcd and without changing a byte: what is bad is somebody
else's to quarantine.  Two depths, as etcd-backup-restore has them: `SANITY` after an etcd that ended in good
order, `FULL` otherwise, which also reads the whole log and every page.

The status values are the reference's.  Unlike there, a torn tail of the log is no reason to throw a member
away (etcd itself cuts it off), a database behind its own log is held against what the log can still add to
it, and no etcd is started on the live data to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rootcellar.backup.restore import place
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import BoltError, FormatError, TargetError, WalError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.revision import FIRST
from rootcellar.wal.durable import sync_directory, write_file
from rootcellar.wal.verify import verify_member

if TYPE_CHECKING:
    from pathlib import Path

    from rootcellar.wal.verify import MemberReport

SAFE_GUARD = "safe_guard"
"""A file beside the data directory, on the same volume, that names the namespace the volume belongs to."""


class Mode(StrEnum):
    """How much is looked at; the values are those of the reference's `mode` parameter."""

    SANITY = "sanity"
    FULL = "full"


class Status(StrEnum):
    """What a data directory is, under the reference's names."""

    VALID = "Valid"
    NOT_EXIST = "NotExist"
    INVALID_STRUCTURE = "InvStruct"
    CORRUPT = "Corrupt"
    BOLT_CORRUPT = "BoltDBCorrupt"
    WRONG_VOLUME = "WrongVolumeMounted"
    INVALID_IN_MULTI_NODE = "InvalidInMultiNode"
    REVISION_BEHIND = "RevisionConsistencyError"
    CANNOT_OPEN = "FailToOpenBoltDB"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found.  `finding` is for a person; `remarks` are what does not keep etcd from starting.

    `blank`: there is no member, or one that never came to be, so nothing can be lost.  Ids are those in the
    log, 0 where it was not read or could not be.  `revision` is the database's own; the log behind it may add
    up to `reserve` more.
    """

    status: Status
    finding: str
    blank: bool = False
    revision: int = 0
    reserve: int = 0
    member_id: int = 0
    cluster_id: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return self.status is Status.VALID


def validate(data_dir: Path, mode: Mode, *, latest: int | None = None, namespace: str = "") -> Validation:
    """Look at a data directory.  Never raises for what it finds there.

    `latest` is the newest revision that the store holds of this history, None where that does not count (no
    store, an empty one, one that does not answer, a member of several).  `namespace` is what the safe guard
    must say, empty to leave it alone.
    """
    try:
        return _validate(data_dir, mode, latest, namespace)
    except _FoundError as found:
        return found.validation
    except OSError as error:
        return Validation(Status.UNKNOWN, f"{error.filename or data_dir}: {error.strerror or error}")


def keep_guard(data_dir: Path, namespace: str) -> None:
    """Leave the safe guard's word where there is none yet, so that another namespace finds it.

    Raises OSError.
    """
    guard = data_dir.parent / SAFE_GUARD
    if namespace and not _said(guard):
        guard.parent.mkdir(parents=True, exist_ok=True)
        # A crash here leaves a part of the file under a name that nobody reads, and the next start removes.
        new = guard.with_name(f".{SAFE_GUARD}-new")
        new.unlink(missing_ok=True)
        write_file(new, namespace.encode())
        new.replace(guard)
        sync_directory(guard.parent)


def _said(guard: Path) -> str:
    """The namespace that the guard names; empty where there is none, or one that was never written."""
    try:
        return guard.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


class _FoundError(Exception):
    def __init__(self, status: Status, finding: str, **more: object) -> None:
        super().__init__(finding)
        self.validation = Validation(status, finding, **more)  # type: ignore[arg-type]  # fields of its own


def _validate(data_dir: Path, mode: Mode, latest: int | None, namespace: str) -> Validation:
    _guarded(data_dir, namespace)
    try:
        place.refuse_running_etcd(data_dir)
    except TargetError as error:
        raise _FoundError(Status.CANNOT_OPEN, error.message) from error
    _structure(data_dir)
    member = data_dir / place.MEMBER
    meta = _database(member / "snap" / "db", mode)
    log, complaint = _log(member)
    remarks: tuple[str, ...] = ()
    reserve = 0
    if log is None:
        # A shallow look stays one: a log that cannot be read is etcd's to refuse, and then ours to see.
        if mode is Mode.FULL:
            raise _FoundError(Status.CORRUPT, complaint, revision=meta.revision)
        remarks = (complaint,)
    else:
        _agree(log, meta, member / "snap")
        remarks = _remarks(log)
        reserve = max(0, log.wal.last_index - meta.consistent_index)
    found = Validation(
        Status.VALID,
        f"a member at revision {meta.revision}",
        revision=meta.revision,
        reserve=reserve,
        member_id=log.wal.member_id if log else 0,
        cluster_id=log.wal.cluster_id if log else 0,
        remarks=remarks,
    )
    return found if latest is None else against_store(found, latest)


def against_store(found: Validation, latest: int) -> Validation:
    """Hold a valid directory against the newest revision in the store.

    Entries of the log that the database has not seen make a revision each at most, so a database that is
    behind by no more than those is not behind: etcd applies them when it starts.
    """
    if not found.valid or found.revision + found.reserve >= latest:
        return found
    return Validation(
        Status.REVISION_BEHIND,
        f"the store reaches revision {latest}; the database is at {found.revision}, and its log can add no"
        f" more than {found.reserve}",
        revision=found.revision,
        reserve=found.reserve,
        member_id=found.member_id,
        cluster_id=found.cluster_id,
        remarks=found.remarks,
    )


def _guarded(data_dir: Path, namespace: str) -> None:
    said = _said(data_dir.parent / SAFE_GUARD) if namespace else ""
    if said not in ("", namespace):
        raise _FoundError(
            Status.WRONG_VOLUME, f"the volume belongs to namespace {said[:253]!r}, and this is {namespace!r}"
        )


def _structure(data_dir: Path) -> None:
    if not data_dir.exists():
        raise _FoundError(Status.NOT_EXIST, f"{data_dir} does not exist", blank=True)
    if not data_dir.is_dir():
        raise _FoundError(Status.INVALID_STRUCTURE, f"{data_dir} is no directory")
    member = data_dir / place.MEMBER
    if not member.exists():
        raise _FoundError(Status.INVALID_STRUCTURE, f"{data_dir} holds no member", blank=True)
    for needed in (member / "snap", member / "wal"):
        if not needed.is_dir():
            raise _FoundError(Status.INVALID_STRUCTURE, f"{needed} is missing", blank=_never_was(member))
    if not (member / "snap" / "db").is_file():
        raise _FoundError(
            Status.INVALID_STRUCTURE, f"{member / 'snap' / 'db'} is missing", blank=_never_was(member)
        )
    # etcd's own rule of when it begins a new log, beside whatever database there is.
    if not any((member / "wal").glob("*.wal")):
        raise _FoundError(
            Status.INVALID_STRUCTURE, f"{member / 'wal'} holds no segment", blank=_never_was(member)
        )


def _never_was(member: Path) -> bool:
    """Whether an etcd died before it was a member: it has no log, so it has voted and applied nothing.

    It makes the database first, then asks its peers whom it joins; the log comes last, made as `wal.tmp`.
    """
    database, tops = member / "snap" / "db", (member, member / "snap", member / "wal")  # links or not
    written = {path for top in tops for path in top.rglob("*") if path.is_file() and path.stat().st_size}
    written -= set((member / "wal.tmp").glob("*"))
    if not member.is_dir() or not written <= {database}:
        return False
    try:
        meta = _database(database, Mode.FULL) if written else None
    except _FoundError:
        return False
    return meta is None or (meta.consistent_index == 0 and meta.revision == FIRST and not meta.members)


def _database(path: Path, mode: Mode) -> StoreMeta:
    try:
        with BoltFile(path) as file:
            meta = StoreMeta.read(file)
            if mode is Mode.FULL:
                check(file)
            return meta
    except BoltError as error:
        raise _FoundError(Status.BOLT_CORRUPT, f"the database is damaged: {error.message}") from error
    except FormatError as error:
        raise _FoundError(
            Status.CORRUPT, f"the database holds what no etcd wrote: {error.message}"
        ) from error
    except PermissionError as error:
        raise _FoundError(Status.CANNOT_OPEN, f"{path} cannot be opened: {error.strerror}") from error


def _log(member: Path) -> tuple[MemberReport | None, str]:
    try:
        return verify_member(member), ""
    except WalError as error:
        return None, f"the log is damaged: {error.message}"


def _agree(log: MemberReport, meta: StoreMeta, snap_dir: Path) -> None:
    """Raise where log and database, each sound by itself, cannot belong together.

    The consistent index is held against the log's end, not against its commit: since 3.6 an entry's commit
    is saved with a later one, and a kill leaves it behind.
    """
    at = {"revision": meta.revision, "member_id": log.wal.member_id, "cluster_id": log.wal.cluster_id}
    if meta.consistent_index > log.wal.last_index:
        raise _FoundError(
            Status.CORRUPT,
            f"the database has applied entry {meta.consistent_index}, and the log ends at"
            f" {log.wal.last_index}: part of the log is lost",
            **at,
        )
    if log.lacks_snapshot:
        raise _FoundError(
            Status.CORRUPT,
            f"the log begins at entry {log.wal.first_index}, and no raft snapshot stands for what was before",
            **at,
        )
    snapshot = log.snapshot.metadata.index if log.snapshot else 0
    if meta.consistent_index < snapshot and not (snap_dir / f"{snapshot:016x}.snap.db").exists():
        raise _FoundError(
            Status.CORRUPT,
            f"the database stands at entry {meta.consistent_index}, before the raft snapshot at {snapshot}",
            **at,
        )


def _remarks(log: MemberReport) -> tuple[str, ...]:
    told = []
    if log.wal.torn is not None:
        told.append(f"the last write to {log.wal.torn.segment} was not finished; etcd cuts it off")
    if log.broken:
        told.append(f"raft snapshots that cannot be read: {', '.join(log.broken)}; an older one serves")
    return tuple(told)
