from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue.chain import (
    AtRevision,
    AtTime,
    Gap,
    Latest,
    chains,
    orphans,
    plan_chain,
    recovery_window,
)
from rootcellar.backup.catalogue.history import History
from rootcellar.backup.catalogue.names import Kind
from rootcellar.backup.catalogue.records import Check, Finding, Link, Proof, Result
from rootcellar.errors import ChainError, NothingToRestoreError, UsageError
from tests.backup.builders import delta, full, heartbeat, history, moment, nanos, record, timeline

TOP = 60
PROVEN = (Finding(Check.REPLAYED, Result.PASSED),)


@st.composite
def pasts(draw):
    """Fulls and deltas over revisions 1 to TOP: overlapping, missing, repeated, with records or without."""
    fulls = draw(
        st.lists(
            st.builds(full, st.integers(1, TOP), at=st.integers(0, 5), recorded=st.booleans()), max_size=4
        )
    )
    cuts = sorted(draw(st.sets(st.integers(1, TOP), max_size=12)))
    deltas = [delta(a + 1, b, recorded=draw(st.booleans())) for a, b in itertools.pairwise(cuts)]
    deltas = [each for each in deltas if draw(st.integers(0, 4))]
    for start, length in draw(st.lists(st.tuples(st.integers(1, TOP), st.integers(0, 20)), max_size=5)):
        deltas.append(delta(start, min(TOP, start + length)))
    unique = {snapshot.key: snapshot for snapshot in fulls + deltas}
    return history(*unique.values())


def can_reach(past, base, revision, without=()) -> bool:
    """By brute force: every revision above the full's is in some delta."""
    deltas = [each for each in past.snapshots if not each.is_full and each.key not in without]
    return all(
        any(each.name.start <= wanted <= each.last for each in deltas)
        for wanted in range(base.last + 1, revision + 1)
    )


def held_to(plan, revision):
    """Follow a plan as the applier does; it must cross no gap and end where it says."""
    position = plan.full.last
    assert plan.full.is_full
    for step in plan.steps:
        assert step.snapshot.name.kind is Kind.DELTA
        assert step.after == position
        assert step.snapshot.name.start <= position + 1
        assert position < step.upto <= step.snapshot.last
        position = step.upto
    assert position == revision == plan.reach
    assert plan.revision == revision


@given(pasts(), st.integers(0, TOP + 1))
def test_a_plan_to_a_revision_exists_when_one_can_and_crosses_no_gap(past, revision):
    below = [each for each in past.snapshots if each.is_full and each.last <= revision]
    usable = [each for each in below if can_reach(past, each, revision)]
    if usable:
        plan = plan_chain(past, AtRevision(revision))
        held_to(plan, revision)
        assert plan.full.last == max(each.last for each in usable)
        return
    with pytest.raises(ChainError if below else NothingToRestoreError) as told:
        plan_chain(past, AtRevision(revision))
    if below:
        offered = int(re.search(r"--to-revision (\d+)$", told.value.hint)[1])
        held_to(plan_chain(past, AtRevision(offered)), offered)
        assert not any(can_reach(past, each, offered + 1) for each in below)


@given(pasts(), st.data())
def test_damaged_objects_are_gone_around_when_that_is_possible(past, data):
    if not past.snapshots:
        return
    damaged = data.draw(st.sets(st.sampled_from([each.key for each in past.snapshots])))
    revision = data.draw(st.integers(0, TOP))
    usable = [
        each
        for each in past.snapshots
        if each.is_full and each.key not in damaged and each.last <= revision
        if can_reach(past, each, revision, damaged)
    ]
    if usable:
        plan = plan_chain(past, AtRevision(revision), exclude=damaged)
        held_to(plan, revision)
        assert not damaged & {each.key for each in plan.snapshots}
    else:
        with pytest.raises((ChainError, NothingToRestoreError)):
            plan_chain(past, AtRevision(revision), exclude=damaged)


@given(pasts(), st.data())
def test_latest_is_the_newest_revision_in_any_object_damaged_or_not(past, data):
    if not past.snapshots:
        return
    damaged = data.draw(st.sets(st.sampled_from([each.key for each in past.snapshots])))
    newest = max(each.last for each in past.snapshots)
    try:
        plan = plan_chain(past, Latest(), exclude=damaged)
    except (ChainError, NothingToRestoreError):
        with pytest.raises((ChainError, NothingToRestoreError)):
            plan_chain(past, AtRevision(newest), exclude=damaged)
    else:
        held_to(plan, newest)


