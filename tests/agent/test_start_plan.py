"""The decision before a start: one test per case, and per defect of the reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.agent.members import Cluster
from rootcellar.agent.start_plan import Deed, Facts, StoreFacts, StoreState, plan_start
from rootcellar.agent.validation import Status, Validation
from rootcellar.errors import (
    EtcdUnavailableError,
    NothingToRestoreError,
    RootcellarError,
    StoreError,
    TargetError,
)
from rootcellar.etcd.answers import Member

VALID = Validation(Status.VALID, "fine", revision=10, member_id=1, cluster_id=7)
CORRUPT = Validation(Status.CORRUPT, "the log is damaged")
MISSING = Validation(Status.NOT_EXIST, "nothing is there", blank=True)
BEHIND = Validation(Status.REVISION_BEHIND, "behind", revision=10, member_id=1, cluster_id=7)
HOLDS = StoreFacts(StoreState.HOLDS, latest=50)
EMPTY = StoreFacts(StoreState.EMPTY)
NONE = StoreFacts(StoreState.NONE)
AWAY = StoreFacts(StoreState.UNREACHABLE, told="connection refused")
BROKEN = StoreFacts(StoreState.BROKEN, told="no full is left")
A, B, C = (
    Member(n, f"m{n}", (f"http://m{n}:2380",), (f"http://m{n}:2379",), is_learner=False) for n in (1, 2, 3)
)
THREE = ("m1", "m2", "m3")


def alone(found, store):
    return plan_start(Facts("m1", ("http://m1:2380",), ("m1",), found, store))


def beside(found, cluster, *, store=NONE, registered=None, name="m1"):
    return plan_start(Facts(name, (f"http://{name}:2380",), THREE, found, store, cluster, registered))


def cluster(*members, answering=(2, 3)):
    return Cluster(7, members, frozenset(answering))


# peer URLs


@pytest.mark.parametrize(
    ("listed", "moved"),
    [
        (A._replace(peer_urls=("http://m1:2380",)), False),
        (A._replace(peer_urls=("https://m1:2380",)), True),
        (A._replace(peer_urls=("http://m1:2380", "http://m1:2390")), True),
        (A._replace(peer_urls=("https://m1:2380",), is_learner=True), False),
    ],
    ids=["as configured", "another scheme", "one too many", "a learner, which an update would make a voter"],
)
def test_a_member_that_the_others_know_elsewhere_is_moved_before_it_starts(listed, moved):
    plan = beside(VALID, cluster(listed, B, C))
    assert plan.deed is Deed.KEEP
    assert plan.move == (listed if moved else None)


def test_without_configured_peer_urls_nothing_is_moved():
    facts = Facts("m1", (), THREE, VALID, NONE, cluster(A, B, C))
    assert plan_start(facts).move is None


# one member


@pytest.mark.parametrize("store", [HOLDS, EMPTY, NONE, AWAY, BROKEN], ids=lambda each: each.state.name)
def test_a_healthy_member_starts_whatever_the_store_says(store):
    """Druid's D13: there, a store that does not answer keeps a healthy member down."""
    assert alone(VALID, store).deed is Deed.KEEP


@pytest.mark.parametrize("found", [CORRUPT, MISSING, BEHIND], ids=lambda each: each.status)
def test_a_member_that_is_not_fit_is_restored_from_the_store(found):
    assert alone(found, HOLDS).deed is Deed.RESTORE


def test_without_any_data_and_any_backup_etcd_starts_empty():
    plan = alone(MISSING, EMPTY)
    assert (plan.deed, plan.aside) == (Deed.START_EMPTY, False)


@pytest.mark.parametrize("store", [EMPTY, NONE], ids=lambda each: each.state.name)
def test_bad_data_goes_to_quarantine_where_the_reference_deletes_it(store):
    """Druid's D13: corrupt data with an empty or absent store is deleted there without a trace."""
    plan = alone(CORRUPT, store)
    assert (plan.deed, plan.aside) == (Deed.START_EMPTY, True)
    assert "the log is damaged" in plan.reason
    assert "quarantine" in plan.reason


@pytest.mark.parametrize("found", [CORRUPT, MISSING], ids=lambda each: each.status)
def test_nothing_starts_empty_while_the_store_does_not_answer(found):
    plan = alone(found, AWAY)
    assert plan.deed is Deed.REFUSE
    assert isinstance(plan.error, StoreError)
    assert "connection refused" in plan.error.message


