"""What a prune keeps and deletes, and why: planned, nothing is stored here."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import Damage
from rootcellar.backup.catalogue.chain import AtRevision, chains, leading, plan_chain
from rootcellar.backup.catalogue.ownership import ForkIntent, Marker
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.prune.plan import plan_prune
from rootcellar.backup.prune.retention import Exponential, Gfs, LimitBased
from rootcellar.backup.prune.values import Live, What
from rootcellar.errors import DoubtError, IdentityError, UsageError
from tests.backup.builders import delta, full, heartbeat, moment, timeline
from tests.backup.prune_ground import (
    DAY,
    HOUR,
    carried_out,
    fate,
    ground,
    hold,
    left,
    pin,
    proof,
    rules,
    tombstone,
)

CLUSTER = "cdf818194e3a8c32"
WEEK = 7 * DAY


def chain(first, last, deltas, *, at, every=HOUR, timeline=1, recorded=True):
    """A full at `first` and so many deltas behind it up to `last`, evenly."""
    cuts = [first + (last - first) * number // deltas for number in range(deltas + 1)] if deltas else []
    return [
        full(first, at=at, recorded=recorded, timeline=timeline),
        *(
            delta(a + 1, b, at=at + (number + 1) * every, recorded=recorded, timeline=timeline)
            for number, (a, b) in enumerate(itertools.pairwise(cuts))
        ),
    ]


A, B, C = chain(100, 200, 4, at=0), chain(200, 300, 4, at=DAY), chain(300, 400, 4, at=2 * DAY)
NOW = moment(3 * DAY)


def plan_for(there, how=None, now=NOW, live=None):
    return plan_prune(there, how or rules(), now, live)


def names_of(*snapshots):
    return {each.name.name for each in snapshots}


# chains


def test_the_newest_chain_stays_whole_and_the_others_go_deltas_first_newest_to_oldest():
    plan = plan_for(ground(*A, *B, *C))
    assert left(plan) == names_of(*C)
    assert [each.key for each in plan.doomed] == [each.key for each in (*B[:0:-1], *A[:0:-1], B[0], A[0])]
    assert {fate(plan, each).reason for each in C} == {"the newest"}
    assert fate(plan, B[0]).reason == "there are 1 newer"
    assert fate(plan, B[2]).reason == "its full goes"


def test_a_snapshot_takes_along_what_speaks_of_it():
    plan = plan_for(ground(*A, *B, proofs=[proof(*A, check=Check.HASH), proof(A[0], check=Check.HASH)]))
    assert keys.record(A[0].name) in fate(plan, A[0]).dependents
    assert [key for key in fate(plan, A[-1]).dependents if key.startswith(keys.PROOFS)]


def test_without_a_time_for_deltas_they_stay_as_long_as_the_policy_keeps_their_full():
    plan = plan_for(ground(*A, *B, *C), rules(LimitBased(2)))
    assert left(plan) == names_of(*B, *C)
    assert fate(plan, B[1]).reason == "its full is kept"


def test_deltas_older_than_their_time_go_and_leave_their_full():
    plan = plan_for(ground(*A, *B, *C), rules(LimitBased(3), deltas=DAY // 2))
    assert left(plan) == names_of(A[0], B[0], *C)
    assert fate(plan, B[1]).reason == "older than 12 h, for which deltas are kept"


def test_a_chain_within_the_time_for_deltas_keeps_its_full_whatever_the_policy_says():
    """The reference thins fulls under deltas that it keeps."""
    plan = plan_for(ground(*A, *B, *C), rules(LimitBased(1), deltas=int(1.5 * DAY)))
    assert left(plan) == names_of(*B, *C)
    assert fate(plan, B[0]).reason == "deltas are kept for 36 h"


def test_the_state_at_the_beginning_of_the_window_is_in_it():
    """Nothing was written for a day: the state of that day is only in the chain before it."""
    quiet = chain(100, 200, 2, at=0), chain(201, 300, 2, at=2 * DAY)
    plan = plan_for(ground(*quiet[0], *quiet[1]), rules(LimitBased(1), deltas=int(1.5 * DAY)))
    assert left(plan) == names_of(*quiet[0], *quiet[1])


def test_a_delta_across_two_fulls_stays_for_the_one_that_needs_it():
    across = delta(191, 220, at=DAY + HOUR, recorded=True)
    there = [full(100, recorded=True), delta(101, 190, at=HOUR, recorded=True), across]
    there += [full(200, at=DAY, recorded=True), delta(221, 300, at=DAY + 2 * HOUR, recorded=True)]
    plan = plan_for(ground(*there, *C), rules(LimitBased(2)))
    assert names_of(across) <= left(plan)
    assert names_of(*there[:2]).isdisjoint(left(plan))


def test_deltas_that_repeat_others_stay_and_go_with_them():
    twin = delta(126, 140, at=2 * HOUR, recorded=True), delta(326, 340, at=2 * DAY + 2 * HOUR, recorded=True)
    plan = plan_for(ground(*A, *C, *twin))
    assert left(plan) == names_of(*C, twin[1])
    assert fate(plan, twin[1]).reason == "overlaps what is kept"


# what goes past the policy


def test_a_hold_keeps_a_full_and_the_deltas_that_it_needs():
    plan = plan_for(ground(*A, *B, *C, holds=[hold(A[0].name.key, through=140)]))
    assert left(plan) == names_of(*A[:3], *C)
    assert fate(plan, A[1]).reason == "held by anna: an audit"


def test_a_hold_can_reach_over_other_fulls():
    plan = plan_for(ground(*A, *B, *C, holds=[hold(A[0].name.key, through=230)]))
    assert left(plan) == names_of(*A, *B[1:3], *C)


def test_a_pin_keeps_a_chain_until_it_expires_by_a_slow_clock():
    there = ground(*A, *B, pins=[pin(A[0].name.key, until=3 * DAY - 60, through=200)])
    assert left(plan_for(there)) == names_of(*A, *B)
    assert left(plan_for(there, now=moment(3 * DAY + 300))) == names_of(*B)


def test_the_newest_proven_chain_stays_whole():
    plan = plan_for(
        ground(*A, *B, *C, proofs=[proof(*A), proof(*B, check=Check.BOOTED), proof(*C, check=Check.HASH)])
    )
    assert left(plan) == names_of(*B, *C)
    assert fate(plan, B[2]).reason == "the newest that was proven"


@pytest.mark.parametrize("later", [Check.REPLAYED, Check.HASH])
def test_a_proof_that_a_later_one_contradicts_counts_no_longer(later):
    proofs = [proof(*A), proof(*B), proof(*B, check=later, result=Result.FAILED, at=5)]
    assert left(plan_for(ground(*A, *B, *C, proofs=proofs))) == names_of(*A, *C)


def test_a_proof_of_other_bytes_counts_for_nothing():
    proofs = [proof(*A), proof(*[replace(each, record=None) for each in B])]
    other = [B[0], *(replace(each, record=replace_hash(each.record)) for each in B[1:])]
    assert left(plan_for(ground(*A, *other, *C, proofs=proofs))) == names_of(*A, *C)


def replace_hash(record):
    return type(record)(
        **{name: getattr(record, name) for name in record.__struct_fields__} | {"stored_sha256": "c" * 64}
    )


def test_the_minimum_counts_only_chains_that_can_be_proven():
    truncated = [replace(B[0], size=99), *B[1:]]
    plan = plan_for(ground(*A, *truncated, *C), rules(minimum=2))
    assert left(plan) == names_of(*A, *C)
    assert fate(plan, A[2]).reason == "one of the newest 2 that can be proven"
    failed = plan_for(ground(*A, *B, *C, proofs=[proof(*B, result=Result.FAILED)]), rules(minimum=2))
    assert left(failed) == names_of(*A, *C)


def test_a_failed_proof_speaks_on_while_its_full_is_there():
    """Else the deltas' deletion would make a chain provable again."""
    there = ground(*A, *B, *C, proofs=[proof(*B, result=Result.FAILED)])
    how = rules(LimitBased(3), minimum=2, deltas=HOUR)
    plan = plan_for(there, how)
    assert left(plan) == names_of(*A, B[0], *C)
    assert not any(key.startswith(keys.PROOFS) for each in plan.doomed for key in each.dependents)
    assert plan_for(carried_out(there, plan), how).is_empty


