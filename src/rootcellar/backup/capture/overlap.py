"""What two writers published over each other, and which of it can go.  Pure.

A writer that was paused or slow may publish behind the back of the one that took over.  Readers trim what
overlaps; EBR, which knows names only, stops at a delta that repeats what came before.  So it has to go, but
never what another chain leads through: whoever opened the prefix after an object came there goes on from it.

One rule keeps every chain whole, however late somebody acts on it: an object may be removed once recorded
deltas of *higher* epochs hold all of its revisions.  Those can only be removed for still higher ones.  Of a
full that means a successor that began before it; and another full has to lead to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import recovery_window

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.history import History, Snapshot


def is_superfluous(history: History, snapshot: Snapshot) -> bool:
    """Whether nobody's chain needs this one.

    True, too, of what lies on a timeline that was left, above where it was left.
    """
    if snapshot.timeline != history.newest_timeline:
        shared = {stretch.timeline: stretch.upto or 0 for stretch in history.lineage()}
        return snapshot.last > shared.get(snapshot.timeline, 0)
    first = snapshot.name.last if snapshot.is_full else snapshot.name.start
    if not _is_covered(history, snapshot, first):
        return False
    if not snapshot.is_full:
        return True
    others = replace(history, snapshots=tuple(s for s in history.snapshots if s.key != snapshot.key))
    ranges = recovery_window(others, (), snapshot.timeline).ranges
    return any(start <= first and snapshot.last <= last for start, last in ranges)


def superfluous_deltas(history: History) -> list[Snapshot]:
    """Deltas of the living timeline that EBR sees and nobody's chain needs."""
    here = history.on(history.newest_timeline)
    newest_full = max((each.name.last for each in here if each.is_full), default=0)
    return [
        each
        for each in here
        if not each.is_full
        and each.key == each.name.key
        and not each.name.is_sealed
        and each.name.last > newest_full
        and is_superfluous(history, each)
    ]


def _is_covered(history: History, snapshot: Snapshot, first: int) -> bool:
    """Whether recorded deltas of higher epochs hold revisions `first` to the snapshot's last."""
    epoch = snapshot.record.epoch if snapshot.record is not None else 0
    spans = sorted(
        (each.name.start, each.last)
        for each in history.on(snapshot.timeline)
        if not each.is_full and each.record is not None and each.record.epoch > epoch
    )
    position = first - 1
    for start, last in spans:
        if start <= position + 1:
            position = max(position, last)
    return position >= snapshot.last
