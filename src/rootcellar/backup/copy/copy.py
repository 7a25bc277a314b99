"""Copying backups from one store into another, byte for byte, every byte checked on its way.

An object is held against the sha256 in its record, or, without a record, against the hash at the end of its
payload, while it streams; one that differs never becomes visible in the destination.  What is damaged, or
gone, is told, and the rest goes on: of what follows it, that to which another way leads.

In order, and what is there when it is killed behind each step:

1. marker, fork intents, timelines.  A prefix that is bound, and empty.
2. what EBR would see in the destination of timelines that died since the last copy is moved aside.
3. groups of objects (`copy.plan`), each a full and then its deltas, each object before its record.  Killed
   anywhere:
   whole objects, an unbroken row behind every full, at most a few without their record.
4. what was left behind a damaged object and still has a way to it.
5. proofs, holds, releases, granted keys.

Doing it again takes up where the last one ended, and does nothing where all is there.  Of the source a group
is pinned while it is read, where that can be written to; else what a prune takes away meanwhile is told as
gone.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import chains
from rootcellar.backup.catalogue.history import History
from rootcellar.backup.catalogue.timeline import abandon
from rootcellar.backup.copy.documents import DocumentCopy, Renamed
from rootcellar.backup.copy.plan import CopyPlan, CopyWish, Known, Move, plan_copy
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.pipeline import download
from rootcellar.backup.restore.pins import pinned
from rootcellar.errors import AlreadyExistsError, DamagedObjectError, NotFoundError, UsageError
from rootcellar.stores.backoff import Clock, SystemClock
from rootcellar.stores.protocol import Create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.restore.database import Progress
    from rootcellar.stores.protocol import Store

PARALLEL = 4
"""Groups that are copied at the same time; each holds a few parts of one object in memory."""
POLL = 15.0
"""Seconds between two looks for a final full, as the reference has it."""
LATEST_FULLS = 4
"""A final full counts when it is among so many of the newest."""

_UNBOUNDED = -1


@dataclass(frozen=True, slots=True)
class Failure:
    """An object or document that was not copied, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did.  `size` is in bytes.

    `present` are objects that were there.  `failed` are damaged, gone, or another object has their name;
    `left_out` follow one of those and nothing else leads to them; `orphans` have no full in the source
    either. `documents` counts what was taken over of the catalogue beside records.  `epoch` is the newest
    that the source showed, 0 for none: a writer that knows of a newer one was not shown what it has written.
    """

    copied: tuple[str, ...]
    present: tuple[str, ...]
    failed: tuple[Failure, ...]
    left_out: tuple[str, ...]
    orphans: tuple[str, ...]
    documents: int
    epoch: int
    size: int
    seconds: float


def plan(source: Store, destination: Store, wish: CopyWish, now: datetime) -> CopyPlan:
    """What a copy would do now.  Raises what `plan_copy` does, UsageError, StoreErrors."""
    _refuse_same(source, destination)
    return plan_copy(read_catalogue(source), read_catalogue(destination), wish, now)


def copy(
    source: Store,
    destination: Store,
    wish: CopyWish | None = None,
    *,
    parallel: int = PARALLEL,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Copied:
    """Copy what `wish` says (default: everything).  `progress` is called with "copy" and bytes.

    Damaged objects are in the result and raise nothing.  Raises IdentityError (nothing was written),
    NotFoundError (no such chain), UsageError, StoreErrors.
    """
    began = time.monotonic()
    wish = wish or CopyWish()
    now = clock()
    _refuse_same(source, destination)
    ours, theirs = read_catalogue(source), read_catalogue(destination)
    planned = plan_copy(ours, theirs, wish, now)
    papers = DocumentCopy(source, destination, _renamed(planned))
    if papers.ground():
        theirs = read_catalogue(destination)
        if abandon(destination, theirs).moved:
            theirs = read_catalogue(destination)
        planned = plan_copy(ours, theirs, wish, now)
    work = _Work(source, destination, papers, theirs, progress)
    work.run(planned, parallel)
    papers.copied = work.documents_before
    papers.about(work.hashes())
    failed = [*work.failed, *(Failure(key, reason) for key, reason in papers.damaged.items())]
    return Copied(
        copied=tuple(work.copied),
        present=tuple(work.present),
        failed=tuple(failed),
        left_out=tuple(work.left_out),
        orphans=planned.orphans,
        documents=papers.copied,
        epoch=ours.epoch.number if ours.epoch is not None else 0,
        size=work.size,
        seconds=time.monotonic() - began,
    )


def wait_for_final(
    store: Store, timeout: float | None = None, *, poll: float = POLL, clock: Clock | None = None
) -> bool:
    """Wait until one of the newest fulls is final; whether one was, before `timeout` seconds were over
    (None: wait for ever).  Raises StoreErrors.
    """
    clock = clock or SystemClock()
    begun = clock.monotonic()
    while not _has_final(store):
        left = poll if timeout is None else min(poll, begun + timeout - clock.monotonic())
        if left <= 0:
            return False
        clock.sleep(left)
    return True


def copy_as_reference(
    source: Store,
    destination: Store,
    *,
    max_backups_to_copy: int = _UNBOUNDED,
    max_backup_age: int = _UNBOUNDED,
    max_parallel_copy_operations: int = 10,
    wait_for_final_snapshot: bool = False,
    wait_for_final_snapshot_timeout: timedelta = timedelta(0),
    clock: Clock | None = None,
) -> Copied:
    """`etcdbrctl copy` with its arguments: negative for no bound, ages in days, a timeout of 0 for none.

    As there, a wait that ends without a final full is no error: what is there is copied.
    """
    if wait_for_final_snapshot:
        wait_for_final(source, wait_for_final_snapshot_timeout.total_seconds() or None, clock=clock)
    wish = CopyWish(
        max_backups=max_backups_to_copy if max_backups_to_copy >= 0 else None,
        max_age=timedelta(days=max_backup_age) if max_backup_age >= 0 else None,
    )
    return copy(source, destination, wish, parallel=max_parallel_copy_operations)


def _refuse_same(source: Store, destination: Store) -> None:
    if source.url == destination.url:
        raise UsageError(f"source and destination are both {source.url}", hint="name another destination")


def _has_final(store: Store) -> bool:
    parsed = (names.parse(info.key) for info in store.list() if info.key.startswith(("v1/", "v2/")))
    fulls = [each for each in parsed if each and each.is_snapshot and each.kind is names.Kind.FULL]
    fulls.sort(key=lambda each: each.order)
    return any(each.final for each in fulls[-LATEST_FULLS:])


def _renamed(planned: CopyPlan) -> Renamed:
    pairs = {}
    for move in planned.moves:
        there = _name_there(move)
        if there.key != move.snapshot.name.key:
            pairs[move.snapshot.name.key] = (move.snapshot.name, there)
    return Renamed(pairs)


def _name_there(move: Move) -> SnapshotName:
    name = move.snapshot.name
    if move.snapshot.key != name.key:
        return name
    return name if move.key == name.key else replace(name, key=move.key, final=False)


class _StoppedError(Exception):
    """Another thread failed for good, or somebody interrupted: no more bytes."""


@dataclass
class _Work:
    """A copy under way."""

    source: Store
    destination: Store
    papers: DocumentCopy
    theirs: Catalogue
    progress: Progress
    copied: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    size: int = 0
    documents_before: int = 0
    _recorded_there: set[str] = field(init=False)
    _there: list[Snapshot] = field(default_factory=list)
    _waiting: list[Move] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._recorded_there = {each.key for each in self.theirs.snapshots if each.record is not None}

    def run(self, planned: CopyPlan, parallel: int) -> None:
        self.documents_before = self.papers.copied
        with ThreadPoolExecutor(max(1, parallel), thread_name_prefix="copy") as pool:
            try:
                for future in [pool.submit(self._group, group) for group in planned.groups]:
                    future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._rest()

    def hashes(self) -> dict[str, str]:
        """What the destination has of the source: sha256 of the stored bytes by the source's key."""
        return {each.name.key: each.record.stored_sha256 if each.record else "" for each in self._there}

    def _group(self, group: tuple[Move, ...]) -> None:
        head, last = group[0].snapshot, group[-1].snapshot
        if not head.is_full or not any(move.is_due for move in group):
            self._moves(group)
            return
        with pinned(self.source, head, last.last, by="rootcellar copy"):
            self._moves(group)

    def _moves(self, group: tuple[Move, ...]) -> None:
        for index, move in enumerate(group):
            if not self._move(move):
                with self._lock:
                    self._waiting += group[index + 1 :]
                return

    def _rest(self) -> None:
        """What follows an object that failed is wanted only where another full and its deltas lead to it:
        behind a hole it helps nobody, and EBR would stop at it.
        """
        self._waiting.sort(key=lambda move: move.snapshot.name.order)
        for move in self._waiting:
            if not (self._is_led_to(move.snapshot) and self._move(move)):
                self.left_out.append(move.snapshot.key)

    def _is_led_to(self, snapshot: Snapshot) -> bool:
        if snapshot.is_full:
            return True
        history = History(
            tuple(sorted([*self._there, *self.theirs.snapshots], key=lambda each: each.name.order))
        )
        return any(
            chain.full.last <= snapshot.last and snapshot.name.start <= chain.reach + 1
            for chain in chains(history, snapshot.timeline)
        )

    def _move(self, move: Move) -> bool:
        """Copy an object and its record; whether the destination has it now."""
        snapshot = move.snapshot
        try:
            is_new = self._transfer(move)
        except DamagedObjectError as error:
            self._fail(snapshot.key, error.message.removeprefix(f"{snapshot.key}: "))
            return False
        # Killed here: the object without its record.
        if snapshot.record is not None and move.key not in self._recorded_there:
            self.papers.record(snapshot.name, _name_there(move))
        with self._lock:
            self._there.append(snapshot)
            (self.copied if is_new else self.present).append(move.key)
        return True

    def _transfer(self, move: Move) -> bool:
        """Put the object where it is not there already; whether it was put.  Raises DamagedObjectError."""
        if move.known is Known.SAME:
            return False
        if move.known is Known.MISSING:
            try:
                self.destination.put(move.key, self._checked(move.snapshot), condition=Create())
            except AlreadyExistsError:
                pass  # a copy beside this one, or this very put, whose answer was lost
            else:
                return True
        if move.known is Known.OTHER or not self._is_same(move):
            raise DamagedObjectError(
                move.snapshot.key, f"is not the object that the destination has as {move.key}"
            )
        return False

    def _is_same(self, move: Move) -> bool:
        """Read both, as only one of them, or neither, has a record."""
        ours = self._digest(self._checked(move.snapshot))
        return ours == self._digest(self.destination.get(move.key))

    @staticmethod
    def _digest(chunks: Iterable[bytes]) -> str:
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        return digest.hexdigest()

    def _fail(self, key: str, reason: str) -> None:
        with self._lock:
            self.failed.append(Failure(key, reason))

    def _checked(self, snapshot: Snapshot) -> Iterator[bytes]:
        """The stored bytes; raises DamagedObjectError, at the latest behind the last of them."""
        if snapshot.record is not None:
            return self._recorded(snapshot, snapshot.record.stored_sha256)
        if snapshot.name.is_encrypted:
            return self._read(snapshot)  # encrypted: who has no key cannot see the hash in it
        return self._tailed(snapshot)

    def _recorded(self, snapshot: Snapshot, sha256: str) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for chunk in self._read(snapshot):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise DamagedObjectError(snapshot.key, "is not the object that was recorded: its sha256 differs")

    def _tailed(self, snapshot: Snapshot) -> Iterator[bytes]:
        passing: deque[bytes] = deque()

        def read() -> Iterator[bytes]:
            for chunk in self._read(snapshot):
                passing.append(chunk)
                yield chunk

        name = snapshot.key
        for _ in codecs.HashTail(codecs.decompress(read(), snapshot.name.suffix, name=name), name=name):
            while passing:
                yield passing.popleft()
        yield from passing

    def _read(self, snapshot: Snapshot) -> Iterator[bytes]:
        try:
            for chunk in download(self.source, snapshot.key, snapshot.size):
                if self._stop.is_set():
                    raise _StoppedError
                with self._lock:
                    self.size += len(chunk)
                    self.progress("copy", len(chunk))
                yield chunk
        except NotFoundError as error:
            raise DamagedObjectError(snapshot.key, "is gone since it was listed") from error