def test_a_minimum_of_none_is_refused():
    with pytest.raises(UsageError, match="a minimum of 0 chains"):
        rules(minimum=0)


# a prune that was killed


def test_what_has_a_tombstone_goes_even_if_the_policy_would_keep_it():
    plan = plan_for(ground(*A, *B, *C, tombstones=[tombstone(each) for each in B]), rules(LimitBased(2)))
    assert left(plan) == names_of(*A, *C)
    assert fate(plan, B[0]).reason == "its removal was begun: old"


def test_a_hold_brings_back_what_has_a_tombstone():
    there = ground(*A, *C, tombstones=[tombstone(each) for each in A], holds=[hold(A[0].name.key, 150)])
    assert left(plan_for(there)) == names_of(*A[:3], *C)


def test_the_only_full_stays_even_with_a_tombstone():
    """A superseded writer buried it, and nothing has come since."""
    plan = plan_for(ground(A[0], tombstones=[tombstone(A[0])]))
    assert left(plan) == names_of(A[0])


def test_tombstones_do_not_undo_the_minimum():
    bad = [replace(C[0], size=99), *C[1:]]
    plan = plan_for(ground(*A, *B, *bad, tombstones=[tombstone(each) for each in B]), rules(minimum=2))
    assert left(plan) == names_of(*A, *B, *bad)


