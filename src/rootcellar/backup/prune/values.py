"""What the planning of a prune is made of: rules and ground go in, decisions come out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.records import Hold
    from rootcellar.backup.prune.retention import Policy
    from rootcellar.stores.protocol import ObjectInfo


@dataclass(frozen=True, slots=True)
class Rules:
    """What one store is to keep.

    `minimum`: so many of the newest provable chains stay whatever the policy says.  `deltas`: how long any
    second can be restored; None: as long as the policy keeps the full.  `abandoned`: how long a dead timeline
    is kept after its fork.  `grace`: how old orphans, strays and other leftovers get, and tombstones.
    """

    policy: Policy
    minimum: int = 1
    deltas: timedelta | None = None
    abandoned: timedelta = timedelta(days=30)
    grace: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise UsageError(f"a minimum of {self.minimum} chains", hint="at least one chain is always kept")


@dataclass(frozen=True, slots=True)
class Ground:
    """What lies below a prefix: what is known of it, and the listing with the store's own times.

    The listing was made first: what came since has no age, and is left alone.  `released` are holds no longer
    in force whose documents are still there.
    """

    catalogue: Catalogue
    listing: tuple[ObjectInfo, ...]
    released: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Live:
    """What the etcd that is backed up says of itself: its cluster id, and whether it has a CORRUPT alarm."""

    cluster_id: str
    corrupt: bool


class What(StrEnum):
    """What a decision is about."""

    FULL = "full"
    DELTA = "delta"
    ORPHAN = "orphan"
    PART = "part"
    STRAY = "stray"
    LOST = "lost record"
    RECORD = "record"
    PROOF = "proof"
    GRANT = "grant"
    HOLD = "hold"
    RELEASE = "release"
    PIN = "pin"
    EPOCH = "epoch"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    TOMBSTONE = "tombstone"


class Decision(NamedTuple):
    """One object, and what becomes of it.  `size` is in stored bytes.

    For a snapshot `dependents` are the objects that only describe it, or are pieces of it, and go right
    behind it; `base` is the name of the full that a delta builds on.
    """

    key: str
    what: What
    keep: bool
    reason: str
    size: int = 0
    snapshot: Snapshot | None = None
    dependents: tuple[str, ...] = ()
    base: str = ""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Decisions in the order in which they are carried out, those that keep something among them.

    `snapshots`: deltas first and fulls last, each newest to oldest.  `leftovers`: what is no snapshot.
    """

    snapshots: tuple[Decision, ...]
    leftovers: tuple[Decision, ...] = ()

    @property
    def doomed(self) -> list[Decision]:
        """The snapshots that go, in order."""
        return [each for each in self.snapshots if not each.keep]

    @property
    def swept(self) -> list[Decision]:
        """The leftovers that go, in order."""
        return [each for each in self.leftovers if not each.keep]

    @property
    def is_empty(self) -> bool:
        return not self.doomed and not self.swept


def told(span: timedelta) -> str:
    """`7 days`, `36 h`, `90 s`."""
    seconds = int(span.total_seconds())
    if seconds and seconds % 86400 == 0:
        return f"{seconds // 86400} days" if seconds > 86400 else "1 day"
    return f"{seconds // 3600} h" if seconds and seconds % 3600 == 0 else f"{seconds} s"