@pytest.mark.parametrize("found", [CORRUPT, MISSING], ids=lambda each: each.status)
def test_backups_that_cannot_be_restored_are_no_empty_store(found):
    """The reference dies of a nil pointer on deltas without a full."""
    plan = alone(found, BROKEN)
    assert isinstance(plan.error, NothingToRestoreError)
    assert "nothing is started empty beside backups" in plan.error.hint


@pytest.mark.parametrize("status", [Status.WRONG_VOLUME, Status.CANNOT_OPEN, Status.UNKNOWN])
@pytest.mark.parametrize("store", [HOLDS, EMPTY], ids=lambda each: each.state.name)
def test_what_is_not_ours_to_judge_stops_the_start_and_touches_nothing(status, store):
    plan = alone(Validation(status, "told"), store)
    assert plan.deed is Deed.REFUSE
    assert isinstance(plan.error, TargetError)
    assert not plan.aside


# several members, the cluster answers


def test_a_member_with_its_data_starts():
    assert beside(VALID, cluster(A, B, C)).deed is Deed.KEEP


@pytest.mark.parametrize("found", [CORRUPT, MISSING], ids=lambda each: each.status)
def test_a_member_that_lost_its_data_leaves_and_joins_again(found):
    plan = beside(found, cluster(A, B, C))
    assert plan.deed is Deed.JOIN
    assert plan.remove == A
    assert plan.add
    assert plan.aside is not found.blank


def test_a_new_member_joins_as_a_learner():
    plan = beside(MISSING, cluster(B, C))
    assert (plan.deed, plan.add, plan.remove, plan.aside) == (Deed.JOIN, True, None, False)


def test_a_member_that_was_added_and_died_before_it_ran_is_not_added_twice():
    unnamed = A._replace(name="")
    plan = beside(MISSING, cluster(unnamed, B, C))
    assert (plan.deed, plan.add, plan.remove) == (Deed.JOIN, False, None)


def test_a_member_removed_by_hand_keeps_its_data_in_quarantine():
    """Druid's D26: there, its data is deleted before it is even known that it may join."""
    plan = beside(VALID, cluster(B, C))
    assert (plan.deed, plan.aside, plan.add) == (Deed.JOIN, True, True)
    assert "was removed" in plan.reason


@pytest.mark.parametrize("members", [(B, C), (A, B, C)], ids=["not listed", "listed"])
def test_healthy_data_is_not_touched_because_an_endpoint_is_wrong(members):
    """Druid's D26: there, the endpoints of another cluster cost a member its data."""
    other = Cluster(8, members, frozenset({2, 3}))
    plan = beside(VALID, other)
    assert plan.deed is Deed.REFUSE
    assert "cluster 7" in plan.error.message
    assert not plan.aside


def test_data_of_an_earlier_life_of_the_member_is_not_started_on():
    earlier = Validation(Status.VALID, "fine", revision=10, member_id=99, cluster_id=7)
    plan = beside(earlier, cluster(A, B, C))
    assert (plan.deed, plan.remove, plan.aside) == (Deed.JOIN, A, True)


def test_a_member_that_answers_elsewhere_is_never_removed():
    plan = beside(CORRUPT, cluster(A, B, C, answering=(1, 2, 3)))
    assert isinstance(plan.error, TargetError)
    assert "answers" in plan.error.message


@pytest.mark.parametrize("members", [(A, B), (A, B, C)], ids=["two", "three"])
def test_no_removal_takes_the_quorum_with_it(members):
    plan = beside(CORRUPT, cluster(*members, answering=(2,)))
    assert isinstance(plan.error, EtcdUnavailableError)
    assert "no quorum" in plan.error.message


# several members, the cluster does not answer


def test_a_healthy_member_waits_for_its_peers_by_starting():
    assert beside(VALID, None, store=AWAY).deed is Deed.KEEP


@pytest.mark.parametrize("name", THREE)
@pytest.mark.parametrize("store", [NONE, EMPTY], ids=lambda each: each.state.name)
@pytest.mark.parametrize("registered", [None, frozenset()], ids=["unknown", "none"])
def test_a_new_cluster_starts_empty_everywhere_at_once(name, store, registered):
    plan = beside(MISSING, None, store=store, registered=registered, name=name)
    assert plan.deed is Deed.START_EMPTY