def test_of_an_object_that_lies_there_twice_both_stay_or_both_go():
    moved = replace(A[0], key=keys.abandoned(A[0].name, 1))
    plan = plan_for(ground(*A, moved, *C))
    assert {fate(plan, A[0]).keep, fate(plan, moved).keep} == {False}
    held = plan_for(ground(*A, moved, *C, holds=[hold(A[0].name.key)]))
    assert {fate(held, A[0]).keep, fate(held, moved).keep} == {True}


# timelines

FORKED = [timeline(1), timeline(2, 1, 250, at=3 * DAY)]
D = chain(260, 400, 2, at=3 * DAY, timeline=2)


def test_a_dead_timeline_keeps_its_newest_chain_until_its_time_is_over():
    there = ground(*A, *B, *C, *D, timelines=FORKED)
    young = plan_for(there, rules(abandoned=WEEK), moment(4 * DAY))
    assert left(young) == names_of(*C, *D)
    assert fate(young, C[0]).reason == "the newest of timeline 1, abandoned less than 7 days ago"
    old = plan_for(there, rules(abandoned=WEEK), moment(10 * DAY + 1))
    assert left(old) == names_of(*D)
    assert fate(old, C[0]).reason == "of timeline 1, abandoned more than 7 days ago"


def test_a_chain_at_a_fork_lives_up_to_it_and_is_dead_behind_it():
    there = ground(*A, *B, *D, timelines=FORKED)
    both = plan_for(there, rules(LimitBased(2), abandoned=WEEK), moment(4 * DAY))
    assert left(both) == names_of(*B, *D)
    assert fate(both, B[-1]).reason == "the newest of timeline 1, abandoned less than 7 days ago"
    later = plan_for(there, rules(LimitBased(2), abandoned=WEEK), moment(11 * DAY))
    assert left(later) == names_of(*B[:3], *D)


def test_a_mistaken_restore_can_be_undone_even_where_the_policy_keeps_one_full():
    there = ground(*A, *B, *D, timelines=FORKED)
    assert left(plan_for(there, rules(), moment(4 * DAY))) == names_of(*B, *D)


def test_the_policy_counts_across_the_timelines_that_live():
    there = ground(*A, *B, *D, timelines=FORKED)
    plan = plan_for(there, rules(LimitBased(3), abandoned=0), moment(4 * DAY))
    assert left(plan) == names_of(*A, *B[:3], *D)


def test_a_timeline_without_a_backup_yet_shares_its_parents():
    plan = plan_for(ground(*A, *B, timelines=FORKED), rules(abandoned=0), moment(4 * DAY))
    assert left(plan) == names_of(*B[:3])


