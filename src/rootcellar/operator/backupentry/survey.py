"""What lies below an entry's prefix, in one listing, and what that says of its backups.

Names tell when a snapshot was taken, and the keys of heartbeats when an agent of ours lived; only of proofs a
few are read.  The whole catalogue is not: `rootcellar status` does that for one prefix, this is for all
entries of a landscape.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.records import Check, Proof
from rootcellar.errors import NotFoundError, RecordError
from rootcellar.operator.shared.gardener import ConditionStatus
from rootcellar.operator.shared.status import Finding

if TYPE_CHECKING:
    from rootcellar.stores.protocol import Store

FRESH, PROVEN = "SnapshotsFresh", "Proven"
CONDITIONS: Final = (FRESH, PROVEN)

_BEATS_WITHIN = timedelta(minutes=30)
_SNAPSHOTS_WITHIN = timedelta(hours=26)
"""Who leaves no heartbeat (etcd-backup-restore) takes a full a day, and no delta while nothing changes."""
_PROOFS_WITHIN = timedelta(days=7)
_READ_LATE, _READ_FRESH = 10, 3
"""Proofs that are read of those that came long after their snapshot, and of those that came with it."""
_CAME_WITH_IT = timedelta(minutes=2)
_CLOCKS_DIFFER = timedelta(minutes=5)
"""A writer's from ours.  What names a later time says nothing: else it would look fresh until that comes."""
_CREATED = re.compile(r"(?:full|delta)_\d+_\d+_(\d{1,11})(?!\d)", re.ASCII)
_IN_STORE = re.compile(r"(?:.*?/)??((?:v1|v2|sealed|catalogue)/.+)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Survey:
    """`size` is in bytes.  `newest` is when the newest snapshot was begun, `beat` when an agent last said
    that it lives.  `proofs` are the newest that were read, the newest first, as far as one that decides.
    """

    objects: int = 0
    size: int = 0
    newest: datetime | None = None
    beat: datetime | None = None
    proofs: tuple[Proof, ...] = ()


def survey(store: Store, below: str = "", *, now: datetime) -> Survey:
    """Look at everything in the store whose key begins with `below`.  Raises StoreErrors."""
    until = (now + _CLOCKS_DIFFER).timestamp()
    objects = size = 0
    newest: datetime | None = None
    beat: datetime | None = None
    proofs: list[tuple[datetime, str]] = []
    for info in store.list(below):
        objects, size = objects + 1, size + info.size
        found = _IN_STORE.match(info.key.removeprefix(below))
        if found is None:
            continue
        key = found[1]
        if key.startswith(keys.HEARTBEATS):
            beat = _later(beat, _moment(key, until))
        elif key.startswith(keys.PROOFS):
            if (when := _moment(key, until)) is not None:
                proofs.append((when, info.key))
        elif (name := names.read(key)) is not None and name.is_snapshot and name.created <= until:
            newest = _later(newest, name.created_at)
    return Survey(objects, size, newest, beat, _deciding(store, proofs))


def _deciding(store: Store, proofs: list[tuple[datetime, str]]) -> tuple[Proof, ...]:
    """From the newest on until one decides.  Each upload leaves a proof in passing, which is of no restore:
    those are known by their time, so that hundreds of them hide no other.
    """
    late = heapq.nlargest(_READ_LATE, (each for each in proofs if _is_late(*each)))
    fresh = heapq.nlargest(_READ_FRESH, (each for each in proofs if not _is_late(*each)))
    read = []
    for _, key in sorted([*late, *fresh], reverse=True):
        try:
            read.append(documents.fetch(store, key, Proof))
        except (RecordError, NotFoundError):
            continue
        if _decides(read[-1]):
            break
    return tuple(read)


def _is_late(when: datetime, key: str) -> bool:
    found = _CREATED.search(key)
    return found is None or when - datetime.fromtimestamp(int(found[1]), UTC) > _CAME_WITH_IT


def _decides(proof: Proof) -> bool:
    return proof.failed is not None or proof.passed(Check.REPLAYED) or proof.passed(Check.BOOTED)


def findings(seen: Survey, now: datetime) -> list[Finding]:
    """The conditions.  Their reasons have no figures in them: they are written when they flip."""
    return [_fresh(seen, now), _proven(seen, now)]


def _fresh(seen: Survey, now: datetime) -> Finding:
    if seen.newest is None:
        return Finding(FRESH, ConditionStatus.UNKNOWN, "NoSnapshots", "No snapshot lies below the prefix.")
    taken = f"The newest snapshot is of {seen.newest:%Y-%m-%dT%H:%M:%SZ}"
    if seen.beat is not None:
        text = f"{taken}, the agent's last sign of life of {seen.beat:%Y-%m-%dT%H:%M:%SZ}."
        if now - max(seen.beat, seen.newest) <= _BEATS_WITHIN:
            return Finding(FRESH, ConditionStatus.TRUE, "AgentAlive", text)
        return Finding(FRESH, ConditionStatus.FALSE, "AgentSilent", text)
    if now - seen.newest <= _SNAPSHOTS_WITHIN:
        return Finding(FRESH, ConditionStatus.TRUE, "Taken", f"{taken}.")
    return Finding(FRESH, ConditionStatus.FALSE, "SnapshotsOld", f"{taken}.")


def _proven(seen: Survey, now: datetime) -> Finding:
    """Green is what was restored, or booted, within a week, and has not failed since."""
    for proof in seen.proofs:
        when = f"{proof.finished_at:%Y-%m-%dT%H:%M:%SZ}"
        if (failed := proof.failed) is not None:
            text = f"The check {failed.check} failed at {when}."
            return Finding(PROVEN, ConditionStatus.FALSE, "ProofFailed", text)
        if proof.passed(Check.REPLAYED) or proof.passed(Check.BOOTED):
            text = f"Revision {proof.revision} was restored at {when}."
            if now - proof.finished_at <= _PROOFS_WITHIN:
                return Finding(PROVEN, ConditionStatus.TRUE, "Restored", text)
            return Finding(PROVEN, ConditionStatus.FALSE, "ProofOld", text)
    return Finding(PROVEN, ConditionStatus.UNKNOWN, "NeverProven", "No restore of these backups was tried.")


def _moment(key: str, until: float) -> datetime | None:
    """Of a heartbeat or a proof: milliseconds since 1970 lead its name."""
    text = key.rpartition("/")[2].partition("_")[0]
    if not text.isascii() or not text.isdigit() or len(text) > 13:
        return None
    seconds = int(text) / 1000
    return datetime.fromtimestamp(seconds, UTC) if seconds <= until else None


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((each for each in (one, other) if each is not None), default=None)
