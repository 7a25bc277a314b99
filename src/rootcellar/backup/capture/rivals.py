"""What may still come from the writers before us: what they claimed and nothing is recorded of.  Pure.

A request that was under way when its writer was superseded, paused or killed can come to the store at any
later time.  But it was claimed before, and whoever claims reads the epoch again before it publishes; so
whoever has claimed an epoch, and then reads all claims, knows every object that can come (`catalogue.fence`).

A full that comes late need not go, and nobody asks whose chain begins with it: EBR can begin with it, too, as
long as no delta ends inside it.  A delta that comes late is in EBR's way once others hold the same, and goes
then.  Of a timeline that was left both are in the way at once, and are moved aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.catalogue import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rootcellar.backup.catalogue.history import History
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.catalogue.ownership import Claim


class Rival(NamedTuple):
    """An object that EBR would see.  `is_dead`: of a timeline that was left, above where it was left."""

    name: SnapshotName
    is_dead: bool


def forbidden(history: History, claims: Sequence[Claim]) -> list[range]:
    """In which no delta may end: inside a full of the living timeline that is there, or may come."""
    timeline = history.newest_timeline
    found = [range(each.name.last, each.last) for each in history.on(timeline) if each.is_full]
    for claim, name in _named(claims):
        if claim.timeline == timeline and claim.reached is not None:
            found.append(range(name.last, claim.reached))
    return [each for each in found if each]


def rivals(history: History, claims: Sequence[Claim]) -> dict[str, Rival]:
    """By key what is claimed, is not there, and would be in EBR's way."""
    timeline = history.newest_timeline
    shared = {stretch.timeline: stretch.upto or 0 for stretch in history.lineage()}
    here = history.on(timeline)
    newest_full = max((each.name.last for each in here if each.is_full), default=0)
    there = {each.key for each in history.snapshots}
    found = {}
    for claim, name in _named(claims):
        if name.key in there or name.is_sealed:
            continue
        if claim.timeline != timeline and name.last > shared.get(claim.timeline, 0):
            found[name.key] = Rival(name, is_dead=True)
        elif claim.timeline == timeline and name.kind is names.Kind.DELTA and name.last > newest_full:
            found[name.key] = Rival(name, is_dead=False)
    return found


def _named(claims: Sequence[Claim]) -> Iterator[tuple[Claim, SnapshotName]]:
    for claim in claims:
        if (name := names.read(claim.key)) is not None:
            yield claim, name
