"""Keys of a backup put back into a live etcd, without undoing what others wrote since.

**What is written.**  A key the live etcd lacks is created, also when somebody deleted it since: that is
what putting back is for.  A key with the same value is left alone.  A key that differs is overwritten only
when the live one is not newer: its mod_revision is not above the backup's, and it is the same incarnation
(create_revision).  Newer ones are reported, and written only if the caller says so.  A key the backup lacks
is deleted only if the caller says so.

**Who wins.**  Every write is guarded by the mod_revision that the plan saw.  Whoever writes in between wins;
the key is reported and left as it is.

**Leases.**  A lease id means nothing in another cluster or after an expiry, so none is taken over.  RENEW
gives the keys of one old lease one new lease of the same TTL, counted from now, that nobody keeps alive
unless its holder learns of it; NONE puts keys without lease, and they stay.  Whether a key has a lease counts
for "the same", which lease does not.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.browse.difference import joined
from rootcellar.backup.restore.membership import DEFAULT_LEASE_TTL
from rootcellar.errors import EtcdError, UsageError
from rootcellar.etcd import operations
from rootcellar.mvcc.history import KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rootcellar.backup.browse.live import Keyed, Readable
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.etcd.operations import Operation
    from rootcellar.mvcc.record import KeyValue

BATCH_OPERATIONS = 128
"""etcd's default for --max-txn-ops."""
BATCH_BYTES = 1 << 20
"""Two thirds of etcd's default for --max-request-bytes; a larger key goes alone."""

_OPERATION_BYTES = 64


class Action(StrEnum):
    """What is to be done with a key: CREATE, OVERWRITE and DELETE write, SAME and NEWER do not."""

    CREATE = "create"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    SAME = "same"
    NEWER = "newer"


class LeaseRule(StrEnum):
    """What becomes of leases; see the module."""

    RENEW = "renew"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Step:
    """One key.  `live_revision` is the mod_revision that the live key must still have, 0 for none.

    `lease` is the backup's, 0 when the key is to have none.  `size` is in bytes of key and value to write.
    """

    key: bytes
    action: Action
    live_revision: int
    lease: int
    size: int
    backup: Keyed | None

    @property
    def writes(self) -> bool:
        return self.action not in (Action.SAME, Action.NEWER)


@dataclass(frozen=True, slots=True)
class PutBack:
    """A plan: `steps` write, `newer` are keys left alone, `same` is how many need nothing.

    Valid while the backup is open.  `revision` is the backup's, `live_revision` the one it was compared with.
    """

    revision: int
    live_revision: int
    steps: tuple[Step, ...]
    newer: tuple[Step, ...]
    same: int

    @property
    def size(self) -> int:
        return sum(step.size for step in self.steps)

    def count(self, action: Action) -> int:
        return sum(step.action is action for step in self.steps)


class Outcome(NamedTuple):
    """What came of a step: `written` at `revision`, or lost to somebody who wrote the key in between."""

    step: Step
    written: bool
    revision: int


def plan_put_back(
    backup: Readable,
    live: Readable,
    ranges: Sequence[KeyRange],
    *,
    overwrite_newer: bool = False,
    delete_extra: bool = False,
    leases: LeaseRule = LeaseRule.RENEW,
) -> PutBack:
    """Compare the keys in `ranges`.  Raises what reading raises, and UsageError when everything in the ranges
    would be deleted because the backup has nothing there.

    Memory: one small entry per key to write or left alone, beside what reading takes.
    """
    if not ranges:
        raise UsageError("no keys are named", hint="name a prefix or keys to put back")
    wanted = disjoint(ranges)
    writing: list[Step] = []
    newer: list[Step] = []
    same = 0
    for step in steps(
        _live_in(backup, wanted),
        chain.from_iterable(live.live(each) for each in wanted),
        overwrite_newer=overwrite_newer,
        delete_extra=delete_extra,
        leases=leases,
    ):
        if step.action is Action.NEWER:
            newer.append(step)
        elif step.action is Action.SAME:
            same += 1
        else:
            writing.append(step)
    if writing and not (same or newer) and all(step.action is Action.DELETE for step in writing):
        raise UsageError(
            f"the backup has none of these keys at revision {backup.revision}: all {len(writing)} live ones "
            "would be deleted",
            hint="check the prefix and the revision; to delete keys, use etcdctl",
        )
    return PutBack(backup.revision, live.revision, tuple(writing), tuple(newer), same)


