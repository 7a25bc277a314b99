"""What a copy takes from one store into another, and in which order.  Pure.

What goes over, in words:

* **Snapshots**, byte for byte, under their names; only `.final` is left out, as the reference does: it
  promised that
  nothing would follow in the source, and in the destination something will.
* Of the **catalogue** what speaks of these bytes or of their history: records, proofs, holds with their
  releases,
  keys granted to sealed objects, the markers, the timelines and the fork intents.
* Not what belongs to who writes at a prefix: epochs, claims, heartbeats, pins; and no tombstones, because
  each
  store prunes for itself.

Snapshots go in groups: a full and what follows it up to the next full, in EBR's order.  Groups may be
copied at the same time, a group's objects one after the other: whenever a copy is stopped, EBR finds in the
destination a last full and an unbroken row of deltas behind it.  Filters choose groups by their full;
`upto` ends with the objects that a restore to that revision needs, so the last delta may go beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import chains, orphans
from rootcellar.errors import IdentityError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.names import SnapshotName

_FINAL = ".final"


@dataclass(frozen=True, slots=True)
class CopyWish:
    """Which part of a store to copy; all of it by default.

    `max_backups` fulls, the newest, with their deltas; fulls not older than `max_age` (by the second in the
    name); the chain of the full `chain` (a key, or a name alone); what a restore to revision `upto` needs.
    `without` are keys of snapshots that are not brought where they are missing.
    """

    max_backups: int | None = None
    max_age: timedelta | None = None
    chain: str | None = None
    upto: int | None = None
    without: frozenset[str] = frozenset()

    @property
    def is_everything(self) -> bool:
        return replace(self, without=frozenset()) == CopyWish()


class Known(StrEnum):
    """What is known of an object in the destination before anything is read."""

    MISSING = "missing"
    SAME = "same"
    """The record there has the same hash, or neither side has a record and the sizes are equal."""
    UNSURE = "unsure"
    """It has the size, and only one side has a record: its bytes have to be read."""
    OTHER = "other"
    """Another object has the name."""


@dataclass(frozen=True, slots=True)
class Move:
    """One snapshot and where it goes; `key` differs from the source's by `.final` alone."""

    snapshot: Snapshot
    key: str
    known: Known

    @property
    def is_due(self) -> bool:
        return self.known is not Known.SAME


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """`groups` in the order in which they begin: newest first.  `orphans` are deltas that no full leads
    to.
    """

    groups: tuple[tuple[Move, ...], ...]
    orphans: tuple[str, ...]

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(move for group in self.groups for move in group)

    @property
    def size(self) -> int:
        """Bytes that have to be read."""
        return sum(move.snapshot.size for move in self.moves if move.is_due)


def plan_copy(source: Catalogue, destination: Catalogue, wish: CopyWish, now: datetime) -> CopyPlan:
    """What to copy.  Raises IdentityError (the destination is another cluster's, or went its own way),
    NotFoundError (there is no such chain).
    """
    _refuse_foreign(source, destination)
    there = {_place(each): each for each in destination.snapshots}
    chosen = [
        tuple(_move(snapshot, there) for snapshot in group) for group in reversed(_chosen(source, wish, now))
    ]
    if wish.is_everything:
        chosen += [tuple(_move(each, there) for each in group) for group in _abandoned(source)]
    alone = {each.key for each in _orphans(source)}
    wanted = (tuple(move for move in group if _is_wanted(move, wish)) for group in chosen)
    return CopyPlan(tuple(filter(None, wanted)), tuple(sorted(alone)))


def _is_wanted(move: Move, wish: CopyWish) -> bool:
    return move.known is not Known.MISSING or not wish.without & {move.snapshot.name.key, move.key}


def copied_name(name: SnapshotName) -> SnapshotName:
    """The name in the destination."""
    if not name.final:
        return name
    return replace(name, key=name.key.removesuffix(_FINAL), final=False)


def _place(snapshot: Snapshot) -> str:
    """The key in the destination.  Only visible fulls lose their `.final`: abandoned ones promise nothing."""
    return copied_name(snapshot.name).key if snapshot.key == snapshot.name.key else snapshot.key


def _move(snapshot: Snapshot, there: dict[str, Snapshot]) -> Move:
    key = _place(snapshot)
    found = there.get(key)
    return Move(snapshot, key if found is None else found.key, _known(snapshot, found))


