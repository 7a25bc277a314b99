"""What a capture comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.history import Snapshot

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.ownership import Timeline
    from rootcellar.backup.catalogue.records import Record
    from rootcellar.backup.catalogue.timeline import Abandonment


@dataclass(frozen=True, slots=True)
class Captured:
    """One snapshot object with its record, both in the store; `seconds` is how long it took.

    `etag` is what S3 would call the bytes that were sent (`capture.etag`).  `held` is the newest revision
    that the store held without a gap before a delta, 0 for a full.
    """

    record: Record
    seconds: float
    etag: str = ""
    held: int = 0

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def snapshot(self) -> Snapshot:
        """As the catalogue will show it."""
        record = self.record
        return Snapshot(record.name, record.key, record.stored_size, record.timeline, record)


class Need(StrEnum):
    """Why deltas cannot go on from what the store holds."""

    FIRST = "first"
    """There is no full yet."""
    FINAL = "final"
    """The last full is final: its writer promised that nothing would follow."""
    GAP = "gap"
    """Revisions are missing in the store, or etcd's history has a hole."""
    COMPACTED = "compacted"
    """etcd has compacted away what comes next."""
    UNKNOWN = "unknown"
    """Nothing tells whether etcd's history still is the one in the store."""
    AUTH = "auth"
    """Users, roles or permissions changed: only fulls hold them."""
    LAYOUT = "layout"
    """The last full is one that EBR sees, and deltas are to be sealed, or the other way round."""
    EBR = "ebr"
    """A revision is too large for etcdbrctl to replay."""
    DAMAGED = "damaged"
    """An object of the newest chain is not what was sent, or is gone."""


@dataclass(frozen=True, slots=True)
class NeedFull:
    """A full is needed before deltas go on; `reason` is a sentence for a person."""

    need: Need
    reason: str


@dataclass(frozen=True, slots=True)
class Deltas:
    """The deltas written, in order, and the full that they leave to be wanted, if any.

    `revision` is the newest that the store then holds of this timeline without a gap.
    """

    written: tuple[Captured, ...]
    revision: int
    need: NeedFull | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """All that one capture did.

    `why_full` says why a full was taken where deltas were asked for.  `timeline` is the one it opened, and
    `abandoned` what was then moved out of EBR's sight.
    """

    deltas: tuple[Captured, ...]
    full: Captured | None
    why_full: NeedFull | None = None
    timeline: Timeline | None = None
    abandoned: Abandonment | None = None
