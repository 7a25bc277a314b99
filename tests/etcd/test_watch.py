import os
import shutil
import threading

import pytest

from rootcellar.errors import CompactedError, EtcdUnavailableError, ForkedError
from rootcellar.etcd import operations as ops
from rootcellar.etcd._proto import rpc_pb2 as pb
from rootcellar.etcd.answers import Version
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import Connection
from rootcellar.etcd.process import EtcdProcess
from rootcellar.etcd.watch import reports_progress


def collect(watch, until):
    """Every event up to a revision, held to the watch's promise."""
    events, last = [], 0
    while last < until:
        batch = watch.get(60)
        assert batch is not None, f"nothing came after revision {last}"
        if batch.events:
            assert batch.events[0].kv.mod_revision > last
            assert batch.events[-1].kv.mod_revision == batch.last
        last = batch.last
        events += batch.events
    return events


def revisions(events):
    return [event.kv.mod_revision for event in events]


def test_all_history_is_delivered_in_order(client):
    for number in range(2500):
        client.put(b"%d" % (number % 7), b"%d" % number)
    with client.watch(2) as watch:
        events = collect(watch, 2501)
    assert revisions(events) == list(range(2, 2502))
    assert [event.kv.value for event in events] == [b"%d" % number for number in range(2500)]


def test_a_start_in_the_middle_is_inclusive_and_one_in_the_future_waits(client):
    newest = [client.put(b"a", b"").revision for _ in range(5)][-1]
    with client.watch(newest - 1) as watch, client.watch(newest + 2) as future:
        assert revisions(collect(watch, newest)) == [newest - 1, newest]
        assert future.get(0.1) is None
        client.put(b"a", b"too early")
        client.put(b"a", b"in time")
        assert [event.kv.value for event in collect(future, newest + 2)] == [b"in time"]


def test_only_the_asked_keys_are_delivered(client):
    client.put(b"a/1", b"")
    client.put(b"b/1", b"")
    newest = client.put(b"a/2", b"").revision
    with client.watch(2, b"a/", b"a0") as watch:
        assert [event.kv.key for event in collect(watch, newest)] == [b"a/1", b"a/2"]


def test_the_events_of_a_transaction_stay_together_in_their_order(client):
    client.put(b"old", b"")
    steps = [ops.put(b"z", b"1"), ops.delete(b"old"), ops.put(b"a", b"2")]
    newest = client.txn(steps).header.revision
    with client.watch(newest) as watch:
        batch = watch.get(20)
    assert [(event.type, event.kv.key) for event in batch.events] == [(0, b"z"), (1, b"old"), (0, b"a")]
    assert set(revisions(batch.events)) == {newest}


def test_large_values_and_large_revisions_arrive_whole(client):
    values = [os.urandom(1_400_000) for _ in range(12)]
    for number, value in enumerate(values):
        client.put(b"large/%d" % number, value)
    keys = [b"key/%d/" % number + bytes([97 + number]) * 1_000_000 for number in range(8)]
    for key in keys:
        client.put(key, b"")
    newest = client.header().revision + 1
    assert client.delete(b"key/", b"key0") == len(keys)
    client.put(b"after", b"")
    with client.watch(2) as watch:
        events = collect(watch, newest + 1)
    assert [event.kv.value for event in events[:12]] == values
    deletes = [event.kv.key for event in events if event.kv.mod_revision == newest]
    assert deletes == keys
    assert revisions(events) == [*range(2, newest), *[newest] * len(keys), newest + 1]


def test_one_revision_really_comes_in_fragments(client):
    """The premise of the test above: 8 MB of deletes in one revision are more than one message."""
    for number in range(8):
        client.put(b"key/%d/" % number + bytes([97 + number]) * 1_000_000, b"")
    client.delete(b"key/", b"key0")
    create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=10, fragment=True)
    hold = threading.Event()

    def questions():
        yield pb.WatchRequest(create_request=create)
        hold.wait()

    connection = Connection(client.endpoints)
    call = connection.watch(questions(), client.endpoints[0], ())
    sizes = []
    for response in call:
        if response.events:
            sizes.append(len(response.events))
        if sum(sizes) == 8:
            break
    hold.set()
    call.cancel()
    connection.close()
    assert len(sizes) > 2


def test_a_compacted_start_is_an_error_that_asks_for_a_full(client):
    newest = [client.put(b"a", b"").revision for _ in range(10)][-1]
    client.compact(newest - 2)
    with client.watch(2) as watch, pytest.raises(CompactedError, match="revision 2 is gone") as caught:
        watch.get(20)
    assert caught.value.hint == "take a new full"


def test_compaction_behind_a_running_watch_does_not_disturb_it(client):
    with client.watch(2) as watch:
        for _ in range(200):
            newest = client.put(b"a", b"").revision
            if newest % 20 == 0:
                collected = collect(watch, newest)
                client.compact(newest)
        assert revisions(collected)[-1] == 200
        assert watch.get(20).last == 201


def test_a_watch_that_was_away_during_a_compaction_says_what_is_gone(alone, client):
    client.put(b"a", b"")
    elsewhere = EtcdProcess(alone.binary, alone.data_dir, flags=alone.flags)
    with client.watch(2) as watch:
        assert watch.get(20).last == 2
        alone.kill()
        with elsewhere, EtcdClient([elsewhere.client_url]) as other:
            elsewhere.wait_ready(other)
            newest = [other.put(b"a", b"").revision for _ in range(3)][-1]
            other.compact(newest)
        alone.start()
        with pytest.raises(CompactedError, match="revision 3 is gone"):
            watch.get(20)


