"""Cutting a watch into deltas, held to its rules on histories that hypothesis makes up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.capture.cut import Cutter, DeltaLimits
from rootcellar.backup.capture.gate import Gate
from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.errors import CompactedError, EtcdUnavailableError
from rootcellar.etcd._proto import kv_pb2
from rootcellar.etcd.answers import WatchBatch
from rootcellar.etcd.fingerprint import change_of, fingerprint

START = datetime(2026, 7, 24, 9, 23, 23, 100_000, UTC)
ALL_AT_ONCE = DeltaLimits(size=1 << 40, age=1e9)


class FakeWatch:
    """Batches, or an error, one after the other; then silence."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def get(self, timeout):
        if not self.steps:
            return None
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def put(revision, key=b"k", value=b"v", lease=0):
    kv = kv_pb2.KeyValue(
        key=key, value=value, create_revision=revision, mod_revision=revision, version=1, lease=lease
    )
    return kv_pb2.Event(kv=kv)


def batch(*events):
    return WatchBatch(events, events[-1].kv.mod_revision)


class To(Cutter):
    """Cuts to a revision that is known from the beginning; the gate, which nobody shuts, needs no leaving."""

    def next(self, target):
        return super().next(lambda: target)


def cutter(
    *steps, start=2, history=1 << 40, limits=ALL_AT_ONCE, clock=lambda: START, forbidden=range(0), **options
):
    gate = Gate(forbidden)
    return To(FakeWatch(*steps), start, history=history, gate=gate, limits=limits, clock=clock, **options)


def events_of(cut, suffix=names.GZIP):
    payload = codecs.hash_tail(codecs.decompress(iter(cut.chunks), suffix))
    return [event for events in delta.decode(payload, last=cut.last) for event in events]


@st.composite
def histories(draw):
    """Revisions from 2 on, each with a few events, in batches of whole revisions."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=40))
    revisions = []
    for revision, size in enumerate(sizes, 2):
        values = draw(st.lists(st.binary(max_size=300), min_size=size, max_size=size))
        revisions.append([put(revision, b"k%d" % i, value) for i, value in enumerate(values)])
    cuts = sorted(draw(st.sets(st.integers(1, len(revisions)), max_size=6)) | {len(revisions)})
    batches, begin = [], 0
    for end in cuts:
        batches.append(batch(*[event for revision in revisions[begin:end] for event in revision]))
        begin = end
    return revisions, batches


@given(
    histories(),
    st.integers(1, 4000),
    st.integers(0, 45),
    st.integers(0, 10),
    st.sampled_from([names.GZIP, names.ZLIB, names.NONE]),
)
def test_cuts_are_whole_and_contiguous_and_end_nowhere_forbidden(history, size, low, width, suffix):
    revisions, batches = history
    last = len(revisions) + 1
    forbidden = range(low, min(low + width, last))
    subject = cutter(*batches, limits=DeltaLimits(size=size, age=1e9), forbidden=forbidden, suffix=suffix)
    cuts = []
    while (cut := subject.next(last)) is not None:
        cuts.append(cut)
    position = 1
    for cut in cuts:
        assert cut.start == position + 1
        assert cut.last not in forbidden
        expected = [event for revision in revisions[cut.start - 2 : cut.last - 1] for event in revision]
        found = events_of(cut, suffix)
        assert [(e.key, e.value, e.mod_revision) for e in found] == [
            (e.kv.key, e.kv.value, e.kv.mod_revision) for e in expected
        ]
        assert cut.last_change == fingerprint(map(change_of, revisions[cut.last - 2]))
        assert cut.stored.size == sum(map(len, cut.chunks))
        position = cut.last
    assert position == last


def test_a_cut_ends_at_the_target_and_the_rest_waits():
    subject = cutter(batch(*[put(revision) for revision in range(2, 12)]))
    assert subject.next(5).last == 5
    assert subject.next(5) is None
    assert subject.next(11).start == 6


def test_a_cut_ends_once_it_is_large_or_old_enough():
    rounds = [batch(put(revision, value=bytes(1000))) for revision in range(2, 12)]
    sizes = DeltaLimits(size=3000, age=1e9)
    assert cutter(*rounds, limits=sizes).next(11).last == 4
    assert cutter(*rounds, limits=DeltaLimits(size=1 << 40, age=0)).next(11).last == 2


def test_a_revision_that_alone_exceeds_the_limit_is_not_split():
    subject = cutter(
        batch(*[put(2, b"%d" % n, bytes(5000)) for n in range(50)], put(3)), limits=DeltaLimits(1)
    )
    assert len(events_of(subject.next(3))) == 50


def test_a_hole_is_told_after_all_before_it_was_cut():
    subject = cutter(batch(put(2), put(3)), batch(put(5)))
    assert subject.next(5).last == 3
    with pytest.raises(CompactedError, match="revisions 4 to 4"):
        subject.next(5)


def test_a_hole_at_the_start_is_told_at_once():
    with pytest.raises(CompactedError, match="revisions 2 to 3"):
        cutter(batch(put(4))).next(4)


def test_what_came_before_an_error_is_cut_and_the_error_told_next():
    subject = cutter(batch(put(2), put(3)), EtcdUnavailableError("gone"))
    assert subject.next(9).last == 3
    with pytest.raises(EtcdUnavailableError, match="gone"):
        subject.next(9)


def test_an_error_where_no_delta_may_end_leaves_no_delta():
    subject = cutter(batch(put(2), put(3)), EtcdUnavailableError("gone"), forbidden=range(2, 7))
    with pytest.raises(EtcdUnavailableError, match="gone"):
        subject.next(9)


def test_silence_is_told_when_etcd_should_have_more():
    with pytest.raises(EtcdUnavailableError, match="nothing behind revision 1") as caught:
        cutter(limits=DeltaLimits(idle=0)).next(9)
    assert caught.value.hint


def test_progress_reports_are_no_events():
    subject = cutter(WatchBatch((), 1), batch(put(2)))
    assert subject.next(2).last == 2


def test_what_etcdbrctl_cannot_replay_is_named():
    many = [put(3, b"%d" % number) for number in range(10_241)]
    large = [put(4, value=bytes(1 << 20)), put(4, b"l", bytes(1 << 20))]
    fits = [put(5, b"%d" % number) for number in range(10_240)]
    below = [put(6, value=bytes((2 << 20) - 1000))]
    subject = cutter(batch(put(2), *many, *large, *fits, *below))
    assert subject.next(6).heavy == (3, 4)


def test_leases_are_collected():
    subject = cutter(batch(put(2, lease=7), put(3), put(4, lease=9), put(5, lease=7)))
    assert subject.next(5).leases == {7, 9}


def test_events_bear_the_time_they_came_at_even_if_the_clock_is_set_back():
    times = [START, START + timedelta(seconds=5), START + timedelta(seconds=2)]
    subject = cutter(batch(put(2)), batch(put(3)), clock=lambda: times.pop(0) if times else START)
    cut = subject.next(3)
    assert [event.time for event in events_of(cut)] == ["2026-07-24T09:23:28.1Z"] * 2
    assert cut.first_received == cut.last_received == cut.cut_at == START + timedelta(seconds=5)


def test_what_was_history_when_the_watch_began_is_a_catch_up():
    subject = cutter(batch(put(2), put(3)), batch(put(4)), history=3)
    assert subject.next(3).catch_up
    assert not subject.next(4).catch_up