@st.composite
def timed_pasts(draw):
    """A history as one writer with one clock would have captured it, some of it then lost.

    Returns the snapshots, the second in which each revision was received, and a second near one of those.
    """
    steps = draw(st.lists(st.integers(0, 900), min_size=2, max_size=25))
    received, now = {}, 0.25
    for revision, step in enumerate(steps, 1):
        now += step / 4
        received[revision] = now
    snapshots, position, clock = [], 0, 0.0
    while position < len(steps):
        last = draw(st.integers(position + 1, min(position + 4, len(steps))))
        clock = max(clock, received[last]) + draw(st.integers(0, 8)) / 4
        recorded = draw(st.booleans())
        if draw(st.booleans()) and draw(st.booleans()):
            snapshots.append(full(last, at=clock, recorded=recorded))
        start = position + 1
        times = {"first_received": moment(received[start]), "last_received": moment(received[last])}
        snapshots.append(delta(start, last, at=clock, **(times if recorded else {})))
        position = last
    kept = [each for each in snapshots if draw(st.integers(0, 5))]
    if draw(st.integers(0, 3)):
        kept.insert(0, full(1, at=received[1]))
    at = draw(st.sampled_from(sorted(received.values()))) + draw(st.integers(-8, 8)) / 4
    return history(*kept), received, at


def applied(plan, received, at):
    """(the revision reached, whether an event after the moment was met)."""
    position = plan.full.last
    for step in plan.steps:
        for revision in range(position + 1, step.upto + 1):
            if received[revision] > at:
                return position, True
            position = revision
    return position, False


@given(timed_pasts())
def test_a_plan_to_a_time_ends_at_the_last_revision_received_by_then(timed):
    past, received, at = timed
    captured = max((each.last for each in past.snapshots), default=0)
    wanted = max((revision for revision, when in received.items() if when <= at), default=0)
    bases = [each for each in past.snapshots if each.is_full and each.ended_at <= nanos(at)]
    try:
        plan = plan_chain(past, AtTime(nanos(at)))
    except NothingToRestoreError:
        assert not bases
        return
    except ChainError:
        # Only what is missing may be a reason: with all of it there, or one event too many, there is a plan.
        target = min(wanted + 1, captured)
        assert not can_reach(past, max(bases, key=lambda each: each.last), target)
        return
    reached, stopped = applied(plan, received, at)
    if plan.must_stop and not stopped:
        assert not can_reach(past, plan.full, min(wanted + 1, captured))
    else:
        assert reached == min(wanted, captured)
    began, held = plan.covers
    assert began <= held <= nanos(at)


def test_an_empty_prefix_has_nothing_to_restore():
    with pytest.raises(NothingToRestoreError, match="there is no backup here") as told:
        plan_chain(history(), Latest())
    assert told.value.hint == "check the store's URL and prefix"


@pytest.mark.parametrize(
    ("many", "named"), [(1, "c0"), (3, "c0 or c1 or c2"), (5, "c0 or c1 or c2, or 2 more (`rootcellar ls`")]
)
def test_who_left_out_a_part_of_the_prefix_is_told_where_backups_lie(many, named):
    with pytest.raises(NothingToRestoreError, match="there is no backup here") as told:
        plan_chain(History((), below=tuple(f"c{number}" for number in range(many))), Latest())
    assert f"put behind the URL {named}" in told.value.hint


def test_deltas_without_a_full_are_nothing_to_restore():
    with pytest.raises(NothingToRestoreError, match="no usable full at or below revision 20") as told:
        plan_chain(history(delta(11, 20)), Latest())
    assert told.value.hint == "no full is left on it"


def test_a_revision_before_the_first_full_is_nothing_to_restore():
    with pytest.raises(NothingToRestoreError, match="at or below revision 5") as told:
        plan_chain(history(full(10), delta(11, 20)), AtRevision(5))
    assert told.value.hint == "the first full there is at revision 10"


def test_a_revision_that_was_never_captured_is_told_from_a_gap():
    past = history(full(10), delta(11, 20), delta(31, 40))
    with pytest.raises(ChainError, match="revision 50 was not captured: the newest on its timeline is 40"):
        plan_chain(past, AtRevision(50))
    with pytest.raises(ChainError, match="no chain reaches revision 40: the furthest ends at 20") as told:
        plan_chain(past, Latest())
    assert told.value.hint == "revision 20 can be restored: --to-revision 20"


