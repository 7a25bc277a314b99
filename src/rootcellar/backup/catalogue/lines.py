"""The histories of a prefix as retention sees them: one that lives, and what each fork left dead.

The living line is what the newest timeline shares: its own chains, and those of its ancestors up to the
forks. What an ancestor, or a branch, holds beyond is a dead line, by timeline.  A chain at a fork belongs to
both: its full and first deltas live, and its last deltas are reached through them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import chains
from rootcellar.backup.catalogue.history import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.backup.catalogue.chain import Chain
    from rootcellar.backup.catalogue.history import History, Snapshot


@dataclass(frozen=True, slots=True)
class Stand:
    """A chain in its line.

    `deltas` are those that this line needs, none of which begins above `upto` (None: there is no fork).
    `until`: the last moment (unix nanoseconds) whose state only this chain has, None where nothing follows.
    """

    chain: Chain
    deltas: tuple[Snapshot, ...]
    upto: int | None
    until: int | None

    @property
    def full(self) -> Snapshot:
        return self.chain.full


@dataclass(frozen=True, slots=True)
class Line:
    """Chains of one history, oldest first.

    `died`: unix nanoseconds, None for the living one.  `cut`: up to where a dead one lives in another line.
    """

    timeline: int
    stands: tuple[Stand, ...]
    died: int | None = None
    cut: int = -1


def living_line(history: History) -> Line:
    """What the newest timeline shares, across all its ancestors."""
    found = [
        (chain, stretch.upto)
        for stretch in reversed(history.lineage())
        for chain in chains(history, stretch.timeline)
        if stretch.upto is None or chain.full.last <= stretch.upto
    ]
    return Line(history.newest_timeline, _stands(found, None))


def dead_lines(history: History) -> list[Line]:
    """What no fork shares with the newest timeline, by timeline."""
    lines = []
    for timeline in sorted({each.timeline for each in history.snapshots}):
        cut = _cut(history, history.newest_timeline, timeline)
        if cut is None:
            continue
        found = [
            (chain, None)
            for chain in chains(history, timeline)
            if chain.full.last > cut or any(each.last > cut for each in chain.deltas)
        ]
        if found:
            died = _died(history, timeline, cut)
            lines.append(Line(timeline, _stands(found, died), died, cut))
    return lines


def _stands(found: Sequence[tuple[Chain, int | None]], end: int | None) -> tuple[Stand, ...]:
    ends = [chain.full.ended_at for chain, _ in found[1:]]
    return tuple(
        Stand(chain, tuple(d for d in chain.deltas if upto is None or d.name.start <= upto), upto, until)
        for (chain, upto), until in zip(found, [*ends, end], strict=False)
    )


def _cut(history: History, newest: int, timeline: int) -> int | None:
    """The last revision of a timeline that another one shares, 0 for nothing, None for all of it."""
    for stretch in history.lineage(newest):
        if stretch.timeline == timeline:
            return stretch.upto
    return 0


def _died(history: History, timeline: int, cut: int) -> int:
    """When the fork came that nobody has undone since; without its document, when its last backup came."""
    died = max(each.ended_at for each in history.snapshots if each.timeline == timeline)
    for later in sorted(history.timelines, key=lambda each: each.number, reverse=True):
        if later.number <= timeline or _cut(history, later.number, timeline) != cut:
            break
        died = nanoseconds(later.created_at) or died
    return died
