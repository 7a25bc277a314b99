"""Carrying a prune out, in an order that a crash cannot hurt.

1. an epoch, unless the caller has one.  Killed: nothing happened.
2. of up to 200 snapshots the tombstones.  The epoch is read again before and after, and so are holds and
   pins: what came since makes a new plan.  Whoever writes a hold and then sees no tombstone knows that it
   came in time.  Killed: tombstones beside objects; the next prune finishes them, or leaves alone what was
   held meanwhile.
3. these objects, deltas before fulls and newest before oldest.  Killed: of a chain that goes some objects are
   left, each with its tombstone; the chains that stay were never touched.
4. what spoke of these objects: records, proofs, parts.  Killed: records that their tombstones explain; the
   next prune removes them.
5. steps 2 to 4 for the next ones.
6. leftovers: records, holds and what lifted them, epochs, ..., and old tombstones at last.  Killed: the next
   prune finds the rest.

What the store's retention forbids to delete is asked before its tombstone is written.  It stays, and so does
all that it builds on, and both are reported.  Credentials that may not ask cannot know: that is reported, and
the store's own refusals, which come behind the tombstone, are heeded in the same way.  In a bucket that keeps
versions a deletion hides an object; what frees its space is the bucket's own rule for versions that are not
current.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import documents, fence, keys, ledger
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.records import Hold
from rootcellar.backup.prune.plan import plan_prune
from rootcellar.backup.prune.values import Decision, Ground, Live, PrunePlan, What
from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    FencedError,
    LockedError,
    NotFoundError,
    RecordError,
    UnsupportedError,
)
from rootcellar.etcd.answers import AlarmKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.backup.prune.values import Rules
    from rootcellar.errors import StoreError
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

BATCH: Final = 200
_PLANS = 8
_THREADS = 16
_LOCKS = (keys.HOLDS, keys.PINS)


@dataclass(slots=True)
class Pruned:
    """What a prune came to.

    `plan` is the last one, of which `deleted` says what was carried out (of all plans, if there were
    several). `locked` are keys that the store's retention keeps, with its words; `kept_for` those that stay
    because a locked one, or one that could not be deleted, builds on them.  `failed` are other refusals.
    `uploads` is the number of unfinished ones that were removed.  `unasked` is why the store's retention
    could not be asked for, None where it could, or where the store has none.
    """

    plan: PrunePlan
    deleted: list[Decision] = field(default_factory=list)
    locked: dict[str, str] = field(default_factory=dict)
    kept_for: dict[str, str] = field(default_factory=dict)
    failed: dict[str, StoreError] = field(default_factory=dict)
    uploads: int = 0
    unasked: str | None = None


def survey(store: Store) -> Ground:
    """Read what a plan is made from.  Raises StoreErrors."""
    listing = tuple(store.list())  # first: what comes after it has no age, and so is left alone
    catalogue = read_catalogue(store)
    there = {info.key for info in listing}
    released = []
    for key in sorted(there):
        if key.startswith(keys.RELEASES) and keys.HOLDS + key.removeprefix(keys.RELEASES) in there:
            with suppress(NotFoundError, RecordError):
                released.append(documents.fetch(store, keys.HOLDS + key.removeprefix(keys.RELEASES), Hold))
    return Ground(catalogue, listing, tuple(released))


def ask(client: EtcdClient) -> Live:
    """What a prune has to know of the etcd that is backed up.  Raises EtcdErrors."""
    corrupt = any(alarm.kind is AlarmKind.CORRUPT for alarm in client.alarms())
    return Live(f"{client.header().cluster_id:x}", corrupt)


def prune(
    store: Store,
    rules: Rules,
    *,
    writer: str,
    epoch: Epoch | None = None,
    live: Live | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Pruned:
    """Delete what the rules do not keep.

    With `epoch` in the caller's, else in a new one, which fences whoever wrote until now.  `clock` is by
    default the store's, as an object tells it that is written now.  Raises FencedError when another writer
    comes, DoubtError and IdentityError before anything is deleted, StoreErrors.
    """
    if epoch is None:
        epoch = fence.claim_epoch(store, writer, datetime.now(UTC))
        # Killed here: an epoch more.
    now = clock() if clock is not None else _time_of(store)
    work = _Work(store, epoch, now)
    for _ in range(_PLANS):
        ground = survey(store)
        plan = plan_prune(ground, rules, now, live)
        if work.carry_out(plan, ground):
            work.pruned.uploads = store.abort_leftovers(rules.grace)
            return work.pruned
    raise FencedError(
        f"{_PLANS} times something was held or pinned while {store.url} was pruned",
        hint="what was deleted was not held by then; try again when fewer are at work",
    )


def _time_of(store: Store) -> datetime:
    """What the store's clock shows.  The machine's may be years ahead, and every backup old by it."""
    modified = store.put(f"{keys.TIMES}{secrets.token_hex(8)}.json", [b"{}"]).modified
    # Killed here, or not allowed to delete: an object more, which a later prune removes.
    store.delete_many([info.key for info in store.list(keys.TIMES)])
    return modified


class _Work:
    """One prune under way."""

    def __init__(self, store: Store, epoch: Epoch, now: datetime) -> None:
        self._store = store
        self._epoch = epoch
        self._now = now
        self._has_locks = True
        self._stopped: dict[str, str] = {}
        self.pruned = Pruned(PrunePlan(()))

    def carry_out(self, plan: PrunePlan, ground: Ground) -> bool:
        """Whether it came to its end; if not, something is held that was not."""
        pruned = self.pruned
        pruned.plan = plan
        pruned.locked, pruned.kept_for, pruned.failed, self._stopped = {}, {}, {}, {}
        known = {info.key for info in ground.listing if info.key.startswith(_LOCKS)}
        buried = {tombstone.key for tombstone in ground.catalogue.tombstones}
        deltas = [each for each in plan.doomed if each.what is not What.FULL]
        fulls = [each for each in plan.doomed if each.what is What.FULL]
        for batch in (*_batches(deltas), *_batches(fulls)):
            if not self._is_allowed(known):
                return False
            going = self._condemn(batch, buried)
            # Killed or paused here: tombstones beside their objects.
            if not self._is_allowed(known):
                return False
            self._delete(going)
        fence.check_epoch(self._store, self._epoch)
        self._sweep(plan.swept)
        return True

    def _is_allowed(self, known: set[str]) -> bool:
        """Whether nothing was held since; raises FencedError where somebody else writes by now."""
        fence.check_epoch(self._store, self._epoch)
        return not self._locks() - known

    def _condemn(self, batch: Sequence[Decision], buried: set[str]) -> list[Decision]:
        """Step 2 for a batch: what may go, with its tombstones."""
        going = self._unlocked(batch)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="prune") as pool:
            list(pool.map(self._bury, (each for each in going if _name(each) not in buried)))
        return going

    def _delete(self, going: Sequence[Decision]) -> None:
        """Steps 3 and 4 for a batch."""
        failed = self._store.delete_many(each.key for each in going)
        # Killed here: records that their tombstones explain.
        gone = []
        for each in going:
            if (error := failed.get(each.key)) is None:
                gone.append(each)
                self.pruned.deleted.append(each)
            else:
                self._refused(each, error)
        self._note(self._store.delete_many(key for each in gone for key in each.dependents))

    def _unlocked(self, batch: Sequence[Decision]) -> list[Decision]:
        """What may go.  A delta that stays keeps what it builds on: older deltas, and the full."""
        going = []
        for each, reason in zip(batch, self._reasons(batch), strict=True):
            base = each.base or _name(each)
            if base in self._stopped:
                self.pruned.kept_for[each.key] = self._stopped[base]
            elif reason is not None:
                self.pruned.locked[each.key] = reason
                self._stopped[base] = each.key
            else:
                going.append(each)
        return going

    def _reasons(self, batch: Sequence[Decision]) -> list[str | None]:
        if not self._has_locks:
            return [None] * len(batch)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="prune") as pool:
            try:
                return list(pool.map(self._lock, (each.key for each in batch)))
            except UnsupportedError:
                self._has_locks = False
            except DeniedError as error:
                self._has_locks = False
                self.pruned.unasked = error.message
        return [None] * len(batch)

    def _lock(self, key: str) -> str | None:
        """Why the store would not delete an object, None if it would."""
        try:
            found = self._store.retention(key)
        except NotFoundError:
            return None
        if found.legal_hold:
            return "a legal hold of the store"
        return f"retained until {found.until:%Y-%m-%d %H:%M} UTC" if found.until is not None else None

    def _bury(self, each: Decision) -> None:
        if each.snapshot is None:
            return
        with suppress(AlreadyExistsError):  # of an earlier try
            ledger.write_tombstone(
                self._store,
                each.snapshot,
                reason=each.reason,
                by=self._epoch.writer,
                epoch=self._epoch.number,
                now=self._now,
            )

    def _sweep(self, decisions: Sequence[Decision]) -> None:
        for tombstones in (False, True):
            if tombstones and self.pruned.failed:
                return  # a record that could not be removed must not lose what explains it
            group = [each for each in decisions if (each.what is What.TOMBSTONE) is tombstones]
            for batch in _batches(group):
                failed = self._store.delete_many(each.key for each in batch)
                self._note(failed)
                self.pruned.deleted += [each for each in batch if each.key not in failed]

    def _refused(self, each: Decision, error: StoreError) -> None:
        self._stopped[each.base or _name(each)] = each.key
        self._note({each.key: error})

    def _note(self, failed: dict[str, StoreError]) -> None:
        for key, error in failed.items():
            if isinstance(error, LockedError):
                self.pruned.locked[key] = error.message
            else:
                self.pruned.failed[key] = error

    def _locks(self) -> set[str]:
        return {info.key for prefix in _LOCKS for info in self._store.list(prefix)}


def _batches(decisions: Sequence[Decision]) -> Iterator[Sequence[Decision]]:
    for start in range(0, len(decisions), BATCH):
        yield decisions[start : start + BATCH]


def _name(each: Decision) -> str:
    return each.snapshot.name.key if each.snapshot is not None else each.key