def test_a_fork_that_was_undone_is_alive_again():
    lines = [*FORKED, timeline(3, 1, 380, at=5 * DAY)]
    later = chain(390, 500, 2, at=5 * DAY, timeline=3)
    plan = plan_for(
        ground(*C, *D, *later, timelines=lines), rules(LimitBased(2), abandoned=WEEK), moment(6 * DAY)
    )
    assert left(plan) == names_of(*C, *D, *later)
    assert fate(plan, D[0]).reason == "the newest of timeline 2, abandoned less than 7 days ago"


# orphans


def test_orphans_are_told_and_go_after_their_grace_by_the_stores_time():
    orphan = delta(50, 60, at=0)
    there = ground(orphan, *A, modified={orphan.key: 2 * DAY})
    young = fate(plan_for(there, now=moment(9 * DAY)), orphan)
    assert (young.what, young.keep) == (What.ORPHAN, True)
    assert young.reason == "no full leads to it; it is reported for 7 days"
    old = fate(plan_for(there, now=moment(9 * DAY + 1)), orphan)
    assert (old.keep, old.reason) == (False, "no full has led to it for 7 days")


def test_an_orphan_above_every_full_is_a_trace_of_what_is_lost_and_stays():
    orphan = delta(450, 460, at=0)
    told = fate(plan_for(ground(orphan, *A), now=moment(1000 * DAY)), orphan)
    assert told.keep
    assert told.reason == "no full leads to it, but it is newer than every full: a trace of what is lost"


def test_deltas_alone_are_never_deleted():
    plan = plan_for(ground(*A[1:]), now=moment(1000 * DAY))
    assert left(plan) == names_of(*A[1:])


# doubt


def marker(cluster=CLUSTER):
    return Marker(number=1, cluster_id=cluster, writer="a", created_at=moment(0))


def intent(at, cluster="1234", nonce="f"):
    return ForkIntent(
        nonce=nonce,
        timeline=1,
        forked_at=150,
        revision=150,
        cluster_id=cluster,
        created_at=moment(at),
        by="r",
    )


def test_a_corrupt_etcd_stops_everything():
    with pytest.raises(DoubtError, match="etcd has a CORRUPT alarm") as told:
        plan_for(ground(*A, *B), live=Live(CLUSTER, corrupt=True))
    assert "disarm the alarm" in told.value.hint


def test_an_etcd_of_another_cluster_is_refused():
    there = ground(*A, marker=marker(), timelines=[timeline(1)])
    assert plan_for(there, live=Live(CLUSTER, corrupt=False))
    with pytest.raises(IdentityError, match="of cluster cdf818194e3a8c32, and etcd is cluster 99"):
        plan_for(there, live=Live("99", corrupt=False))


def test_a_marker_without_its_timeline_is_a_fork_under_way():
    with pytest.raises(DoubtError, match="bound to cluster 1234, which has no timeline yet"):
        plan_for(ground(*A, marker=marker("1234"), timelines=[timeline(1)]))


def test_a_fork_that_was_announced_stops_a_prune_until_something_is_captured():
    there = ground(*A, intents=[intent(2 * DAY)], timelines=[timeline(1)])
    with pytest.raises(DoubtError, match="a restore announced a fork at revision 150"):
        plan_for(there)
    assert plan_for(ground(*A, *C, intents=[intent(DAY)]))
    assert plan_for(ground(*A, intents=[intent(2 * DAY)], heartbeat=heartbeat(2 * DAY + 1, 200)))
    with pytest.raises(DoubtError, match="announced a fork"):
        plan_for(
            ground(*A, *C, intents=[intent(DAY, cluster=CLUSTER)], marker=marker()),
            live=Live(CLUSTER, corrupt=False),
        )


@pytest.mark.parametrize("prefix", [keys.HOLDS, keys.PINS, keys.MARKERS, keys.TIMELINES, keys.FORKS])
def test_a_damaged_document_that_could_forbid_a_deletion_stops_everything(prefix):
    damage = Damage(f"{prefix}x.json", "it does not have the sha256 it carries")
    with pytest.raises(DoubtError, match="cannot be believed"):
        plan_for(ground(*A, damaged=[damage]))