def test_a_missing_delta_is_bridged_by_an_older_full_when_another_delta_covers_it():
    past = history(full(10), delta(11, 30), full(20), delta(26, 40))
    assert plan_chain(past, AtRevision(40)).full.last == 20
    steps = plan_chain(past, AtRevision(40)).steps
    assert [(step.snapshot.name.start, step.snapshot.last, step.after) for step in steps] == [
        (11, 30, 20),
        (26, 40, 30),
    ]


def test_two_leaders_that_overlap_are_one_history():
    past = history(full(10), delta(11, 828), delta(11, 841), delta(829, 900))
    held_to(plan_chain(past, Latest()), 900)
    held_to(plan_chain(past, AtRevision(835)), 835)
    damaged = delta(11, 841).key
    held_to(plan_chain(past, Latest(), exclude={damaged}), 900)


def test_a_full_that_holds_more_than_its_name_skips_what_lies_below():
    past = history(full(10, real=25), delta(11, 20), delta(21, 30))
    [step] = plan_chain(past, Latest()).steps
    assert (step.snapshot.last, step.after) == (30, 25)
    with pytest.raises(NothingToRestoreError):
        plan_chain(past, AtRevision(15))


def test_what_is_learned_of_a_full_changes_the_plan():
    old, new = full(5), full(10)
    past = history(old, new, delta(6, 10), delta(11, 20), delta(21, 30))
    assert plan_chain(past, AtRevision(15)).full == new
    assert not plan_chain(past, AtRevision(15)).full.is_sure
    wiser = past.learned(new.key, 25)
    held_to(plan_chain(wiser, AtRevision(15)), 15)
    assert plan_chain(wiser, AtRevision(15)).full == old
    assert plan_chain(wiser, Latest()).steps[0].after == 25


def test_the_newest_full_is_taken_although_an_older_one_also_leads_there():
    past = history(full(10), delta(11, 20), full(20), delta(21, 30))
    plan = plan_chain(past, Latest())
    assert (plan.full.last, len(plan.steps)) == (20, 1)


def test_a_time_before_the_first_full_is_nothing_to_restore():
    with pytest.raises(NothingToRestoreError, match="taken at or before that time"):
        plan_chain(history(full(10, at=100)), AtTime(nanos(100.5)))
    assert plan_chain(history(full(10, at=100)), AtTime(nanos(101))).full.last == 10


def test_a_recorded_full_serves_from_the_moment_it_was_captured():
    past = history(full(10, at=100.25, recorded=True))
    assert plan_chain(past, AtTime(nanos(100.25))).full.last == 10
    with pytest.raises(NothingToRestoreError):
        plan_chain(past, AtTime(nanos(100.2)))


def test_fulls_alone_do_not_pretend_to_know_what_happened_between_them():
    past = history(full(10, at=3600), full(20, at=7200))
    with pytest.raises(
        ChainError, match="what was written between revision 10 and that time is missing"
    ) as told:
        plan_chain(past, AtTime(nanos(5000)))
    assert told.value.hint == "revision 10 can be restored: --to-revision 10"


def test_a_gap_behind_the_last_step_obliges_the_applier_to_stop_before_it():
    past = history(full(10, at=100), delta(11, 20, at=400), delta(31, 40, at=1000))
    plan = plan_chain(past, AtTime(nanos(300)))
    assert plan.must_stop
    assert plan.reach == 20
    with pytest.raises(ChainError, match="between revision 20 and that time is missing"):
        plan_chain(past, AtTime(nanos(500)))


def test_deltas_of_another_clock_are_included_within_the_slack():
    """The second leader's clock is behind: a delta named earlier can hold later events."""
    past = history(full(10, at=0), delta(11, 20, at=1000), delta(21, 30, at=990), delta(31, 40, at=2000))
    plan = plan_chain(past, AtTime(nanos(995)))
    assert [step.snapshot.last for step in plan.steps] == [20, 30, 40]


def test_far_later_deltas_are_not_fetched():
    deltas = [delta(10 * n + 1, 10 * n + 10, at=600 * n) for n in range(1, 100)]
    plan = plan_chain(history(full(10), *deltas), AtTime(nanos(1300)))
    assert [step.snapshot.last for step in plan.steps] == [20, 30, 40]


