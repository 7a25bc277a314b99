"""What a Kubernetes lease is to say next.  Pure: a lease as it is and what we know in, a patch out.

The protocol is etcd-backup-restore's, as etcd-druid reads it (their inventories, 4.4 and 5): snapshot leases
have the last revision as their holder, a member's has `<member id>:<cluster id>:<role>`, ids in hex.

There a revision never falls, also after a restore to an older point, and then the leases stand still while
backups are taken (druid's D17).  Here the timeline stands beside the revision, in an annotation: it never
falls within one timeline, and a newer one begins with what it has.  A lease without the annotation is taken
to be of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rootcellar.kube.kinds import Lease

TIMELINE = "rootcellar.dev/timeline"
TLS = "member.etcd.gardener.cloud/tls-enabled"


@dataclass(frozen=True, slots=True)
class Renewal:
    """A merge patch, or None where the lease stays as it is; `why` says why, where that is remarkable."""

    patch: dict[str, Any] | None
    why: str = ""


UNKNOWN = 0
"""The timeline where no catalogue tells: only a lease that nobody of ours has written is then renewed."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A timeline, and the last revision of its newest full or delta: 0 where it has none."""

    timeline: int
    revision: int


def renew_full(lease: Lease, reached: Reached, captured_at: datetime) -> Renewal:
    """For a new full, with the moment of its capture."""
    held, foreign = _held(lease, reached)
    if foreign or (held is not None and held > reached.revision):
        return Renewal(None, foreign or _ahead(held, reached))
    renewed = _moment(lease.spec.renew_time)
    if held == reached.revision and renewed is not None and renewed >= captured_at:
        return Renewal(None)
    return Renewal(_patch(str(reached.revision), captured_at, _annotations(reached)))


def renew_delta(lease: Lease, reached: Reached, now: datetime) -> Renewal:
    """For a period that has ended with everything stored, also if nothing was to be stored."""
    held, foreign = _held(lease, reached)
    if foreign:
        return Renewal(None, foreign)
    revision = max(held or 0, reached.revision)
    why = _ahead(held, reached) if held is not None and held > reached.revision else ""
    return Renewal(_patch(str(revision), now, _annotations(reached)), why)


@dataclass(frozen=True, slots=True)
class Beat:
    """A member that has just answered.  `tls`: whether its peers reach it by TLS, None where not known."""

    member_id: int
    cluster_id: int
    leads: bool
    tls: bool | None

    @property
    def holder(self) -> str:
        return f"{self.member_id:x}:{self.cluster_id:x}:{'Leader' if self.leads else 'Member'}"


def renew_member(_lease: Lease, beat: Beat, now: datetime) -> Renewal:
    """For a heartbeat."""
    annotations = {} if beat.tls is None else {TLS: str(beat.tls).lower()}
    return Renewal(_patch(beat.holder, now, annotations))


def _annotations(reached: Reached) -> dict[str, str]:
    return {} if reached.timeline == UNKNOWN else {TIMELINE: str(reached.timeline)}


def _patch(holder: str, at: datetime, annotations: dict[str, str]) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    return {"spec": spec, **({"metadata": {"annotations": annotations}} if annotations else {})}


def _held(lease: Lease, reached: Reached) -> tuple[int | None, str]:
    """The revision below which the lease must not fall, if there is one, and why it is not ours to write."""
    said = lease.metadata.annotations.get(TIMELINE, "")
    timeline = int(said) if said.isdecimal() else reached.timeline
    if timeline > reached.timeline:
        return None, f"it is of timeline {timeline}, and we write {reached.timeline}"
    holder = lease.spec.holder_identity or ""
    return (int(holder) if timeline == reached.timeline and holder.isdecimal() else None), ""


def _ahead(held: int | None, reached: Reached) -> str:
    return f"it is at revision {held}, and we are at {reached.revision}"


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
