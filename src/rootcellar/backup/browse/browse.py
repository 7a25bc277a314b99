"""Looking into backups: any of them as one database file, at the revision or moment that is asked for.

A single snapshot file is read where it lies.  A chain is rebuilt in a scratch directory as a restore would do
it, but for what makes a member of it, and with nothing superseded: what lies between is what a person looks
for.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, AtTime, Latest
from rootcellar.backup.imports.unwrapped import Stored, scratch_error, unwrapped
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.restore.database import Piece, apply_deltas
from rootcellar.backup.restore.pins import pinned_plan
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.replay import StoredDelta
from rootcellar.backup.restore.restore import fetch_full, proven_bytes, unlock_plan
from rootcellar.backup.restore.rows import Window
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import ChainError, CompactedError, UsageError
from rootcellar.mvcc.history import EVERYTHING, KeyRange, Keyspace
from rootcellar.mvcc.kubernetes import KubernetesObject, recognise
from rootcellar.mvcc.meta import StoreMeta, leases

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.backup.restore.database import Progress
    from rootcellar.backup.restore.plan import PlannedObject, RestorePlan
    from rootcellar.mvcc.history import Version
    from rootcellar.mvcc.record import KeyValue
    from rootcellar.stores.protocol import Store

LATEST = Latest()


@dataclass(frozen=True, slots=True)
class Opened:
    """A backup at one revision.  `origin` and `objects` say what was read, `warnings` what to know of it.

    `lease_ttls` are granted seconds by lease id, as far as the file and the chain's records know them.
    """

    file: BoltFile
    keyspace: Keyspace
    origin: str
    objects: tuple[str, ...]
    lease_ttls: Mapping[int, int]
    warnings: tuple[str, ...] = ()

    @property
    def revision(self) -> int:
        return self.keyspace.revision


@dataclass(frozen=True, slots=True)
class Found:
    """A key, and what Kubernetes' part of its value says, if it wrote it."""

    record: KeyValue
    kubernetes: KubernetesObject | None


def keys(opened: Opened, within: KeyRange = EVERYTHING, limit: int | None = None) -> Iterator[Found]:
    """The live keys in key order, at most `limit`.  Raises RecordError, BoltError."""
    for number, entry in enumerate(opened.keyspace.live(within)):
        if number == limit:
            return
        record = entry.record
        yield Found(record, recognise(record.value))


def get(opened: Opened, key: bytes) -> Found | None:
    """One live key, or None.  Raises RecordError, BoltError."""
    return next(keys(opened, KeyRange.single(key)), None)


def history(opened: Opened, key: bytes) -> Iterator[Version]:
    """All that is known to have happened to a key, oldest first.  Raises RecordError, BoltError."""
    return opened.keyspace.history(key)


@contextmanager
def opened(
    source: Store | Path | Stored,
    at: Target = LATEST,
    *,
    timeline: int | None = None,
    exclude: Collection[str] = (),
    scratch: Path | None = None,
    keyring: Keyring = NO_KEYS,
    progress: Progress = lambda _phase, _more: None,
) -> Generator[Opened]:
    """A backup to look into while the context lasts.

    `scratch` is where a chain is rebuilt or a wrapping undone (a directory of its own is made there, and
    removed): it takes the database's size.  `timeline` and `exclude` (keys of objects to do without) speak of
    a store's chains.  Raises UsageError, NothingToRestoreError, ChainError, CompactedError, NoKeyError,
    FormatError and below, TargetError, StoreError.
    """
    with ExitStack() as stack:
        if isinstance(source, Path | Stored):
            yield stack.enter_context(_bare(source, at, scratch))
            return
        wish = Wish(at, "", timeline=timeline, keep_history=True, quota=0, exclude=frozenset(exclude))
        plan = plan_restore(read_catalogue(source), source.url, wish)
        try:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rootcellar-", dir=scratch))
            path = Path(directory, "db")
            with pinned_plan(source, plan, by="rootcellar, looking into it"):
                revision = _rebuild(source, plan, path, keyring, progress)
        except OSError as error:
            raise scratch_error(error) from error
        file = stack.enter_context(BoltFile(path))
        yield Opened(
            file,
            Keyspace(file, revision),
            origin=source.url,
            objects=tuple(planned.key for planned in (plan.full, *plan.deltas)),
            lease_ttls={**plan.lease_ttls, **_granted(file)},
            warnings=plan.warnings,
        )


