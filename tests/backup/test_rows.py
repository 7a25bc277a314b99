"""A delta's events as rows: the right ones of them, whatever the window and however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.objects.delta import DELETE
from rootcellar.backup.restore.rows import SUB_BITS, Window, blocks, newest_below, wanted
from tests.backup.histories import BEGINNING, SECOND, compacted, invent, rows_of

EVENTS = invent(60, 1)
LAST = EVENTS[-1].mod_revision
revisions = st.integers(0, LAST + 5)
perhaps = st.one_of(st.none(), revisions)


def cut(events, sizes):
    """Lists as decoding makes them: a revision may span two."""
    lists, at = [], 0
    while at < len(events):
        size = sizes[len(lists) % len(sizes)]
        lists.append(events[at : at + size])
        at += size
    return lists


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=5)
moments = st.one_of(
    st.none(), st.integers(0, LAST + 2).map(lambda revision: BEGINNING + revision * SECOND + 7)
)


def chosen(window):
    return [
        event
        for event in EVENTS
        if event.mod_revision > window.above
        and (window.upto is None or event.mod_revision <= window.upto)
        and (window.moment is None or BEGINNING + event.mod_revision * SECOND <= window.moment)
    ]


windows = st.builds(Window, revisions, perhaps, moments)


@given(windows, sizes)
def test_the_window_passes_what_lies_between_its_bounds(window, sizes):
    found = list(wanted(cut(EVENTS, sizes), window))
    assert [event for events in found for event in events] == chosen(window)
    assert all(found)


@given(windows, sizes)
def test_rows_are_those_of_an_etcd_that_lived_through_the_events(window, sizes):
    rows, leases = {}, set()
    for block in blocks(cut(EVENTS, sizes), window, {}):
        rows.update(zip(block.keys, block.values, strict=True))
        leases |= block.leases
        assert list(block.keys) == sorted(block.keys)
    assert rows == rows_of(chosen(window))
    assert leases == {event.lease for event in chosen(window)} - {0}


@given(windows, sizes)
def test_blocks_say_what_they_were_made_of(window, sizes):
    found = list(blocks(cut(EVENTS, sizes), window, {}))
    expected = chosen(window)
    assert sum(block.events for block in found) == len(expected)
    if expected:
        assert found[0].first_revision == expected[0].mod_revision
        assert found[-1].last_revision == expected[-1].mod_revision
        assert found[-1].last_time == expected[-1].time


@given(st.integers(0, LAST + 3), sizes)
def test_below_a_compaction_only_each_keys_last_event_stays(compaction, sizes):
    window = Window(0, compact_revision=compaction)
    lists = cut(EVENTS, sizes)
    newest = {}
    reached = newest_below(lists, window, newest)
    assert reached == min(compaction, LAST) if compaction >= 2 else reached <= 2
    assert newest == {
        event.key: event.mod_revision << SUB_BITS | event.sub
        for event in EVENTS
        if event.mod_revision <= compaction
    }

    rows = {}
    for block in blocks(lists, window, newest):
        rows.update(zip(block.keys, block.values, strict=True))
    assert rows == rows_of(compacted(EVENTS, compaction))


@given(st.integers(2, LAST), st.integers(2, LAST), sizes)
def test_what_an_earlier_delta_superseded_is_known_to_the_later(boundary, compaction, sizes):
    """The newest event of a key may lie in another delta: what is noted spans the chain."""
    deltas = [
        [event for event in EVENTS if event.mod_revision <= boundary],
        [event for event in EVENTS if event.mod_revision > boundary],
    ]
    window = Window(0, compact_revision=compaction)
    newest = {}
    for events in deltas:
        newest_below(cut(events, sizes), window, newest)
    rows = {}
    for events in deltas:
        for block in blocks(cut(events, sizes), window, newest):
            rows.update(zip(block.keys, block.values, strict=True))
    assert rows == rows_of(compacted(EVENTS, compaction))


def test_the_made_up_history_has_all_that_matters():
    assert any(event.sub > 2 for event in EVENTS)
    assert any(event.type == DELETE for event in EVENTS)
    assert any(event.version > 3 for event in EVENTS)
