"""What a copy takes and in which order: by example, and for whatever chains hypothesis makes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue.catalogue import Catalogue
from rootcellar.backup.catalogue.history import Snapshot
from rootcellar.backup.catalogue.names import SnapshotName, full, parse
from rootcellar.backup.catalogue.ownership import Marker
from rootcellar.backup.copy.plan import CopyWish, Known, plan_copy
from rootcellar.errors import IdentityError, NotFoundError
from tests.backup import builders
from tests.backup.builders import delta, moment

NOW = moment(10_000)
EMPTY = Catalogue(())
ALL = CopyWish()


def catalogue(*snapshots: Snapshot, **members) -> Catalogue:
    ordered = sorted(snapshots, key=lambda each: (each.name.order, each.key))
    return Catalogue(tuple(ordered), **members)


def marker(cluster: str, number: int = 1) -> Marker:
    return Marker(number=number, cluster_id=cluster, writer="agent/1", created_at=moment(0))


def names_of(plan) -> list[list[str]]:
    """Start, dash, last of each object, group by group."""
    return [[f"{m.snapshot.name.start}-{m.snapshot.name.last}" for m in group] for group in plan.groups]


THREE = catalogue(
    builders.full(10, at=100),
    delta(11, 15, at=110),
    delta(16, 20, at=120),
    builders.full(22, at=200),
    delta(21, 25, at=210),
    builders.full(30, at=300),
    delta(31, 33, at=310),
)


def test_everything_goes_in_groups_newest_first_each_full_before_its_deltas():
    plan = plan_copy(THREE, EMPTY, ALL, NOW)
    assert names_of(plan) == [["0-30", "31-33"], ["0-22", "21-25"], ["0-10", "11-15", "16-20"]]
    assert plan.size == 700


@pytest.mark.parametrize(
    ("wish", "fulls"),
    [
        (CopyWish(max_backups=2), ["0-30", "0-22"]),
        (CopyWish(max_backups=0), []),
        (CopyWish(max_backups=9), ["0-30", "0-22", "0-10"]),
        (CopyWish(max_age=timedelta(seconds=9_850)), ["0-30", "0-22"]),
        (CopyWish(max_age=timedelta(seconds=9_900)), ["0-30", "0-22"]),
        (CopyWish(max_age=timedelta(seconds=9_901)), ["0-30", "0-22", "0-10"]),
        (CopyWish(max_age=timedelta(seconds=9_850), max_backups=1), ["0-30"]),
        (CopyWish(max_age=timedelta(0)), []),
    ],
)
def test_filters_choose_by_the_full(wish, fulls):
    assert [group[0] for group in names_of(plan_copy(THREE, EMPTY, wish, NOW))] == fulls


def test_one_chain_has_the_delta_that_leads_on_into_the_next():
    plan = plan_copy(THREE, EMPTY, CopyWish(chain=full(10, builders.EPOCH + 100).name), NOW)
    assert names_of(plan) == [["0-10", "11-15", "16-20", "21-25"]]


def test_a_chain_that_is_not_there_is_told():
    with pytest.raises(NotFoundError, match="has no full Full-1"):
        plan_copy(THREE, EMPTY, CopyWish(chain="Full-1"), NOW)


def test_up_to_a_revision_takes_the_objects_that_hold_it():
    plan = plan_copy(THREE, EMPTY, CopyWish(upto=17), NOW)
    assert names_of(plan) == [["0-10", "11-15", "16-20"]]


def test_deltas_before_the_first_full_are_left_out_and_told():
    plan = plan_copy(catalogue(delta(5, 9), builders.full(10, at=1)), EMPTY, ALL, NOW)
    assert names_of(plan) == [["0-10"]]
    assert plan.orphans == (delta(5, 9).key,)


def final(last: int, at: int) -> Snapshot:
    name = full(last, builders.EPOCH + at, final=True)
    return Snapshot(name, name.key, 100)


def test_final_is_left_out_of_the_name():
    (group,) = plan_copy(catalogue(final(10, 1)), EMPTY, ALL, NOW).groups
    assert group[0].key == full(10, builders.EPOCH + 1).key


def test_a_final_full_that_is_there_under_either_name_is_not_copied_again():
    source = catalogue(final(10, 1))
    for there in (final(10, 1), builders.full(10, at=1)):
        ((move,),) = plan_copy(source, catalogue(there), ALL, NOW).groups
        assert (move.known, move.key) == (Known.SAME, there.key)


def known(here: Snapshot, there: Snapshot) -> Known:
    ((move,),) = plan_copy(catalogue(here), catalogue(there), ALL, NOW).groups
    return move.known


def test_what_is_there_is_known_by_its_record_or_has_to_be_read():
    bare, recorded = builders.full(10), builders.full(10, recorded=True)
    other = builders.full(10, recorded=True, stored_sha256="c" * 64)
    assert known(recorded, recorded) is Known.SAME
    assert known(bare, bare) is Known.SAME
    assert known(recorded, bare) is Known.UNSURE
    assert known(bare, recorded) is Known.UNSURE
    assert known(recorded, other) is Known.OTHER
    assert known(bare, replace(bare, size=99)) is Known.OTHER


def test_abandoned_objects_go_with_everything_and_with_no_filter():
    dead = replace(
        builders.full(50, timeline=1), key="abandoned/0000000001/full_00000000_00000050_1700000000.gz"
    )
    source = catalogue(builders.full(30, timeline=2), dead, timelines=(builders.timeline(1),))
    assert dead.key in [move.key for move in plan_copy(source, EMPTY, ALL, NOW).moves]
    assert len(plan_copy(source, EMPTY, CopyWish(max_backups=5), NOW).moves) == 1


def test_another_cluster_s_prefix_is_refused():
    source = catalogue(builders.full(10), marker=marker("a"))
    with pytest.raises(IdentityError, match="holds backups of cluster b, the source those of cluster a"):
        plan_copy(source, catalogue(marker=marker("b")), ALL, NOW)
    with pytest.raises(IdentityError, match="those of a cluster that nothing names"):
        plan_copy(catalogue(builders.full(10)), catalogue(marker=marker("b")), ALL, NOW)


def test_an_unmarked_prefix_with_objects_of_somebody_is_refused():
    source = catalogue(builders.full(10), marker=marker("a"))
    with pytest.raises(IdentityError, match="which the source has not"):
        plan_copy(source, catalogue(builders.full(11)), ALL, NOW)
    assert plan_copy(source, catalogue(builders.full(10)), ALL, NOW).moves


def test_a_destination_that_went_its_own_way_is_refused():
    source = catalogue(builders.full(10), marker=marker("a"), timelines=(builders.timeline(1),))
    own = replace_timeline(builders.timeline(1))
    with pytest.raises(IdentityError, match="timeline 1 of the destination is another"):
        plan_copy(source, catalogue(marker=marker("a"), timelines=(own,)), ALL, NOW)


def replace_timeline(timeline):
    return msgspec.structs.replace(timeline, nonce="f" * 16)


def test_a_copy_from_before_a_fork_is_still_the_source_s():
    """The cluster has another id since; the destination is bound to the one before."""
    before = builders.timeline(1)
    source = catalogue(builders.full(10), marker=marker("b", 2), timelines=(before,))
    destination = catalogue(marker=marker(before.cluster_id, 1), timelines=(before,))
    assert plan_copy(source, destination, ALL, NOW).moves


@st.composite
def histories(draw):
    """Fulls and deltas of one history, with gaps, orphans and deltas that span a full."""
    snapshots, revision = [], draw(st.integers(1, 5))
    kinds = draw(st.lists(st.sampled_from(["full", "delta", "gap"]), max_size=14))
    for at, kind in enumerate(kinds, 1):
        if kind == "full":
            snapshots.append(builders.full(revision, at=at, recorded=draw(st.booleans())))
        elif kind == "delta":
            last = revision + draw(st.integers(1, 9))
            snapshots.append(delta(revision + 1, last, at=at, recorded=draw(st.booleans())))
            revision = last
        else:
            revision += draw(st.integers(1, 4))
    return snapshots


wishes = st.builds(
    CopyWish,
    max_backups=st.none() | st.integers(0, 4),
    max_age=st.none() | st.integers(9_980, 10_010).map(lambda count: timedelta(seconds=count)),
    upto=st.none() | st.integers(0, 80),
)


@given(histories(), wishes, st.data())
def test_a_plan_can_be_stopped_anywhere_and_repeated(snapshots, wish, data):
    source = catalogue(*snapshots)
    plan = plan_copy(source, EMPTY, wish, NOW)
    chosen = [move.snapshot.key for move in plan.moves]
    assert len(set(chosen)) == len(chosen), "nothing goes twice"
    for group in plan.groups:
        assert group[0].snapshot.is_full, "a full is first"
        assert not any(move.snapshot.is_full for move in group[1:])
        orders = [move.snapshot.name.order for move in group]
        assert orders == sorted(orders)
    if wish == ALL:
        assert set(chosen) | set(plan.orphans) == {each.key for each in source.snapshots}

    # Stopped after some objects of each group, it goes on with exactly the others.
    done = [move.snapshot for group in plan.groups for move in group[: data.draw(st.integers(0, len(group)))]]
    again = plan_copy(source, catalogue(*done), wish, NOW)
    due = {move.snapshot.key for move in again.moves if move.is_due}
    assert due == set(chosen) - {each.key for each in done}
    whole = plan_copy(source, catalogue(*(move.snapshot for move in plan.moves)), wish, NOW)
    assert (whole.size, [move for move in whole.moves if move.is_due]) == (0, [])


@given(histories(), st.integers(0, 6))
def test_fewer_backups_are_the_newest_of_more(snapshots, count):
    source = catalogue(*snapshots)
    few = plan_copy(source, EMPTY, CopyWish(max_backups=count), NOW).groups
    assert few == plan_copy(source, EMPTY, CopyWish(max_backups=count + 1), NOW).groups[: len(few)]
    assert len(few) == min(count, sum(each.is_full for each in snapshots))


@given(st.integers(1, 10**12), st.sampled_from(["", ".gz", ".zlib"]))
def test_what_final_is_taken_from_is_still_a_name(last, suffix):
    name: SnapshotName = full(last, builders.EPOCH, suffix, final=True)
    ((move,),) = plan_copy(catalogue(Snapshot(name, name.key, 1)), EMPTY, ALL, NOW).groups
    found = parse(move.key)
    assert found is not None
    assert (found.last, found.suffix, found.final) == (last, suffix, False)