def _known(snapshot: Snapshot, there: Snapshot | None) -> Known:
    if there is None:
        return Known.MISSING
    if there.size != snapshot.size:
        return Known.OTHER
    ours, theirs = snapshot.record, there.record
    if ours is not None and theirs is not None:
        return Known.SAME if ours.stored_sha256 == theirs.stored_sha256 else Known.OTHER
    return Known.SAME if ours is None and theirs is None else Known.UNSURE


def _refuse_foreign(source: Catalogue, destination: Catalogue) -> None:
    marker = destination.marker
    if marker is not None and (source.marker is None or not _continues(source, destination)):
        whose = f"cluster {source.marker.cluster_id}" if source.marker else "a cluster that nothing names"
        raise IdentityError(
            f"the destination holds backups of cluster {marker.cluster_id}, the source those of {whose}",
            hint="copy into a prefix of its own",
        )
    if marker is None and source.marker is not None:
        known = {copied_name(each.name).key for each in source.snapshots}
        foreign = [each.key for each in destination.snapshots if copied_name(each.name).key not in known]
        if foreign:
            raise IdentityError(
                f"the destination holds {foreign[0]}, which the source has not, and nothing says whose it is",
                hint="copy into a prefix of its own",
            )
    ours = {each.number: each for each in source.timelines}
    for timeline in destination.timelines:
        if timeline.number in ours and ours[timeline.number] != timeline:
            raise IdentityError(
                f"timeline {timeline.number} of the destination is another than that of the source",
                hint="somebody captures into the destination: copy into a prefix of its own",
            )


def _continues(source: Catalogue, destination: Catalogue) -> bool:
    """Whether the destination is bound to the source's cluster, or to what that was before a fork."""
    assert source.marker is not None  # noqa: S101  the caller has looked
    assert destination.marker is not None  # noqa: S101
    bound = destination.marker.cluster_id
    return bound == source.marker.cluster_id or (
        bound in {each.cluster_id for each in source.timelines}
        and destination.marker.number < source.marker.number
    )


def _chosen(source: Catalogue, wish: CopyWish, now: datetime) -> list[list[Snapshot]]:
    """The groups that the filters leave, oldest first."""
    if wish.chain is not None:
        groups = [_chain(source, wish.chain)]
    else:
        groups = _groups(each for each in source.snapshots if each.key == each.name.key)
    if wish.max_age is not None:
        oldest = (now - wish.max_age).timestamp()
        groups = [group for group in groups if group[0].name.created > oldest]
    if wish.max_backups is not None:
        groups = groups[max(0, len(groups) - wish.max_backups) :]
    if wish.upto is not None:
        groups = [[each for each in group if _leads_to(each, wish.upto)] for group in groups]
    return [group for group in groups if group]


def _groups(snapshots: Iterable[Snapshot]) -> list[list[Snapshot]]:
    """In EBR's order: each full with the deltas up to the next; deltas before the first full are left out."""
    groups: list[list[Snapshot]] = []
    for snapshot in snapshots:
        if snapshot.is_full:
            groups.append([snapshot])
        elif groups:
            groups[-1].append(snapshot)
    return groups


def _chain(source: Catalogue, named: str) -> list[Snapshot]:
    """The group of one chain: what leads from its full to the next, and what spans that."""
    fulls = [each for each in source.snapshots if each.is_full]
    full = next((each for each in fulls if named in (each.key, each.name.key, each.name.name)), None)
    if full is None:
        raise NotFoundError(f"the source has no full {named}", hint="`rootcellar ls` lists them")
    found = next(each for each in chains(source, full.timeline) if each.full.key == full.key)
    return [full, *found.deltas]


def _leads_to(snapshot: Snapshot, revision: int) -> bool:
    return snapshot.name.last <= revision if snapshot.is_full else snapshot.name.start <= revision


def _abandoned(source: Catalogue) -> list[list[Snapshot]]:
    """What was moved out of EBR's sight, a group for each timeline: EBR does not care for its order."""
    found: dict[int, list[Snapshot]] = {}
    for snapshot in source.snapshots:
        if snapshot.key != snapshot.name.key:
            found.setdefault(snapshot.timeline, []).append(snapshot)
    return list(found.values())


def _orphans(source: Catalogue) -> Sequence[Snapshot]:
    first = next(
        (index for index, each in enumerate(source.snapshots) if each.is_full), len(source.snapshots)
    )
    before = {each.key for each in source.snapshots[:first]}
    timelines = {each.timeline for each in source.snapshots}
    return [each for number in timelines for each in orphans(source, number) if each.key in before]