# properties

TOP = 80


@st.composite
def pasts(draw):
    """Grounds with anything in them that a prefix can hold, sound or not."""
    snapshots = []
    lines = [timeline(1)]
    forks = draw(st.integers(0, 2))
    at = 0
    for number in range(1, forks + 2):
        bottom = 1
        if number > 1:
            fork = draw(st.integers(1, TOP))
            at += draw(st.integers(0, 3 * DAY))
            lines.append(timeline(number, draw(st.integers(1, number - 1)), fork, at=at))
            bottom = fork
        begun = at
        cuts = sorted(draw(st.sets(st.integers(bottom, TOP), max_size=10)))
        for previous, cut in itertools.pairwise([bottom, *cuts]):
            at += draw(st.integers(60, DAY))
            recorded = draw(st.booleans()) or forks > 0
            if draw(st.integers(0, 9)) and cut > previous:
                snapshots.append(delta(previous + 1, cut, at=at, recorded=recorded, timeline=number))
            if draw(st.booleans()):
                snapshots.append(full(cut, at=at + 1, recorded=recorded, timeline=number))
        for start, length in draw(st.lists(st.tuples(st.integers(1, TOP), st.integers(0, 20)), max_size=2)):
            twin = delta(start, min(TOP, start + length), at=begun + 5, recorded=True, timeline=number)
            snapshots.append(twin)
    unique = list({each.name.key: each for each in snapshots}.values())
    fulls = [each for each in unique if each.is_full]
    parts = {"timelines": lines}
    if fulls:
        some = st.lists(st.sampled_from(fulls), max_size=2)
        through = st.none() | st.integers(1, TOP)
        parts["holds"] = [hold(each.name.key, draw(through), str(n)) for n, each in enumerate(draw(some))]
        parts["pins"] = [
            pin(each.name.key, draw(st.integers(0, 30 * DAY)), draw(through), str(n))
            for n, each in enumerate(draw(some))
        ]
        parts["proofs"] = [
            proof(each, result=draw(st.sampled_from([Result.PASSED, Result.FAILED])), at=n)
            for n, each in enumerate(draw(some))
        ]
        parts["tombstones"] = [tombstone(each) for each in draw(st.sets(st.sampled_from(unique), max_size=2))]
    documents = {keys.epoch(number): 0 for number in range(draw(st.integers(0, 12)))}
    documents |= {keys.pin(each.until, each.nonce): 0 for each in parts.get("pins", ())}
    return ground(*unique, documents=documents, **parts), at


numbers = st.integers(0, 3)
policies = (
    st.builds(LimitBased, st.integers(1, 4))
    | st.builds(Gfs, numbers, numbers, numbers, numbers, st.integers(1, 2))
    | st.just(Exponential())
)
rulebooks = st.builds(
    rules,
    policies,
    minimum=st.integers(1, 3),
    deltas=st.none() | st.integers(0, 10 * DAY),
    abandoned=st.integers(0, 10 * DAY),
    grace=st.integers(0, 10 * DAY),
)
later = st.integers(0, 20 * DAY)


def standing_of(there):
    """The history without what a killed prune had condemned."""
    buried = {each.key for each in there.catalogue.tombstones}
    return there.catalogue.without(
        [each.key for each in there.catalogue.snapshots if each.name.key in buried]
    )


def only(history, number):
    """One timeline by itself."""
    snapshots = tuple(each for each in history.snapshots if each.timeline == number)
    return replace(history, snapshots=snapshots, timelines=())


def is_reached(history, behind):
    """Whether a full leads to a delta."""
    fulls = [each for each in history.on(behind.timeline) if each.is_full and each.last < behind.last]
    ends = (leading(history, each, behind.last)[-1:] for each in fulls)
    return any(end and end[0].last >= behind.last for end in ends)


