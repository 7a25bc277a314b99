from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.capture.overlap import is_superfluous, superfluous_deltas
from rootcellar.backup.catalogue.chain import recovery_window
from tests.backup.builders import delta, full, history, timeline

FULL = full(10, recorded=True)


@pytest.mark.parametrize(
    ("others", "is_needless"),
    [
        ([], False),
        ([delta(21, 30, epoch=2)], False),  # the successor goes on from it
        ([delta(11, 19, epoch=2)], False),
        ([delta(11, 20, epoch=2)], True),
        ([delta(11, 15, epoch=2), delta(16, 25, epoch=3)], True),
        ([delta(11, 15, epoch=2), delta(17, 25, epoch=3)], False),
        ([delta(12, 25, epoch=2)], False),
        ([delta(11, 25, epoch=1)], False),  # of its own writer, or one that may have to go as well
        ([delta(11, 25)], False),  # nothing tells of which epoch
    ],
)
def test_a_delta_can_go_once_recorded_deltas_of_higher_epochs_hold_its_revisions(others, is_needless):
    mine = delta(11, 20, at=5, epoch=1)
    assert is_superfluous(history(FULL, mine, *others), mine) is is_needless


@pytest.mark.parametrize(
    ("others", "is_needless"),
    [
        ([], False),
        ([FULL], False),
        ([FULL, delta(11, 40, epoch=2)], True),  # the successor began before it
        ([FULL, delta(31, 40, epoch=2)], False),  # the successor began behind it
        ([delta(11, 40, epoch=2)], False),  # nothing else leads to those deltas
    ],
)
def test_a_full_can_go_once_another_leads_past_it_by_deltas_of_higher_epochs(others, is_needless):
    mine = full(30, real=32, epoch=1, recorded=True)
    assert is_superfluous(history(mine, *others), mine) is is_needless


@pytest.mark.parametrize(("last", "is_needless"), [(25, True), (20, False), (15, False)])
def test_on_a_timeline_that_was_left_what_was_left_behind_can_go(last, is_needless):
    lines = (timeline(1), timeline(2, 1, 20))
    mine = delta(11, last, epoch=1)
    assert is_superfluous(history(FULL, mine, timelines=lines), mine) is is_needless


def test_what_etcdbrctl_does_not_see_any_more_is_left_alone():
    over = [delta(11, 20, at=1, epoch=1), delta(11, 22, at=2, epoch=2)]
    assert superfluous_deltas(history(FULL, *over)) == [over[0]]
    assert superfluous_deltas(history(FULL, full(30, recorded=True), *over)) == []


@given(
    spans=st.lists(
        st.tuples(st.integers(11, 40), st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=12
    ),
    seed=st.integers(0, 99),
)
def test_whatever_is_removed_in_whatever_order_nothing_becomes_unreachable(spans, seed):
    """Each removal is decided on what was there at the beginning, as by writers that were paused since."""
    deltas = [
        delta(start, start + more, at=index, epoch=epoch) for index, (start, more, epoch) in enumerate(spans)
    ]
    before = history(FULL, *deltas)
    removed = superfluous_deltas(before)
    random.Random(seed).shuffle(removed)
    window = recovery_window(before, (), 1).ranges
    for count in range(len(removed) + 1):
        gone = {each.key for each in removed[:count]}
        left = tuple(each for each in before.snapshots if each.key not in gone)
        assert recovery_window(replace(before, snapshots=left), (), 1).ranges == window