def test_recorded_times_end_the_search_at_once():
    past = history(
        full(10),
        delta(11, 20, at=900, first_received=moment(10), last_received=moment(500)),
        delta(21, 30, at=901, first_received=moment(800), last_received=moment(900)),
    )
    assert [step.snapshot.last for step in plan_chain(past, AtTime(nanos(499))).steps] == [20]
    assert [step.snapshot.last for step in plan_chain(past, AtTime(nanos(700))).steps] == [20]
    assert [step.snapshot.last for step in plan_chain(past, AtTime(nanos(800))).steps] == [20, 30]


def test_a_quiet_etcd_is_known_by_its_heartbeat():
    quiet = history(full(10, at=100), beat=heartbeat(5000, 10))
    assert plan_chain(quiet, AtTime(nanos(4000))).covers[1] == nanos(4000)
    silent = history(full(10, at=100))
    assert plan_chain(silent, AtTime(nanos(4000))).covers[1] == nanos(101)


def test_the_compaction_of_a_plan_is_the_last_at_or_below_its_end():
    past = history(
        full(10, real=10, compact_revision=5),
        delta(11, 20, compact_revision=15),
        delta(21, 30, compact_revision=28),
    )
    plan = plan_chain(past, Latest())
    assert [plan.compaction(at) for at in (30, 28, 27, 15, 14, 5, 4)] == [28, 28, 15, 15, 5, 5, -1]


# Timelines


def forked():
    """Timeline 1 up to 50; restored to 25, counting on from 1025; timeline 2 begins with a full at 1030."""
    return history(
        full(10, at=100),
        delta(11, 20, at=200),
        delta(21, 50, at=300),
        full(1030, at=500, timeline=2),
        delta(1031, 1040, at=600, timeline=2),
        timelines=[timeline(1), timeline(2, 1, 25, at=450)],
    )


def test_the_newest_timeline_is_taken_unless_told():
    past = forked()
    assert plan_chain(past, Latest()).timeline == 2
    held_to(plan_chain(past, Latest()), 1040)
    held_to(plan_chain(past, Latest(), timeline=1), 50)


def test_a_revision_before_the_fork_is_found_on_the_parent():
    plan = plan_chain(forked(), AtRevision(22))
    held_to(plan, 22)
    assert plan.timeline == 1


def test_what_the_fork_left_behind_is_reached_only_by_its_timeline():
    with pytest.raises(ChainError, match="revision 30 is above 25, where timeline 1 was left") as told:
        plan_chain(forked(), AtRevision(30))
    assert told.value.hint == "what was written there since can be restored with --timeline 1"
    held_to(plan_chain(forked(), AtRevision(30), timeline=1), 30)


def test_a_time_before_the_fork_stays_at_or_below_it():
    plan = plan_chain(forked(), AtTime(nanos(400)))
    assert (plan.timeline, plan.reach) == (1, 25)
    assert plan_chain(forked(), AtTime(nanos(400)), timeline=1).reach == 50


def test_a_timeline_that_holds_nothing_yet_is_its_parent_up_to_the_fork():
    past = history(full(10), delta(11, 50), timelines=[timeline(1), timeline(2, 1, 25)])
    plan = plan_chain(past, Latest())
    held_to(plan, 25)
    assert plan.timeline == 1


def test_a_timeline_whose_full_is_damaged_is_not_quietly_replaced_by_its_parent():
    damaged = full(1030, at=500).key
    with pytest.raises(NothingToRestoreError, match="timeline 2 has no usable full"):
        plan_chain(forked(), Latest(), exclude={damaged})


def test_a_fork_of_a_fork_reaches_back_through_both():
    past = history(
        full(10),
        delta(11, 50),
        full(40, at=9, timeline=2),
        delta(41, 60, timeline=2),
        full(35, at=99, timeline=3),
        timelines=[timeline(1), timeline(2, 1, 30), timeline(3, 2, 20)],
    )
    held_to(plan_chain(past, AtRevision(20)), 20)
    with pytest.raises(ChainError, match="revision 25 is above 20"):
        plan_chain(past, AtRevision(25))


def test_a_timeline_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match="there is no timeline 7") as told:
        plan_chain(forked(), Latest(), timeline=7)
    assert told.value.hint == "these exist: 1, 2"


def test_timelines_are_known_from_snapshots_when_their_documents_are_lost():
    past = history(full(10), full(20, timeline=2, recorded=True))
    assert past.newest_timeline == 2
    assert plan_chain(past, Latest()).full.last == 20