@given(pasts(), rulebooks, later)
def test_no_delta_goes_that_is_needed_between_two_points_that_stay(past, how, after):
    """Deltas go from the end of a chain; one that stays behind others that went is another chain's."""
    there, end = past
    plan = plan_prune(there, how, moment(end + after))
    standing, remains = standing_of(there), carried_out(there, plan).catalogue
    of_key = {each.key: each for each in plan.snapshots}
    for number in {each.timeline for each in standing.snapshots}:
        found = chains(standing, number)
        for each in found:
            stays = [of_key[delta.key].keep for delta in each.deltas]
            if of_key[each.full.key].keep and all(stays):
                reached = plan_chain(only(remains, number), AtRevision(each.reach))
                assert reached.reach == each.reach
                continue
            locked = [of_key[d.key].reason.startswith(("held", "read")) for d in each.deltas]
            first = stays.index(False) if False in stays else len(stays)
            for behind, stay, lock in list(zip(each.deltas, stays, locked, strict=True))[first:]:
                assert not stay or lock or is_reached(remains, behind)


@given(pasts(), rulebooks, later)
def test_the_newest_chain_reaches_what_it_reached(past, how, after):
    there, end = past
    standing = standing_of(there)
    plan = plan_prune(there, how, moment(end + after))
    found = chains(standing, standing.newest_timeline)
    if found:
        newest = found[-1]
        remains = carried_out(there, plan).catalogue
        assert newest.full in remains.snapshots
        reached = [newest.full, *leading(remains, newest.full, newest.reach)][-1]
        assert reached.last >= newest.reach


@given(pasts(), rulebooks, later)
def test_a_second_plan_is_empty(past, how, after):
    """But for the reference's Exponential, whose verdicts depend on what lies beside a full."""
    there, end = past
    now = moment(end + after)
    plan = plan_prune(there, how, now)
    second = plan_prune(carried_out(there, plan), how, now)
    if not isinstance(how.policy, Exponential):
        assert [(each.key, each.reason) for each in second.doomed] == []
        assert [(each.key, each.reason) for each in second.swept if each.what is not What.TOMBSTONE] == []


@given(pasts(), rulebooks, later)
def test_holds_and_pins_win(past, how, after):
    there, end = past
    now = moment(end + after)
    remains = carried_out(there, plan_prune(there, how, now)).catalogue
    names = {each.name.key for each in remains.snapshots}
    locks = [*there.catalogue.holds, *(each for each in there.catalogue.pins if each.until > now)]
    for lock in locks:
        (base,) = [each for each in there.catalogue.snapshots if each.name.key == lock.key]
        assert lock.key in names
        through = lock.through or 0
        assert {each.name.key for each in leading(there.catalogue, base, through)} <= names


def provable(catalogue):
    """How many fulls lie there that nothing speaks against."""
    good = set()
    for each in catalogue.snapshots:
        if each.is_full:
            words = [p for p in catalogue.proofs if p.objects[0].key == each.name.key]
            newest = max(words, key=lambda p: p.finished_at, default=None)
            if newest is None or newest.findings[0].result is Result.PASSED:
                good.add(each.name.key)
    return len(good)


@given(pasts(), rulebooks, later)
def test_no_prune_goes_below_the_minimum_of_provable_chains(past, how, after):
    there, end = past
    remains = carried_out(there, plan_prune(there, how, moment(end + after))).catalogue
    assert provable(remains) >= min(how.minimum, provable(there.catalogue))


@given(pasts(), rulebooks, later)
def test_fulls_go_last_and_everything_newest_first(past, how, after):
    there, end = past
    doomed = plan_prune(there, how, moment(end + after)).doomed
    kinds = [each.snapshot.is_full for each in doomed]
    assert kinds == sorted(kinds)
    for _, group in itertools.groupby(
        doomed, key=lambda each: (each.snapshot.is_full, each.snapshot.timeline)
    ):
        lasts = [each.snapshot.last for each in group]
        assert lasts == sorted(lasts, reverse=True)


@given(pasts(), rulebooks, later)
def test_everything_has_a_reason(past, how, after):
    there, end = past
    plan = plan_prune(there, how, moment(end + after))
    assert {each.key for each in plan.snapshots} == {each.key for each in there.catalogue.snapshots}
    assert all(each.reason for each in (*plan.snapshots, *plan.leftovers))
