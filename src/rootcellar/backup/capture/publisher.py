"""The order in which a capture's objects are written, and what a crash after each leaves.

A full:

1. its claim.  Killed or paused here, or at any later step: whoever takes over reads that such a full may
   come, and ends no delta inside it.
2. the epoch, read again: who was superseded before publishes nothing.
3. the object, create-only.  Killed while it streams: nothing visible, and at most an unfinished upload, which
   `abort_leftovers` removes.
4. killed here: a full without a record.  It is a valid backup; its real revision has to be read from it, and
   deltas cannot go on from it, because nothing tells what it ends with.
5. the record.
6. the epoch, read again.  Killed here: nothing is missing.
7. if it was superseded, and its successor has stored the same again (`overlap`): a tombstone, then the object
   is removed.  Killed between: the next prune removes it.  Else it stays: the successor may go on from it.
8. the claim, which has served, is removed.  Killed here: a prune removes it, when it is old.

A delta:

1. its claim.  Killed here: a slot that says what was meant; the next writer claims in its own epoch.
2. the epoch, read again.
3. the object, create-only.  Killed here: a valid delta without a record; the claim tells its timeline.  The
   next capture continues from it.
4. record, and what follows it, as 5. to 7. above.

Behind either, whoever captures files what was proven in passing (`capture.proof`).  Killed before: nothing is
missing, and the object is one that nobody has proven yet.

What an older epoch has claimed, and publishes late all the same (`rivals`): once deltas of higher epochs hold
it, a tombstone, then it is removed.  What was claimed on a timeline that is dead by now is moved aside.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from rootcellar.backup.capture.etag import etag_for
from rootcellar.backup.capture.overlap import is_superfluous, superfluous_deltas
from rootcellar.backup.capture.rivals import Rival
from rootcellar.backup.catalogue import fence, ledger, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.history import Snapshot
from rootcellar.backup.catalogue.timeline import abandon
from rootcellar.backup.objects.sealing.seal import encrypt
from rootcellar.errors import (
    AlreadyExistsError,
    FencedError,
    LockedError,
    NotFoundError,
    StoreError,
    UsageError,
)
from rootcellar.stores.decorator import tapped
from rootcellar.stores.protocol import Create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.backup.catalogue.records import Record
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.stores.protocol import Store


def utc_now() -> datetime:
    """The clock that everything takes unless a test gives another."""
    return datetime.now(UTC)


class Tally:
    """Counts and hashes the bytes that pass through."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0

    def through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.add(chunk)
            yield chunk

    def add(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self.size += len(chunk)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def digest(self) -> bytes:
        return self._digest.digest()


def used_keys(catalogue: Catalogue) -> set[str]:
    """The keys that snapshots have or had."""
    return set(
        [each.name.key for each in catalogue.snapshots]
        + [each.key for each in catalogue.tombstones]
        + [each.key for each in catalogue.lost]
    )


_TWO_WRITERS = "two agents write to this prefix; stop one of them, or let the fence decide"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Writes snapshots to one timeline of a store, in one epoch.

    `taken` are the keys that snapshots have or had: a name is used once, even if its object is gone.
    `recipients` can open what lies under names of encrypted objects.  Safe between a thread that writes fulls
    and one that writes deltas.
    """

    store: Store
    epoch: Epoch
    timeline: int
    taken: set[str] = field(default_factory=set)
    clock: Callable[[], datetime] = utc_now
    recipients: tuple[Recipient, ...] = ()
    rivals: dict[str, Rival] = field(default_factory=dict)
    """By key what older epochs have claimed and may store yet, in the way of EBR."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Raises FencedError when this writer is no longer the one, before anything is done for nothing."""
        self._go_on()
        fence.check_epoch(self.store, self.epoch)

    def stop(self) -> None:
        """Write nothing more: what is on its way breaks off with FencedError, and becomes no object.

        A store that hangs is not waited for: if it takes the bytes in the end, the fence tells whose they
        are.
        """
        self._stopped.set()

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise FencedError(
                f"{self.epoch.writer} no longer writes in epoch {self.epoch.number}",
                hint="its session was closed; whoever closed it goes on, or another agent",
            )

    def _watched(self, _chunk: bytes) -> None:
        self._go_on()

    def unused(self, named: Callable[[int], SnapshotName], second: int) -> SnapshotName:
        """The name for this second, or for the next that no other snapshot has or had.  It is used now."""
        while (name := named(second)).key in self.taken:
            second += 1
        self.taken.add(name.key)
        return name

    def claim_full(self, name: SnapshotName, reached: int) -> str:
        """Say that this full is coming, and ends at or below `reached`; the key of the claim.

        Raises FencedError where another writer has taken over, which then need not know.
        """
        key = fence.claim_full(self.store, self.epoch, name, reached, self.timeline, self.clock())
        # Killed or paused here: whoever takes over reads the claim.
        try:
            self.begin()
        except FencedError:
            self.settle(key)
            raise
        return key

    def settle(self, claim: str) -> None:
        """Remove a claim that has served.  One that stays does no harm."""
        with suppress(StoreError):
            self.store.delete(claim)

    def put_full(self, name: SnapshotName, stored: Iterable[bytes]) -> tuple[Tally, str]:
        """Store a full's bytes; what they came to, and their etag.  Nothing is visible until all of them are
        there.
        """
        tally, etag = Tally(), etag_for(self.store.url)
        stored = tapped(tally.through(self._sealed(name, stored)), etag.add)
        self.store.put(name.key, tapped(stored, self._watched), condition=Create())
        return tally, etag.value

    def sealed(self, name: SnapshotName, packed: list[bytes], tally: Tally) -> tuple[list[bytes], Tally]:
        """What to store under a name, and what it comes to: these bytes, or their encryption."""
        if not name.is_encrypted:
            return packed, tally
        tally = Tally()
        return list(tally.through(self._sealed(name, packed))), tally

    def _sealed(self, name: SnapshotName, packed: Iterable[bytes]) -> Iterable[bytes]:
        if not name.is_encrypted:
            return packed
        if not self.recipients:
            raise UsageError(f"{name.key} would have no recipients", hint="say who may open it")
        return encrypt(packed, name, self.recipients)

    def key_ids(self, name: SnapshotName) -> tuple[str, ...] | msgspec.UnsetType:
        """For the record of an encrypted snapshot."""
        return tuple(each.key_id for each in self.recipients) if name.is_encrypted else msgspec.UNSET

    def put_delta(
        self, name: SnapshotName, stored: list[bytes], sha256: str, at: datetime | None = None
    ) -> None:
        """Claim the slot of a delta and store its bytes.  With the same arguments it can be repeated."""
        self._go_on()
        fence.claim_slot(self.store, self.epoch, name, sha256, self.timeline, at or self.clock())
        # Killed or paused here: the claim alone, which whoever takes over reads.
        fence.check_epoch(self.store, self.epoch)
        others = self.claimed(name.start)
        newer = max(others.values(), default=0)
        if name.key in others or newer > self.epoch.number:
            # Either means another object by the same name, or has taken over.  Of two that claim at the same
            # time, one sees the other here.
            raise FencedError(f"the slot of {name.key} is claimed by another writer, too", hint=_TWO_WRITERS)
        late = {key: each for key in others if (each := names.read(key)) is not None}
        self.rivals.update({key: Rival(each, is_dead=False) for key, each in late.items()})
        try:
            self.store.put(name.key, tapped(stored, self._watched), condition=Create())
        except AlreadyExistsError:
            # Perhaps by this very call, whose answer was lost.
            if not self._holds(name.key, sha256):
                raise

    def claimed(self, start: int) -> dict[str, int]:
        """The names that other epochs have claimed for a delta that begins at this revision."""
        return fence.claimed_by_others(self.store, self.epoch, start)

    def _holds(self, key: str, sha256: str) -> bool:
        tally = Tally()
        for chunk in self.store.get(key):
            tally.add(chunk)
        return tally.sha256 == sha256

    def record(self, record: Record) -> None:
        """Say what the object is, and see whether it was ours to write.

        Raises FencedError, with the object removed again where the store lets go of it.
        """
        # Killed here: the object without a record.
        try:
            ledger.write_record(self.store, record)
        except AlreadyExistsError as error:
            # Of an object by the same name, which its writer has removed again: it does not describe ours.
            fenced = FencedError(f"{record.key} was recorded by another writer", hint=_TWO_WRITERS)
            self._take_back(record, fenced)
            raise fenced from error
        # Killed here: all is there, only nobody looked whether another writer had taken over.
        try:
            fence.check_epoch(self.store, self.epoch)
        except FencedError as error:
            self._take_back(record, error)
            raise

    def remove_rivals(self, reached: int) -> None:
        """Remove what an older epoch has published meanwhile over our own deltas, which reach so far.

        Raises StoreErrors.
        """
        due = [
            (key, each) for key, each in [*self.rivals.items()] if each.is_dead or each.name.last <= reached
        ]
        late = [(key, each) for key, each in due if self._is_there(key)]
        if late:
            catalogue = read_catalogue(self.store)
            self.remove_superfluous(catalogue)
            if any(each.is_dead for _, each in late):
                abandon(self.store, catalogue)
        for key, _ in late:
            # If it is there still, then somebody needs it, or holds it: whoever opens next looks again.
            self.rivals.pop(key, None)

    def outlive_rivals(self, revision: int) -> None:
        """EBR begins with a full of this revision now, and sees nothing older."""
        for key, each in [*self.rivals.items()]:
            if not each.is_dead and each.name.last <= revision:
                self.rivals.pop(key, None)

    def remove_superfluous(self, catalogue: Catalogue) -> None:
        """Remove deltas that EBR sees and nobody's chain needs.  Raises StoreErrors."""
        for each in superfluous_deltas(catalogue):
            self.remove(each, "published too late by another writer")

    def _is_there(self, key: str) -> bool:
        try:
            self.store.stat(key)
        except NotFoundError:
            return False
        return True

    def remove(self, snapshot: Snapshot, reason: str) -> bool:
        """Remove what nobody's chain needs; False where the store does not let go of it."""
        with suppress(AlreadyExistsError):  # of an object by the same name
            ledger.write_tombstone(
                self.store,
                snapshot,
                reason=reason,
                by=self.epoch.writer,
                epoch=self.epoch.number,
                now=self.clock(),
            )
        # Killed here: a tombstone beside its object, which the next prune removes.
        try:
            self.store.delete(snapshot.key)
        except LockedError:
            return False
        return True

    def _take_back(self, record: Record, error: FencedError) -> None:
        snapshot = Snapshot(record.name, record.key, record.stored_size, record.timeline, record)
        # Paused or killed from here on: it can be removed at any later time as well.
        if not is_superfluous(read_catalogue(self.store), snapshot):
            error.add_note(f"{record.key} stays: whoever writes now may go on from it")
        elif not self.remove(snapshot, f"published too late: {error.message}"):
            error.add_note(f"{record.key} cannot be removed; readers trim what overlaps")