@pytest.mark.parametrize("store", [NONE, EMPTY, HOLDS, AWAY], ids=lambda each: each.state.name)
def test_a_member_that_has_run_never_starts_anew_while_the_others_are_silent(store):
    """Raft's amnesia: a member that forgot its votes can undo what was acknowledged."""
    plan = beside(MISSING, None, store=store, registered=frozenset({"m1"}))
    assert isinstance(plan.error, EtcdUnavailableError)
    assert "m1 has been a member" in plan.error.message


@pytest.mark.parametrize("store", [NONE, EMPTY, HOLDS, AWAY], ids=lambda each: each.state.name)
def test_what_is_left_of_a_member_says_that_it_has_run(store):
    plan = beside(CORRUPT, None, store=store)
    assert isinstance(plan.error, EtcdUnavailableError)


def test_several_new_members_over_a_backup_are_restored_by_the_first():
    """Druid's 3.8: there, every member waits for a cluster that does not exist."""
    plans = {name: beside(MISSING, None, store=HOLDS, registered=frozenset(), name=name) for name in THREE}
    assert plans["m1"].deed is Deed.RESTORE
    for name in ("m2", "m3"):
        assert isinstance(plans[name].error, EtcdUnavailableError)
        assert "m1 restores the cluster first" in plans[name].error.message


def test_the_second_member_joins_what_the_first_has_restored():
    plan = beside(MISSING, cluster(A, answering=(1,)), store=HOLDS, name="m2")
    assert (plan.deed, plan.add) == (Deed.JOIN, True)


@pytest.mark.parametrize("registered", [None, frozenset({"m2"})], ids=["unknown", "another"])
def test_no_cluster_is_restored_beside_members_that_may_be_alive(registered):
    plan = beside(MISSING, None, store=HOLDS, registered=registered)
    assert isinstance(plan.error, EtcdUnavailableError)
    assert "rootcellar restore" in plan.error.hint


def test_a_new_cluster_is_not_started_beside_a_store_that_does_not_answer():
    assert isinstance(beside(MISSING, None, store=AWAY).error, StoreError)


# whatever the facts

_FOUND = st.builds(
    Validation,
    status=st.sampled_from(Status),
    finding=st.just("told"),
    blank=st.booleans(),
    member_id=st.sampled_from([0, 1, 99]),
    cluster_id=st.sampled_from([0, 7, 8]),
)
_CLUSTER = st.none() | st.builds(
    Cluster,
    cluster_id=st.just(7),
    members=st.lists(st.sampled_from([A, B, C, A._replace(name="")]), unique_by=lambda m: m.id).map(tuple),
    answering=st.frozensets(st.sampled_from([1, 2, 3])),
)
_FACTS = st.builds(
    Facts,
    name=st.sampled_from(THREE),
    peer_urls=st.just(("http://m1:2380",)),
    founders=st.sampled_from([("m1",), THREE]),
    found=_FOUND,
    store=st.sampled_from([HOLDS, EMPTY, NONE, AWAY, BROKEN]),
    cluster=_CLUSTER,
    registered=st.none() | st.frozensets(st.sampled_from(THREE)),
)


@given(_FACTS)
def test_no_plan_takes_what_it_must_not(facts):
    plan = plan_start(facts)
    if plan.deed is Deed.REFUSE:
        assert isinstance(plan.error, RootcellarError)
        assert plan.error.hint
    assert (plan.error is None) == (plan.deed is not Deed.REFUSE)
    if plan.aside:
        assert not facts.found.blank
        assert plan.deed is not Deed.KEEP
    if plan.deed is Deed.RESTORE:
        assert facts.store.state is StoreState.HOLDS
    if plan.deed is Deed.START_EMPTY:
        assert facts.store.state in (StoreState.NONE, StoreState.EMPTY)
        assert not facts.found.valid
    if plan.remove is not None:
        assert facts.cluster.can_lose(plan.remove)
        assert plan.remove.id not in facts.cluster.answering
        assert plan.add


@pytest.mark.parametrize("store", [NONE, EMPTY, HOLDS], ids=lambda each: each.state.name)
def test_nobody_founds_a_cluster_while_the_leases_cannot_be_read_just_now(store):
    """A member that lost its data and has voted would vote again with an empty log."""
    plan = plan_start(
        Facts("m1", ("http://m1:2380",), THREE, MISSING, store, leases_away="connection refused")
    )
    assert isinstance(plan.error, EtcdUnavailableError)
    assert "connection refused" in plan.error.message