@contextmanager
def opened_twice(
    source: Store | Path | Stored,
    first: Target,
    second: Target,
    *,
    timeline: int | None = None,
    exclude: Collection[str] = (),
    scratch: Path | None = None,
    keyring: Keyring = NO_KEYS,
    progress: Progress = lambda _phase, _more: None,
) -> Generator[tuple[Opened, Opened]]:
    """The same backups at two points, from one file where that holds both.  Raises what `opened` does."""

    def at(target: Target) -> Opened:
        return stack.enter_context(
            opened(
                source,
                target,
                timeline=timeline,
                exclude=exclude,
                scratch=scratch,
                keyring=keyring,
                progress=progress,
            )
        )

    with ExitStack() as stack:
        two = at(second)
        one = _earlier(two, first)
        yield (at(first) if one is None else one), two


def _earlier(later: Opened, target: Target) -> Opened | None:
    """The same file at an earlier revision, if it is one and lies in it."""
    if not isinstance(target, AtRevision) or target.revision > later.revision:
        return None
    try:
        keyspace = Keyspace(later.file, target.revision)
    except CompactedError:
        return None
    return Opened(later.file, keyspace, later.origin, later.objects, later.lease_ttls, later.warnings)


@contextmanager
def _bare(source: Path | Stored, at: Target, scratch: Path | None) -> Generator[Opened]:
    if isinstance(at, AtTime):
        raise UsageError("a single file knows no times", hint="name a revision, or a store with a chain")
    with ExitStack() as stack:
        found = stack.enter_context(unwrapped(source, scratch=scratch))
        file = stack.enter_context(BoltFile(found.path))
        yield Opened(
            file,
            Keyspace(file, at.revision if isinstance(at, AtRevision) else None),
            origin=f"{found.wrapping.form} {found.wrapping.path.name}",
            objects=(),
            lease_ttls=_granted(file),
            warnings=tuple(notice.message for notice in found.notices),
        )


def _granted(file: BoltFile) -> dict[int, int]:
    return {lease.id: lease.ttl for lease in leases(file).values()}


def _rebuild(store: Store, plan: RestorePlan, path: Path, keyring: Keyring, progress: Progress) -> int | None:
    """Make the plan's history at `path`; the revision to look at (None: the last)."""
    read = dict[str, str]()
    unlocked = unlock_plan(store, plan, keyring)
    fetch_full(path, store, plan.full, read, unlocked, progress)
    with BoltFile(path) as file:
        reached = StoreMeta.read(file).revision
    if not plan.deltas or (plan.upto is not None and plan.upto <= reached):
        return plan.upto

    def piece(planned: PlannedObject) -> Piece:
        def stored_bytes() -> Iterable[bytes]:
            return proven_bytes(store, planned, read, unlocked)

        window = Window(0, plan.upto, plan.moment)
        return Piece(
            StoredDelta(planned.key, planned.suffix, planned.last, window), planned.size, stored_bytes
        )

    with Transaction(path) as transaction:
        pieces = [piece(planned) for planned in plan.deltas]
        applied = apply_deltas(transaction, pieces, compact_revision=-1, progress=progress)
        if plan.must_stop and applied.reached_end:
            raise ChainError(
                f"what was written after revision {applied.revision} and before that time is missing",
                hint=f"revision {applied.revision} can be looked at",
            )
        if plan.upto is not None and plan.moment is None and applied.revision != plan.upto:
            raise ChainError(
                f"the chain ends at revision {applied.revision}, before {plan.upto}",
                hint=f"look at revision {applied.revision} or an earlier one",
            )
        transaction.commit()
    return applied.revision
