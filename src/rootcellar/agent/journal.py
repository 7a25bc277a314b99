"""What the agent has seen and done, for `status` and the metrics.  In the event loop's thread only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import recovery_window
from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.catalogue.records import Check, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from rootcellar.backup.capture.outcome import Captured
    from rootcellar.backup.capture.session import RecoveryPoint, Session
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.records import Proof
    from rootcellar.etcd.answers import Status


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


@dataclass(frozen=True)
class ProofSeen:
    """A proof in which this check passed."""

    check: str
    revision: int
    at: datetime


@dataclass(frozen=True)
class Damage:
    """What is wrong with an object of the newest chain; a full that reaches `revision` makes good for it."""

    detail: str
    revision: int


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
    """The newest in which nothing failed, by its strongest check."""
    proofs: dict[Check, ProofSeen] = field(default_factory=dict)
    """By each check the newest in which it passed."""
    failing: dict[Check, str] = field(default_factory=dict)
    """What the newest proof that tried a check found wrong."""
    uploads: Counter[str] = field(default_factory=Counter)
    """Proofs made in passing: passed, failed; unfiled, where the store did not answer."""
    damage: Damage | None = None
    failures: Counter[str] = field(default_factory=Counter)
    deltas_since_full: int = 0
    revisions_since_full: int = 0
    why_full: str = ""
    why_anew: str | None = None
    """Why the open session began with a full; None where it continued what was there."""
    clock_jumps: int = 0
    leases: dict[str, Renewals] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """By a store's URL the newest epoch in which we wrote there."""

    def opened(self, session: Session, catalogue: Catalogue) -> None:
        """A session began; the catalogue says what there is."""
        timeline = session.timeline_number
        self.epoch, self.timeline = session.epoch.number, timeline
        self.why_anew = session.need.reason if session.need is not None else None
        self.cluster_id = catalogue.marker.cluster_id if catalogue.marker else self.cluster_id
        self.first = recovery_window(catalogue, catalogue.proofs, timeline).first
        here = catalogue.on(timeline)
        self._remember(catalogue.proofs, here)
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

    def uploaded(self, captured: Captured, proof: Proof) -> None:
        """What an upload proved in passing."""
        failed = proof.failed
        self.uploads["passed" if failed is None else "failed"] += 1
        if failed is not None:
            self.damage = Damage(failed.detail, captured.record.last_revision)

    def proven(self, proof: Proof) -> None:
        """A proof of a chain was filed."""
        passed = [each.check for each in proof.findings if each.result is Result.PASSED]
        for each in proof.findings:
            if each.result is Result.FAILED:
                self.failing[each.check] = each.detail
        for check in passed:
            self.failing.pop(check, None)
            self.proofs[check] = ProofSeen(check.value, proof.revision, proof.finished_at)
        if passed and proof.failed is None and (self.proof is None or proof.finished_at > self.proof.at):
            self.proof = self.proofs[max(passed, key=list(Check).index)]

    def _remember(self, proofs: Iterable[Proof], here: Sequence[Snapshot]) -> None:
        """What was proven of what is still there, and what was found wrong; `proofs` ascend by time."""
        there = {each.name.key: each for each in here}
        self.proof, self.proofs, self.failing = None, {}, {}
        damaged: dict[str, Damage] = {}
        for proof in proofs:
            held = [there.get(link.key) for link in proof.objects]
            if proof.in_passing and proof.failed is not None and held[-1] is not None:
                damaged[held[-1].name.key] = Damage(proof.failed.detail, held[-1].last)
            elif not proof.in_passing and all(each is not None for each in held):
                self.proven(proof)
        newest = max((each for each in here if each.is_full), key=_order, default=None)
        counts = (each for each in here if each is newest or (newest is None or each.last > newest.last))
        self.damage = next((damaged[each.name.key] for each in counts if each.name.key in damaged), None)


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.last, snapshot.name.created
