"""Which objects lead to a revision or a moment.  Pure: values in, a plan out; no store, no clock.

A chain is a full and the deltas that continue it.  A delta continues a revision when it begins at or below
the one that comes next and ends above it; what it repeats is trimmed by `mod_revision` when it is applied.
A revision that no delta holds is a gap, and no plan crosses one.

Names are hints.  A delta's last revision is true.  A full's real one may be higher than in its name, and is
known from its record or from its pages alone.  A plan on a full that is not `is_sure` can therefore turn
out to begin higher: then deltas that lie below are skipped (a step's `after` is a lower bound), and if the
target lies below too, the restore says so to `History.learned` and plans again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.catalogue.records import Check
from rootcellar.errors import ChainError, NothingToRestoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rootcellar.backup.catalogue.history import History, Snapshot, Stretch
    from rootcellar.backup.catalogue.records import Proof

_NAMED = 3
"""Prefixes that a hint names."""
_SLACK = 300 * SECOND
"""How far the clocks of two writers may lie apart, where deltas are chosen by the seconds in their names."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest revision in any object of the timeline."""


@dataclass(frozen=True, slots=True)
class AtRevision:
    """Everything up to this revision, and nothing above."""

    revision: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Everything received at or before this moment (unix nanoseconds)."""

    moment: int


Target = Latest | AtRevision | AtTime


class Gap(NamedTuple):
    """Revisions `first` to `last` that no object lets one restore."""

    first: int
    last: int


class Step(NamedTuple):
    """Apply of this delta the revisions above `after` (or above what is already there, if that is higher),
    up to `upto`.
    """

    snapshot: Snapshot
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """A full and the steps behind it.

    `revision` is where to end, None when a time was asked for: then the applier ends before the first event
    received after `moment`, and `reach` is how far the steps go at most.  `must_stop`: a gap follows the
    last step, so unless an event after `moment` is met, the target lies in the gap and the restore has
    failed.  `covers` are the unix nanoseconds between which the planned state was the live one, as far as
    known without reading events: from the latest moment it can have begun, to the last at which it is known
    to have held.
    """

    target: Target
    timeline: int
    full: Snapshot
    steps: tuple[Step, ...]
    reach: int
    revision: int | None
    moment: int | None
    must_stop: bool
    covers: tuple[int, int]

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return self.full, *(step.snapshot for step in self.steps)

    def compaction(self, at: int) -> int:
        """The last recorded compaction at or below revision `at`, -1 for none."""
        recorded = (each.record.compact_revision for each in self.snapshots if each.record is not None)
        return max((revision for revision in recorded if revision <= at), default=-1)


@dataclass(frozen=True, slots=True)
class Chain:
    """A full, and the deltas from it towards the next full or the end.  `reach` is the last restorable
    revision; `gap` what is missing behind it.
    """

    full: Snapshot
    deltas: tuple[Snapshot, ...]
    reach: int
    gap: Gap | None


@dataclass(frozen=True, slots=True)
class RecoveryWindow:
    """What can be restored: closed ranges of revisions in ascending order, and the newest one that was
    proven by a replay or a boot, with the proof.
    """

    ranges: tuple[tuple[int, int], ...]
    proof: Proof | None

    @property
    def first(self) -> int | None:
        return self.ranges[0][0] if self.ranges else None

    @property
    def last(self) -> int | None:
        return self.ranges[-1][1] if self.ranges else None


class _Deltas:
    """The deltas of one timeline, ready to be followed from any revision.

    Of those that begin at or below a revision the one to take is known beforehand: it is always the same.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        deltas = sorted((s for s in snapshots if not s.is_full), key=lambda s: s.name.start)
        self._starts = [snapshot.name.start for snapshot in deltas]
        self._best = list(accumulate(deltas, _better))
        self._ranges: list[list[int]] = []
        for snapshot in deltas:
            if self._ranges and snapshot.name.start <= self._ranges[-1][1] + 1:
                self._ranges[-1][1] = max(self._ranges[-1][1], snapshot.last)
            else:
                self._ranges.append([snapshot.name.start, snapshot.last])
        self._range_starts = [start for start, _ in self._ranges]

    def reach(self, position: int) -> int:
        """How far one gets from a revision without a gap."""
        index = bisect_right(self._range_starts, position + 1) - 1
        return max(position, self._ranges[index][1]) if index >= 0 else position

    def follow(self, position: int) -> Iterator[Step]:
        """The fewest deltas that lead on from a revision: of those that continue it always the furthest, of
        these one with a record, of these the one that repeats least.
        """
        while (stop := bisect_right(self._starts, position + 1)) > 0:
            best = self._best[stop - 1]
            if best.last <= position:
                return
            yield Step(best, position, best.last)
            position = best.last

    def next_start(self, position: int) -> int | None:
        """The first revision above `position + 1` that some delta begins with."""
        index = bisect_right(self._starts, position + 1)
        return self._starts[index] if index < len(self._starts) else None


def _better(one: Snapshot, other: Snapshot) -> Snapshot:
    return max(one, other, key=_preference)