def steps(
    backup: Iterator[Keyed],
    live: Iterator[Keyed],
    *,
    overwrite_newer: bool = False,
    delete_extra: bool = False,
    leases: LeaseRule = LeaseRule.RENEW,
) -> Iterator[Step]:
    """What to do with each key of two streams in key order.  Pure."""
    for ours, theirs in joined(backup, live):
        if ours is None:
            if theirs is not None and delete_extra:
                revision = theirs.record.mod_revision
                yield Step(theirs.key, Action.DELETE, revision, 0, len(theirs.key), None)
            continue
        record = ours.record
        lease = record.lease if leases is LeaseRule.RENEW else 0
        size = len(record.key) + len(record.value)
        if theirs is None:
            yield Step(ours.key, Action.CREATE, 0, lease, size, ours)
            continue
        action = _action(record, theirs.record, has_lease=bool(lease))
        if action is Action.NEWER and overwrite_newer:
            action = Action.OVERWRITE
        yield Step(ours.key, action, theirs.record.mod_revision, lease, size, ours)


def _action(backup: KeyValue, live: KeyValue, *, has_lease: bool) -> Action:
    if backup.value == live.value and bool(live.lease) == has_lease:
        return Action.SAME
    if live.mod_revision > backup.mod_revision or live.create_revision != backup.create_revision:
        return Action.NEWER
    return Action.OVERWRITE


def disjoint(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """The same keys as ranges in order that do not overlap."""
    out: list[KeyRange] = []
    for each in sorted(ranges, key=lambda each: each.start):
        if out and (out[-1].end is None or each.start <= out[-1].end):
            before = out.pop()
            ends = (before.end, each.end)
            end = None if ends[0] is None or ends[1] is None else max(ends[0], ends[1])
            out.append(KeyRange(before.start, end))
        else:
            out.append(each)
    return out


def _live_in(backup: Readable, wanted: Sequence[KeyRange]) -> Iterator[Keyed]:
    """The backup's keys in several ranges, by one read: each would scan the file."""
    if len(wanted) == 1:
        yield from backup.live(wanted[0])
        return
    left = iter(wanted)
    now: KeyRange | None = next(left)
    for entry in backup.live(KeyRange(wanted[0].start, wanted[-1].end)):
        while now is not None and now.end is not None and entry.key >= now.end:
            now = next(left, None)
        if now is None:
            return
        if entry.key in now:
            yield entry


def put_back(client: EtcdClient, plan: PutBack, *, lease_ttls: Mapping[int, int]) -> Iterator[Outcome]:
    """Carry out a plan, a batch at a time; an outcome for each step, once its batch is done.

    `lease_ttls` are granted seconds by the backup's lease ids; a lease that is not in it gets
    DEFAULT_LEASE_TTL.  Raises EtcdError and below: what was reported is done, of the batch under way nobody
    knows, and a new plan finds out.
    """
    leases = _Leases(client, lease_ttls)
    for batch in _batches(plan.steps):
        yield from _write(client, batch, leases)
    leases.revoke_unused()


class _Leases:
    """New leases for old ones, granted when the first key needs one."""

    def __init__(self, client: EtcdClient, ttls: Mapping[int, int]) -> None:
        self._client = client
        self._ttls = ttls
        self._granted: dict[int, int] = {}
        self._used: set[int] = set()

    def instead_of(self, lease: int) -> int:
        if lease not in self._granted:
            self._granted[lease] = self._client.lease_grant(self._ttls.get(lease) or DEFAULT_LEASE_TTL)
        return self._granted[lease]

    def used(self, lease: int) -> None:
        self._used.add(lease)

    def revoke_unused(self) -> None:
        """End those whose keys were all lost to somebody else.

        Never after an error: a batch whose answer was lost may have written keys, and they would go too.
        """
        for lease, granted in self._granted.items():
            if lease not in self._used:
                with contextlib.suppress(EtcdError):
                    self._client.lease_revoke(granted)


def _batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    batch: list[Step] = []
    size = 0
    for step in steps:
        needed = step.size + len(step.key) + _OPERATION_BYTES  # the key comes twice: to compare, to write
        if batch and (len(batch) == BATCH_OPERATIONS or size + needed > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += needed
    if batch:
        yield batch


def _write(client: EtcdClient, batch: Sequence[Step], leases: _Leases) -> Iterator[Outcome]:
    """One transaction; if somebody wrote one of its keys, one for each key."""
    guards = [operations.mod_revision_is(step.key, step.live_revision) for step in batch]
    result = client.txn([_operation(step, leases) for step in batch], compare=guards)
    if not result.succeeded and len(batch) > 1:
        for step in batch:
            yield from _write(client, [step], leases)
        return
    for step in batch:
        if result.succeeded and step.lease:
            leases.used(step.lease)
        yield Outcome(step, result.succeeded, result.header.revision)


def _operation(step: Step, leases: _Leases) -> Operation:
    if step.backup is None:
        return operations.delete(step.key)
    lease = leases.instead_of(step.lease) if step.lease else 0
    return operations.put(step.key, step.backup.record.value, lease=lease)
