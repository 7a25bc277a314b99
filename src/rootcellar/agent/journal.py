"""What the agent has seen and done, for `status` and the metrics.  In the event loop's thread only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import recovery_window
from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.catalogue.records import Check, Result

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rootcellar.backup.capture.outcome import Captured
    from rootcellar.backup.capture.session import RecoveryPoint, Session
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.records import Proof
    from rootcellar.etcd.answers import Status

STRONG = (Check.REPLAYED, Check.BOOTED)
"""Only these turn a backup green."""


@dataclass
class Kind:
    """Fulls, or deltas.  Moments in unix seconds, durations in seconds."""

    revision: int = 0
    captured_at: float = 0.0
    count: int = 0
    failures: int = 0
    payload: int = 0
    stored: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0


@dataclass
class ProofSeen:
    """The newest proof that passed, by its strongest check."""

    check: str
    revision: int
    at: datetime


@dataclass
class Renewals:
    """Of one Kubernetes lease.  `last_at` in unix seconds, 0.0 for never; failures by the error's code."""

    count: int = 0
    last_at: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)


@dataclass
class Journal:
    """All of it.  `point` is None before the first recovery point of this stay."""

    full: Kind = field(default_factory=Kind)
    delta: Kind = field(default_factory=Kind)
    point: RecoveryPoint | None = None
    first: int | None = None
    epoch: int = 0
    timeline: int = 0
    cluster_id: str = ""
    status: Status | None = None
    cluster_size: int = 0
    proof: ProofSeen | None = None
    is_proof_failed: bool | None = None
    failures: Counter[str] = field(default_factory=Counter)
    deltas_since_full: int = 0
    revisions_since_full: int = 0
    why_full: str = ""
    why_anew: str | None = None
    """Why the open session began with a full; None where it continued what was there."""
    clock_jumps: int = 0
    leases: dict[str, Renewals] = field(default_factory=dict)

    def opened(self, session: Session, catalogue: Catalogue) -> None:
        """A session began; the catalogue says what there is."""
        timeline = session.timeline_number
        self.epoch, self.timeline = session.epoch.number, timeline
        self.why_anew = session.need.reason if session.need is not None else None
        self.cluster_id = catalogue.marker.cluster_id if catalogue.marker else self.cluster_id
        window = recovery_window(catalogue, catalogue.proofs, timeline)
        self.first = window.first
        if window.proof is not None:
            self.proven(window.proof)
        here = catalogue.on(timeline)
        there = {each.name.key for each in here}
        proofs = [each for each in catalogue.proofs if any(link.key in there for link in each.objects)]
        if proofs:
            self.is_proof_failed = _is_failed(max(proofs, key=lambda each: (each.revision, each.finished_at)))
        for kind, is_full in ((self.full, True), (self.delta, False)):
            newest = max((each for each in here if each.is_full is is_full), key=_order, default=None)
            kind.revision = newest.last if newest is not None else 0
            kind.captured_at = newest.ended_at / SECOND if newest is not None else 0.0
        after = [each for each in here if not each.is_full and each.last > self.full.revision]
        self.deltas_since_full = len(after)
        self.revisions_since_full = sum(each.last - each.name.start + 1 for each in after)

    def captured(self, captured: Captured) -> None:
        """An object is in the store."""
        record = captured.record
        is_full = captured.snapshot.is_full
        kind = self.full if is_full else self.delta
        kind.revision, kind.captured_at = record.last_revision, record.captured_at.timestamp()
        kind.count += 1
        kind.payload += record.payload_size
        kind.stored += record.stored_size
        kind.seconds += captured.seconds
        kind.last_seconds = captured.seconds
        if is_full:
            self.deltas_since_full = self.revisions_since_full = 0
            self.first = record.last_revision if self.first is None else self.first
        else:
            self.deltas_since_full += 1
            self.revisions_since_full += record.last_revision - record.start + 1

    def all_captured(self, written: Iterable[Captured]) -> None:
        for each in written:
            self.captured(each)

    def proven(self, proof: Proof) -> None:
        """A proof was filed."""
        passed = [each.check for each in proof.findings if each.result is Result.PASSED]
        self.is_proof_failed = _is_failed(proof)
        if passed and not self.is_proof_failed and (self.proof is None or proof.finished_at > self.proof.at):
            strongest = max(passed, key=list(Check).index)
            self.proof = ProofSeen(strongest.value, proof.revision, proof.finished_at)


def _is_failed(proof: Proof) -> bool:
    return any(each.result is Result.FAILED for each in proof.findings)


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.last, snapshot.name.created