def _preference(snapshot: Snapshot) -> tuple[int, bool, int]:
    return snapshot.last, snapshot.record is not None, snapshot.name.start


def plan_chain(
    history: History,
    target: Target,
    *,
    timeline: int | None = None,
    exclude: Collection[str] = (),
) -> ChainPlan:
    """The objects to apply, in order, to get to the target.

    Looks on the timeline (the newest unless told), then on its ancestors up to the forks.  `exclude` are
    keys of objects that were found damaged: they are gone around where another full or an overlapping delta
    allows it.  They still count as something that was captured, so that `Latest` never quietly means less
    than it did.

    Raises NothingToRestoreError when no full lies at or below the target, ChainError when one does but a
    gap or the end of what was captured lies between; its hint says what can be restored instead.
    """
    failure: ChainError | NothingToRestoreError | None = None
    for stretch in history.lineage(timeline):
        here = history.on(stretch.timeline)
        if not here:
            continue  # opened, but nothing written yet: its state is its parent's, up to the fork
        search = _Search(target, stretch, here, [each for each in here if each.key not in exclude], history)
        try:
            if isinstance(target, AtTime):
                return search.to_moment(target.moment)
            return search.to_revision(target.revision if isinstance(target, AtRevision) else search.newest())
        except NothingToRestoreError as error:
            failure = failure or error
        except ChainError as error:
            failure = error if not isinstance(failure, ChainError) else failure
        if isinstance(target, Latest):
            break  # older than the newest timeline is not what was asked for
    if failure is None:
        raise nothing_here(history)
    raise failure


def nothing_here(history: History) -> NothingToRestoreError:
    """What there is to say of a prefix without a backup; whoever left out a part of it is told of some."""
    hint = "check the store's URL and prefix"
    if history.below:
        more = len(history.below) - _NAMED
        others = f", or {more} more (`rootcellar ls` names them)" if more > 0 else ""
        hint = f"backups lie further down; put behind the URL {' or '.join(history.below[:_NAMED])}{others}"
    return NothingToRestoreError("there is no backup here", hint=hint)


class _Search:
    """The search for a plan on one stretch of a lineage."""

    def __init__(
        self,
        target: Target,
        stretch: Stretch,
        everything: Sequence[Snapshot],
        usable: Sequence[Snapshot],
        history: History,
    ) -> None:
        self._target = target
        self._stretch = stretch
        self._everything = everything
        self._fulls = sorted(
            (each for each in usable if each.is_full), key=lambda each: (each.last, each.name.created)
        )
        self._deltas = _Deltas(usable)
        self._history = history

    def newest(self) -> int:
        """The newest revision that any object holds, whether it can be reached or not."""
        newest = max(each.last for each in self._everything)
        return newest if self._stretch.upto is None else min(newest, self._stretch.upto)

    def to_revision(self, revision: int) -> ChainPlan:
        fork = self._stretch.upto
        if fork is not None and revision > fork:
            raise ChainError(
                f"revision {revision} is above {fork}, where timeline {self._stretch.timeline} was left",
                hint=f"what was written there since can be restored with --timeline {self._stretch.timeline}",
            )
        below = [full for full in self._fulls if full.last <= revision]
        if not below:
            raise self._nothing(f"at or below revision {revision}")
        # The newest full needs the fewest deltas; an older one is taken when only it has a way.
        for full in reversed(below):
            if full.last == revision or self._deltas.reach(full.last) >= revision:
                break
        else:
            raise self._unreached(revision, max(self._deltas.reach(full.last) for full in below))
        steps: list[Step] = []
        for step in self._deltas.follow(full.last):
            if step.after >= revision:
                break
            steps.append(step._replace(upto=min(step.upto, revision)))
        return self._plan(full, steps, revision=revision)

    def to_moment(self, moment: int) -> ChainPlan:
        limit = self._stretch.upto
        below = [f for f in self._fulls if f.ended_at <= moment and (limit is None or f.last <= limit)]
        if not below:
            raise self._nothing("taken at or before that time")
        full = below[-1]
        position, decided = full.last, limit is not None and full.last >= limit
        steps: list[Step] = []
        for step in () if decided else self._deltas.follow(full.last):
            if _begins_after(step.snapshot, steps, moment):
                decided = True
                break
            steps.append(step if limit is None else step._replace(upto=min(step.upto, limit)))
            position = steps[-1].upto
            decided = position == limit or _surely_passes(step.snapshot, moment)
            if decided:
                break
        must_stop = not decided and self.newest() > position
        if must_stop and not (steps and steps[-1].snapshot.ended_at > moment):
            raise ChainError(
                f"what was written between revision {position} and that time is missing",
                hint=f"revision {position} can be restored: --to-revision {position}",
            )
        return self._plan(full, steps, moment=moment, must_stop=must_stop)

    def _plan(
        self,
        full: Snapshot,
        steps: Sequence[Step],
        *,
        revision: int | None = None,
        moment: int | None = None,
        must_stop: bool = False,
    ) -> ChainPlan:
        final = steps[-1].snapshot if steps else full
        before = steps[-2].snapshot if len(steps) > 1 else full
        since = final.begun_at or (before.ended_at if steps else full.ended_at)
        until = final.ended_at
        if moment is not None:
            known = max(each.ended_at for each in self._everything)
            beat = self._history.heartbeat
            if beat is not None and beat.timeline == self._stretch.timeline:
                known = max(known, int(beat.time.timestamp()) * SECOND)
            since, until = min(since, moment), min(moment, known)
        return ChainPlan(
            target=self._target,
            timeline=self._stretch.timeline,
            full=full,
            steps=tuple(steps),
            reach=steps[-1].upto if steps else full.last,
            revision=revision,
            moment=moment,
            must_stop=must_stop,
            covers=(since, max(since, until)),
        )

    def _nothing(self, where: str) -> NothingToRestoreError:
        first = self._fulls[0] if self._fulls else None
        return NothingToRestoreError(
            f"timeline {self._stretch.timeline} has no usable full {where}",
            hint="no full is left on it"
            if first is None
            else f"the first full there is at revision {first.last}",
        )

    def _unreached(self, revision: int, reach: int) -> ChainError:
        newest = self.newest()
        if revision > newest:
            message = f"revision {revision} was not captured: the newest on its timeline is {newest}"
        else:
            message = f"no chain reaches revision {revision}: the furthest ends at {reach}"
        return ChainError(message, hint=f"revision {reach} can be restored: --to-revision {reach}")