def test_a_timeline_document_that_names_itself_as_parent_ends_the_lineage():
    past = history(full(10, timeline=2), timelines=[timeline(2, 2, 5)])
    assert past.lineage() == [(2, None)]


# Chains, orphans and the window


def test_chains_lead_from_full_to_full():
    past = history(full(10), delta(11, 20), delta(21, 30), full(30), delta(31, 40))
    first, second = chains(past, 1)
    assert ([each.last for each in first.deltas], first.reach, first.gap) == ([20, 30], 30, None)
    assert ([each.last for each in second.deltas], second.reach, second.gap) == ([40], 40, None)


@pytest.mark.parametrize(
    ("snapshots", "gap"),
    [
        ((full(10), delta(11, 20), delta(26, 30)), Gap(21, 25)),
        ((full(10), full(20)), Gap(11, 19)),
        ((full(10), delta(11, 15), full(20)), Gap(16, 19)),
        ((full(10), delta(11, 15), delta(18, 20), full(20)), Gap(16, 17)),
        ((full(10), full(11)), None),
        ((full(10), delta(11, 25), full(20)), None),
        ((full(10),), None),
    ],
)
def test_gaps_are_told_behind_the_chain_they_end(snapshots, gap):
    assert chains(history(*snapshots), 1)[0].gap == gap


def test_deltas_that_no_full_leads_to_are_orphans():
    lost, found, early = delta(26, 30), delta(11, 20), delta(3, 9)
    assert orphans(history(full(10), found, lost, early), 1) == [early, lost]


@given(pasts())
def test_the_window_holds_exactly_what_can_be_restored(past):
    window = recovery_window(past, (), 1)
    for revision in range(TOP + 2):
        inside = any(first <= revision <= last for first, last in window.ranges)
        try:
            plan_chain(past, AtRevision(revision))
        except (ChainError, NothingToRestoreError):
            assert not inside
        else:
            assert inside
    assert list(window.ranges) == sorted(window.ranges)


@given(pasts())
def test_chains_and_orphans_account_for_every_needed_delta(past):
    found = chains(past, 1)
    lost = {each.key for each in orphans(past, 1)}
    for chain in found:
        position = chain.full.last
        for each in chain.deltas:
            assert each.key not in lost
            assert each.name.start <= position + 1 <= each.last
            position = each.last
        assert position == chain.reach
    ends = [chain.reach for chain in found]
    for each in past.snapshots:
        if not each.is_full and each.key not in lost:
            assert each.last <= max(ends)


def proof(*snapshots, revision, findings=PROVEN, sha256="b" * 64, at=0.0) -> Proof:
    return Proof(
        objects=tuple(Link(each.name.key, sha256) for each in snapshots),
        revision=revision,
        findings=findings,
        started_at=moment(at),
        finished_at=moment(at),
        by="verify/1",
    )


def test_the_last_proven_revision_is_that_of_the_newest_replay():
    base, one, two = full(10, recorded=True), delta(11, 20), delta(21, 30)
    older, newer = proof(base, one, revision=20), proof(base, one, two, revision=30)
    assert recovery_window(history(base, one, two), (older, newer), 1).proof == newer


@pytest.mark.parametrize(
    "findings",
    [
        (),
        (Finding(Check.REPLAYED, Result.FAILED, "HashKV differs"),),
        (Finding(Check.REPLAYED, Result.SKIPPED), Finding(Check.STRUCTURE, Result.PASSED)),
        (Finding(Check.REPLAYED, Result.PASSED), Finding(Check.BOOTED, Result.FAILED, "etcd ended over it")),
    ],
)
def test_what_was_not_replayed_or_failed_is_not_proven(findings):
    base = full(10)
    assert recovery_window(history(base), (proof(base, revision=10, findings=findings),), 1).proof is None


def test_a_proof_of_objects_that_are_gone_or_were_replaced_proves_nothing():
    base, one = full(10, recorded=True), delta(11, 20)
    whole = proof(base, one, revision=20)
    assert recovery_window(history(base), (whole,), 1).proof is None
    other_bytes = proof(base, revision=10, sha256="c" * 64)
    assert recovery_window(history(base), (other_bytes,), 1).proof is None
    assert recovery_window(history(base), (proof(base, revision=10),), 1).proof is not None


def test_a_record_that_is_read_is_the_one_that_was_built():
    assert record(full(10).name).name == full(10).name
