"""All that lies below a store's prefix, read once and understood.

One listing, then the documents it showed, several at a time.  A damaged document never hides a backup: it
is reported and the object stands as one without a record.  What is not ours and not EBR's is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.documents import Document
from rootcellar.backup.catalogue.history import History, Snapshot
from rootcellar.backup.catalogue.ownership import Claim, Epoch, ForkIntent, Heartbeat, Marker, Timeline
from rootcellar.backup.catalogue.records import Grant, Hold, Pin, Proof, Record, Release, Tombstone
from rootcellar.errors import NotFoundError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.stores.protocol import Store

D = TypeVar("D", bound=Document)

_READERS = 16
_LISTED_AGAIN = 5


class Damage(NamedTuple):
    """A document of the catalogue that cannot be believed, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class Catalogue(History):
    """A history, and all that was written about it.

    `strays` are keys that EBR takes for snapshots and nobody can restore: sidecars beside a snapshot's
    name, unknown suffixes.  `parts` are pieces of large objects.  `lost` are records whose object is gone
    without a tombstone.  `pruned` are names with a tombstone.  `holds` are those not released.  `proofs` are
    ascending by time.  `grants` are the keys that were added to encrypted snapshots later.  `claims` are
    those of slots in which something has no record, by their own keys.
    """

    marker: Marker | None = None
    epoch: Epoch | None = None
    intents: tuple[ForkIntent, ...] = ()
    proofs: tuple[Proof, ...] = ()
    holds: tuple[Hold, ...] = ()
    pins: tuple[Pin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    grants: tuple[Grant, ...] = ()
    claims: Mapping[str, Claim] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    lost: tuple[Record, ...] = ()
    damaged: tuple[Damage, ...] = ()

    @property
    def unrecorded(self) -> list[Snapshot]:
        """Snapshots that nothing is recorded of: written by EBR, or by a writer that died before the
        record.
        """
        return [snapshot for snapshot in self.snapshots if snapshot.record is None]

    @property
    def resized(self) -> list[Snapshot]:
        """Snapshots that are not as long as they were when they were written."""
        return [
            snapshot
            for snapshot in self.snapshots
            if snapshot.record is not None and snapshot.record.stored_size != snapshot.size
        ]

    def key_ids(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The keys that open an encrypted snapshot, as far as the catalogue says."""
        recorded = snapshot.record.keys if snapshot.record is not None else ()
        granted = (grant.key_id for grant in self.grants if grant.key == snapshot.name.key)
        return tuple(dict.fromkeys((*recorded, *granted)))

    def pending_intent(self, cluster_id: str) -> ForkIntent | None:
        """The newest fork that a restore announced for this cluster and no timeline has followed yet."""
        followed = {timeline.intent for timeline in self.timelines}
        pending = [
            intent
            for intent in self.intents
            if intent.cluster_id == cluster_id and intent.nonce not in followed
        ]
        return max(pending, key=lambda intent: intent.created_at, default=None)


@dataclass
class _Listing:
    """The keys below a prefix, sorted into piles."""

    snapshots: list[Snapshot] = field(default_factory=list)
    documents: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    strays: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    below: dict[str, None] = field(default_factory=dict)


def read_catalogue(store: Store) -> Catalogue:
    """Read everything.  Raises StoreErrors; never because of what the objects hold."""
    listing = _list(store)
    damaged = [Damage(key, "its suffix is not known: use a newer rootcellar") for key in listing.unknown]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="catalogue") as pool:

        def read(keys_: Sequence[str], kind: type[D]) -> dict[str, D]:
            found = {}
            for key, outcome in zip(
                keys_, pool.map(lambda key: _fetch(store, key, kind), keys_), strict=True
            ):
                if isinstance(outcome, RecordError):
                    damaged.append(Damage(key, outcome.message))
                elif outcome is not None:
                    found[key] = outcome
            return found

        def all_of(prefix: str, kind: type[D]) -> tuple[D, ...]:
            return tuple(read(listing.documents[prefix], kind).values())

        def last_of(prefix: str, kind: type[D]) -> D | None:
            for key in reversed(listing.documents[prefix]):
                if found := read([key], kind):
                    return found[key]
            return None

        records = _believable(read(listing.documents[keys.RECORDS], Record), damaged)
        tombstones = all_of(keys.TOMBSTONES, Tombstone)
        timelines = tuple(sorted(all_of(keys.TIMELINES, Timeline), key=lambda each: each.number))
        of_key = {record.key: record for record in records}
        unrecorded = [each.name for each in listing.snapshots if each.name.key not in of_key]
        claims = read(_claims_of(unrecorded, listing.documents[keys.CLAIMS]), Claim)
        released = {release.hold for release in all_of(keys.RELEASES, Release)}
        snapshots = _placed(listing.snapshots, of_key, timelines, claims.values())
        there = {snapshot.name.key for snapshot in snapshots}
        buried = {tombstone.key for tombstone in tombstones}
        return Catalogue(
            snapshots=tuple(sorted(snapshots, key=lambda each: (each.name.order, each.key))),
            timelines=timelines,
            below=tuple(listing.below),
            heartbeat=_beat(store, listing, lambda: last_of(keys.HEARTBEATS, Heartbeat)),
            marker=last_of(keys.MARKERS, Marker),
            epoch=last_of(keys.EPOCHS, Epoch),
            intents=all_of(keys.FORKS, ForkIntent),
            proofs=tuple(sorted(all_of(keys.PROOFS, Proof), key=lambda each: each.finished_at)),
            holds=tuple(hold for hold in all_of(keys.HOLDS, Hold) if hold.nonce not in released),
            pins=all_of(keys.PINS, Pin),
            tombstones=tombstones,
            grants=all_of(keys.GRANTS, Grant),
            claims=claims,
            strays=tuple(listing.strays),
            parts=tuple(listing.parts),
            lost=tuple(each for each in records if each.key not in there and each.key not in buried),
            damaged=tuple(damaged),
        )


def _beat(store: Store, listing: _Listing, read: Callable[[], Heartbeat | None]) -> Heartbeat | None:
    """The newest heartbeat.  An agent removes its last one behind each new one: what was listed may be gone
    by the time it is read, and another be there.
    """
    found = read()
    for _ in range(_LISTED_AGAIN):
        listed = listing.documents[keys.HEARTBEATS]
        if found is not None or not listed:
            break
        listing.documents[keys.HEARTBEATS] = [info.key for info in store.list(keys.HEARTBEATS)]
        if listing.documents[keys.HEARTBEATS] == listed:
            break
        found = read()
    return found


def _list(store: Store) -> _Listing:
    listing = _Listing()
    for info in store.list():
        if info.key.startswith(keys.CATALOGUE):
            segments = info.key.split("/", 2)
            listing.documents["/".join(segments[:2]) + "/"].append(info.key)
        elif (former := keys.parse_abandoned(info.key)) is not None:
            timeline, name = former
            listing.snapshots.append(Snapshot(name, info.key, info.size, timeline))
        elif (sealed := names.parse_sealed(info.key)) is not None:
            if sealed.suffix in names.SEALED_SUFFIXES:
                listing.snapshots.append(Snapshot(sealed, info.key, info.size))
            else:
                listing.unknown.append(info.key)
        elif (name_ := _own(info.key)) is not None:
            if name_.part:
                listing.parts.append(info.key)
            elif name_.extra or name_.suffix not in names.READABLE_SUFFIXES:
                listing.strays.append(info.key)
            else:
                listing.snapshots.append(Snapshot(name_, info.key, info.size))
        elif (prefix := names.further_down(info.key)) is not None:
            listing.below[prefix] = None
    return listing


def _own(key: str) -> SnapshotName | None:
    """Only what lies directly below this prefix: one further down belongs to another cluster's prefix."""
    name = names.parse(key)
    return name if name is not None and key.startswith(("v1/", "v2/")) else None


def _fetch(store: Store, key: str, kind: type[D]) -> D | RecordError | None:
    try:
        return documents.fetch(store, key, kind)
    except RecordError as error:
        return error
    except NotFoundError:
        return None  # pruned since it was listed


def _believable(records: dict[str, Record], damaged: list[Damage]) -> list[Record]:
    """The records that speak of a snapshot and lie where that snapshot's record lies."""
    good = []
    for key, record in records.items():
        try:
            place = keys.record(record.name)
        except RecordError as error:
            damaged.append(Damage(key, error.message))
            continue
        if place == key:
            good.append(record)
        else:
            damaged.append(Damage(key, f"it is the record of {record.key!r}"))
    return good


def _claims_of(wanted: Iterable[SnapshotName], there: Iterable[str]) -> list[str]:
    starts = {name.start for name in wanted}
    return [key for key in there if _slot(key) in starts]


def _slot(key: str) -> int | None:
    start = key.removeprefix(keys.CLAIMS).partition("_")[0]
    return int(start) if start.isdecimal() else None


def _placed(
    snapshots: Iterable[Snapshot],
    records: dict[str, Record],
    timelines: Sequence[Timeline],
    claims: Iterable[Claim],
) -> list[Snapshot]:
    """Give each snapshot its record and its timeline.

    The record knows the timeline, else the claim; else it is the newest that was open when the object was
    made, which is right for an object that EBR wrote before rootcellar came, and for most that a dying
    writer left.
    """
    claimed = {claim.key: claim.timeline for claim in sorted(claims, key=lambda claim: claim.epoch)}
    placed = []
    for snapshot in snapshots:
        record = records.get(snapshot.name.key)
        if record is not None:
            placed.append(replace(snapshot, record=record, timeline=record.timeline))
        elif snapshot.key != snapshot.name.key:
            placed.append(snapshot)  # abandoned: the key says the timeline
        elif snapshot.name.key in claimed:
            placed.append(replace(snapshot, timeline=claimed[snapshot.name.key]))
        else:
            until = snapshot.name.created + 1
            opened = [each.number for each in timelines if each.created_at.timestamp() < until]
            number = max(opened, default=timelines[0].number if timelines else 1)
            placed.append(replace(snapshot, timeline=number, assumed=len(timelines) > 1))
    return placed
