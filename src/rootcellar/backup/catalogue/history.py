"""The snapshots of a prefix and the timelines they belong to, as plain values.

A restore forks history: from the fork on, the same revision numbers can mean different things.  A timeline
is one unforked history; it shares with its parent everything up to the fork.  Within one timeline two
objects never contradict each other, whoever wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from rootcellar.backup.catalogue.names import LATEST_SECOND, Kind
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.catalogue.ownership import Heartbeat, Timeline
    from rootcellar.backup.catalogue.records import Record

SECOND = 10**9
"""Moments are unix nanoseconds here: names have seconds, records microseconds, events nanoseconds."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot object.

    `key` is where it lies now, `name` what it was written as; they differ once it was abandoned.  `size` is
    in stored bytes.  `learned` is the real last revision of a full without a record, found by reading it.
    `assumed`: the timeline was inferred from time, because neither a record nor a claim tells it.
    """

    name: SnapshotName
    key: str
    size: int
    timeline: int = 1
    record: Record | None = None
    learned: int | None = None
    assumed: bool = False

    @property
    def is_full(self) -> bool:
        return self.name.kind is Kind.FULL

    @property
    def last(self) -> int:
        """The last revision in it, as far as known: that of a full can be higher than its name says."""
        known = self.name.last if self.record is None else self.record.last_revision
        return known if self.learned is None else max(known, self.learned)

    @property
    def is_sure(self) -> bool:
        """Whether `last` is the real one."""
        return not self.is_full or self.record is not None or self.learned is not None

    @property
    def begun_at(self) -> int | None:
        """Nothing in this delta was received before this moment, if recorded."""
        return None if self.record is None else nanoseconds(self.record.first_received)

    @property
    def ended_at(self) -> int:
        """Everything in it had been received by this moment.  A name floors its second."""
        recorded = None
        if self.record is not None:
            recorded = nanoseconds(self.record.captured_at if self.is_full else self.record.last_received)
        return (min(self.name.created, LATEST_SECOND) + 1) * SECOND if recorded is None else recorded


class Stretch(NamedTuple):
    """Part of a lineage: a timeline up to a revision (None: to its end)."""

    timeline: int
    upto: int | None


@dataclass(frozen=True)
class History:
    """All snapshots, in EBR's order, and all timelines, by number.  `below` are prefixes further down that
    have snapshots of their own, which are none of this history's.
    """

    snapshots: tuple[Snapshot, ...]
    timelines: tuple[Timeline, ...] = ()
    heartbeat: Heartbeat | None = None
    below: tuple[str, ...] = ()

    @property
    def newest_timeline(self) -> int:
        """The one readers take unless told otherwise."""
        numbers = [timeline.number for timeline in self.timelines]
        return max(numbers + [snapshot.timeline for snapshot in self.snapshots], default=1)

    def on(self, timeline: int) -> list[Snapshot]:
        """The snapshots written on a timeline."""
        return [snapshot for snapshot in self.snapshots if snapshot.timeline == timeline]

    def lineage(self, timeline: int | None = None) -> list[Stretch]:
        """The timeline, its parent up to the fork, and so on.  Raises UsageError for one that is not
        there.
        """
        number = self.newest_timeline if timeline is None else timeline
        known = {each.number: each for each in self.timelines}
        if number not in known and not any(snapshot.timeline == number for snapshot in self.snapshots):
            if timeline is None:
                return [Stretch(number, None)]
            there = sorted(known.keys() | {snapshot.timeline for snapshot in self.snapshots})
            raise UsageError(
                f"there is no timeline {number}",
                hint=f"these exist: {', '.join(map(str, there))}" if there else "the prefix holds no backups",
            )
        stretches = [Stretch(number, None)]
        upto: int | None = None
        while (here := known.get(number)) is not None and here.parent is not None and here.parent < number:
            upto = here.forked_at if upto is None else min(upto, here.forked_at)
            number = here.parent
            stretches.append(Stretch(number, upto))
        return stretches

    def learned(self, key: str, last: int) -> Self:
        """The same history, knowing the real last revision of a full."""
        return replace(
            self,
            snapshots=tuple(
                replace(snapshot, learned=last) if snapshot.key == key else snapshot
                for snapshot in self.snapshots
            ),
        )

    def without(self, keys: Collection[str]) -> Self:
        """The same history as if these objects were not there."""
        return replace(
            self, snapshots=tuple(snapshot for snapshot in self.snapshots if snapshot.key not in keys)
        )


def nanoseconds(moment: datetime | None) -> int | None:
    """Unix nanoseconds of an aware datetime, exactly."""
    if moment is None:
        return None
    return int(moment.replace(microsecond=0).timestamp()) * SECOND + moment.microsecond * 1000