def test_progress_is_reported_where_it_can_be_trusted(client, binary):
    newest = client.put(b"a", b"").revision
    with client.watch(newest + 1, b"elsewhere") as watch:
        client.put(b"a", b"")
        batch = None
        for _ in range(300 if reports_progress(binary.version) else 20):
            watch.request_progress()
            batch = watch.get(0.2)
            if batch:
                break
        if reports_progress(binary.version):
            assert batch.events == ()
            assert batch.last == newest + 1
        else:
            assert batch is None
        written = client.put(b"elsewhere", b"").revision
        while not (batch and batch.events):
            batch = watch.get(20)
        assert revisions(batch.events) == [written]


@pytest.mark.parametrize(
    ("version", "trusted"),
    [
        ("3.4.24", False),
        ("3.4.25", True),
        ("3.5.0", False),
        ("3.5.7", False),
        ("3.5.8", True),
        ("3.6.0", True),
    ],
)
def test_manual_progress_is_trusted_since_its_fix(version, trusted):
    assert reports_progress(Version.parse(version)) is trusted


def test_a_restarted_member_is_watched_on(alone, client):
    client.put(b"a", b"0")
    with client.watch(2) as watch:
        assert watch.get(20).last == 2
        for number in range(3):
            alone.kill()
            alone.start()
            with EtcdClient([alone.client_url]) as other:
                alone.wait_ready(other)
                newest = other.put(b"a", b"%d" % number).revision
            assert revisions(collect(watch, newest)) == [newest]


def test_a_watch_holds_etcd_to_the_change_before_its_start(client):
    for value in b"1", b"2", b"3":
        newest = client.put(b"a", value).revision
    before = client.fingerprint(newest - 1)
    with client.watch(newest, anchor=before) as watch:
        assert revisions(watch.get(20).events) == [newest]
    with client.watch(newest, anchor=client.fingerprint(newest)) as watch, pytest.raises(ForkedError):
        watch.get(20)
    assert before != client.fingerprint(newest)


def test_an_etcd_restored_behind_a_running_watch_is_noticed(alone, client, tmp_path):
    client.put(b"a", b"1")
    client.put(b"a", b"2")
    alone.stop()
    shutil.copytree(alone.data_dir, tmp_path / "older")
    alone.start()
    alone.wait_ready(client)
    client.put(b"a", b"3")
    with client.watch(2) as watch:
        collect(watch, 4)
        alone.kill()
        shutil.rmtree(alone.data_dir)
        (tmp_path / "older").rename(alone.data_dir)
        alone.start()
        with EtcdClient([alone.client_url]) as other:
            alone.wait_ready(other)
            other.put(b"a", b"another three")
            other.put(b"a", b"4")
        with pytest.raises(ForkedError, match="revision 4 is not the change it was") as caught:
            watch.get(20)
    assert "new timeline" in caught.value.hint


def test_the_newest_compaction_can_be_asked_for(client):
    assert client.compact_revision() == -1
    newest = [client.put(b"a", b"").revision for _ in range(9)][-1]
    assert client.compact_revision() == -1
    client.compact(newest - 3)
    assert client.compact_revision() == newest - 3
    assert client.fingerprint(newest - 4) is None
    assert client.fingerprint(newest)


def test_a_watch_gives_up_once_nobody_answers(alone, client):
    revision = client.put(b"a", b"").revision
    with client.watch(revision, patience=0.5) as watch:
        assert watch.get(20).last == revision  # a connection that was never whole breaks in other words
        alone.kill()
        with pytest.raises(EtcdUnavailableError, match="refused"):
            watch.get(60)


def test_a_closed_watch_ends_its_iteration(client):
    watch = client.watch(1)
    consumer = threading.Thread(target=lambda: list(watch), daemon=True)
    consumer.start()
    watch.close()
    consumer.join(10)
    assert not consumer.is_alive()
    with pytest.raises(EOFError):
        watch.get()


class Writer(threading.Thread):
    """Writes until stopped, whatever becomes of single members; deletes and transactions among the puts."""

    def __init__(self, endpoints):
        super().__init__(daemon=True)
        self.client = EtcdClient(endpoints, timeout=2)
        self.enough = threading.Event()
        self.written = 0

    def run(self):
        number = 0
        while not self.enough.is_set():
            number += 1
            key = b"k%d" % (number % 50)
            try:
                if number % 10:
                    self.client.put(key, b"%d" % number)
                elif number % 20:
                    self.client.txn([ops.put(key, b"t"), ops.put(b"t%d" % number, b""), ops.delete(b"k1")])
                else:
                    self.client.delete(key)
                self.written += 1
            except EtcdUnavailableError:
                pass
        self.client.close()

    def more(self, count):
        """Wait until it has written that many more."""
        target = self.written + count
        while self.written < target:
            assert self.is_alive()
            self.enough.wait(0.005)


def test_killed_leaders_cost_no_event_and_repeat_none(three, leader):
    endpoints = [member.client_url for member in three]
    writer = Writer(endpoints)
    with EtcdClient(endpoints) as client, client.watch(2) as watch:
        writer.start()
        for _ in range(3):
            writer.more(100)
            victim = leader(three, client)
            victim.kill()
            writer.more(100)
            victim.start()
            victim.wait_ready(client)
        writer.more(100)
        writer.enough.set()
        writer.join()
        newest = client.header().revision
        events = collect(watch, newest)
        with client.watch(2) as again:
            expected = collect(again, newest)
    assert [(e.kv.mod_revision, e.type, e.kv.key, e.kv.value) for e in events] == [
        (e.kv.mod_revision, e.type, e.kv.key, e.kv.value) for e in expected
    ]
    assert sorted(set(revisions(events))) == list(range(2, newest + 1))
