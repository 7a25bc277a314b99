"""What is written into a lease, and what is left in it.  Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.agent.lease_plan import (
    TIMELINE,
    TLS,
    UNKNOWN,
    Beat,
    Reached,
    renew_delta,
    renew_full,
    renew_member,
)
from rootcellar.kube.kinds import Lease, LeaseSpec, Meta

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def lease(holder=None, at=None, timeline=None):
    annotations = {} if timeline is None else {TIMELINE: str(timeline)}
    spec = LeaseSpec(holder_identity=holder, renew_time=at and f"{at:%Y-%m-%dT%H:%M:%S.%fZ}")
    return Lease(metadata=Meta(annotations=annotations), spec=spec)


def after(lease, renewal):
    """The lease with the patch on it."""
    if renewal.patch is None:
        return lease
    spec, meta = renewal.patch["spec"], renewal.patch.get("metadata", {})
    return Lease(
        metadata=Meta(annotations={**lease.metadata.annotations, **meta.get("annotations", {})}),
        spec=LeaseSpec(holder_identity=spec["holderIdentity"], renew_time=spec["renewTime"]),
    )


def test_a_fulls_lease_has_its_last_revision_and_the_moment_of_its_capture():
    renewal = renew_full(lease(), Reached(3, 4711), NOW)
    assert renewal.patch == {
        "spec": {"holderIdentity": "4711", "renewTime": "2026-11-21T12:00:00.000000Z"},
        "metadata": {"annotations": {TIMELINE: "3"}},
    }


def test_a_full_that_the_lease_has_already_is_not_written_again():
    written = after(lease(), renew_full(lease(), Reached(1, 5), NOW))
    assert renew_full(written, Reached(1, 5), NOW).patch is None
    assert renew_full(written, Reached(1, 5), NOW + timedelta(seconds=1)).patch is not None


def test_deltas_have_zero_where_there_is_none_and_the_moment_of_the_renewal():
    renewal = renew_delta(lease(), Reached(1, 0), NOW)
    assert renewal.patch["spec"] == {"holderIdentity": "0", "renewTime": "2026-11-21T12:00:00.000000Z"}
    assert not renewal.why


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50), st.booleans()), max_size=12))
def test_no_revision_ever_falls_within_a_timeline(steps):
    now = lease()
    for turn, (timeline, revision, is_full) in enumerate(steps):
        plan = renew_full if is_full else renew_delta
        then = after(now, plan(now, Reached(timeline, revision), NOW + timedelta(seconds=turn)))
        before_, behind = (int(each.metadata.annotations.get(TIMELINE, 0)) for each in (now, then))
        assert behind >= before_
        if behind == before_ and now.spec.holder_identity is not None:
            assert int(then.spec.holder_identity) >= int(now.spec.holder_identity)
        now = then


def test_a_lease_that_another_writer_took_further_is_left_and_this_is_told():
    held = lease("100", NOW)
    full = renew_full(held, Reached(1, 60), NOW + timedelta(hours=1))
    assert (full.patch, full.why) == (None, "it is at revision 100, and we are at 60")
    delta = renew_delta(held, Reached(1, 60), NOW + timedelta(hours=1))
    assert delta.patch["spec"] == {"holderIdentity": "100", "renewTime": "2026-11-21T13:00:00.000000Z"}
    assert delta.why == full.why


@pytest.mark.parametrize("plan", [partial(renew_full, captured_at=NOW), partial(renew_delta, now=NOW)])
def test_after_a_restore_to_an_older_point_leases_begin_with_what_the_new_timeline_has(plan):
    """etcd-druid's defect D17."""
    held = lease("1000", NOW, timeline=1)
    assert plan(held, reached=Reached(2, 400)).patch["spec"]["holderIdentity"] == "400"
    assert plan(lease("400", NOW, timeline=2), reached=Reached(1, 1001)).patch is None
    assert plan(lease("400", NOW, timeline=2), reached=Reached(UNKNOWN, 1001)).patch is None
    assert "metadata" not in plan(lease(), reached=Reached(UNKNOWN, 1)).patch


def test_a_holder_that_is_no_revision_is_replaced():
    assert renew_full(lease("somebody", NOW), Reached(1, 1), NOW).patch["spec"]["holderIdentity"] == "1"


@pytest.mark.parametrize(
    ("beat", "holder", "annotations"),
    [
        (Beat(0xA0F, 0xC, leads=True, tls=True), "a0f:c:Leader", {TLS: "true"}),
        (Beat(2**64 - 1, 1, leads=False, tls=False), "ffffffffffffffff:1:Member", {TLS: "false"}),
        (Beat(1, 2, leads=False, tls=None), "1:2:Member", None),
    ],
)
def test_a_members_lease_has_its_ids_and_role(beat, holder, annotations):
    patch = renew_member(lease("old"), beat, NOW).patch
    assert patch["spec"]["holderIdentity"] == holder
    assert patch.get("metadata", {}).get("annotations") == annotations