def _begins_after(snapshot: Snapshot, steps: Sequence[Step], moment: int) -> bool:
    """Whether nothing in this delta can have been received by the moment."""
    if snapshot.begun_at is not None:
        return snapshot.begun_at > moment
    return bool(steps) and steps[-1].snapshot.name.created * SECOND > moment + _SLACK


def _surely_passes(snapshot: Snapshot, moment: int) -> bool:
    """Whether this delta is known to end with an event received after the moment."""
    return (
        snapshot.record is not None
        and snapshot.record.last_received is not None
        and snapshot.ended_at > moment
    )


def chains(history: History, timeline: int) -> list[Chain]:
    """Every full of a timeline with the deltas that lead from it towards the next one."""
    here = history.on(timeline)
    fulls = sorted((each for each in here if each.is_full), key=lambda each: (each.last, each.name.created))
    deltas = _Deltas(here)
    found = []
    for index, full in enumerate(fulls):
        next_full = fulls[index + 1].last if index + 1 < len(fulls) else None
        taken, reach = [], full.last
        for step in deltas.follow(full.last):
            if next_full is not None and step.after >= next_full:
                break
            taken.append(step.snapshot)
            reach = step.upto
        found.append(Chain(full, tuple(taken), reach, _gap(deltas, reach, next_full)))
    return found


def _gap(deltas: _Deltas, reach: int, next_full: int | None) -> Gap | None:
    if next_full is not None and reach >= next_full:
        return None
    start = deltas.next_start(reach)
    ends = [start - 1] if start is not None else []
    if next_full is not None:
        ends.append(next_full - 1)
    # Directly below a full nothing is missing: its own revision is restorable.
    return Gap(reach + 1, min(ends)) if ends and min(ends) > reach else None


def leading(history: History, full: Snapshot, through: int) -> tuple[Snapshot, ...]:
    """The deltas that lead from a full to a revision, past other fulls too, as far as they go."""
    steps = []
    for step in _Deltas(history.on(full.timeline)).follow(full.last):
        if step.after >= through:
            break
        steps.append(step.snapshot)
    return tuple(steps)


def orphans(history: History, timeline: int) -> list[Snapshot]:
    """Deltas that no full leads to."""
    here = history.on(timeline)
    deltas = _Deltas(here)
    covered = [(full.last, deltas.reach(full.last)) for full in here if full.is_full]
    return [
        delta
        for delta in here
        if not delta.is_full and not any(first < delta.last <= last for first, last in covered)
    ]


def recovery_window(history: History, proofs: Sequence[Proof], timeline: int) -> RecoveryWindow:
    """What can be restored of a timeline, and the newest proof whose objects are all still there."""
    here = history.on(timeline)
    deltas = _Deltas(here)
    ranges: list[tuple[int, int]] = []
    for first in sorted(full.last for full in here if full.is_full):
        last = deltas.reach(first)
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    there = {snapshot.name.key: snapshot for snapshot in here}
    held = [proof for proof in proofs if _is_held(proof, there)]
    return RecoveryWindow(tuple(ranges), max(held, key=lambda p: (p.revision, p.finished_at), default=None))


def _is_held(proof: Proof, there: dict[str, Snapshot]) -> bool:
    if proof.failed is not None or not (proof.passed(Check.REPLAYED) or proof.passed(Check.BOOTED)):
        return False
    for link in proof.objects:
        snapshot = there.get(link.key)
        if snapshot is None:
            return False
        if snapshot.record is not None and snapshot.record.stored_sha256 != link.sha256:
            return False
    return bool(proof.objects)
