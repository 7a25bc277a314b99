"""Sessions against real etcds: what they store is restored, and HashKV says whether it is what etcd had."""

from __future__ import annotations

import os
import shutil
import threading
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.full import begin_full, store_full
from rootcellar.backup.capture.outcome import Need
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.capture.session import Session
from rootcellar.backup.catalogue import fence
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, plan_chain
from rootcellar.errors import (
    EtcdError,
    EtcdUnavailableError,
    FencedError,
    ForkedError,
    TransientError,
)
from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from rootcellar.stores.limit import Bandwidth, LimitedStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import WRITER, Writers, a_scene
from tests.backup.plans import restore_members
from tests.backup.session_scene import (
    Collecting,
    Gated,
    LostAnswer,
    PausedBehindClaim,
    deltas,
    forget_peak,
    opened,
    peak,
    proven,
    publisher_of,
    wait_until,
)


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


@pytest.fixture
def each_line(etcd, etcd_line, store):
    with a_scene(etcd, etcd_line, store) as scene:
        yield scene


@pytest.mark.parametrize("rounds", [2])
def test_deltas_go_on_without_a_gap_while_fulls_are_taken(each_line, rounds):
    with opened(each_line) as session, Writers([each_line.member.endpoint]) as writers:
        writers.more(200)
        session.full()
        with Collecting(session, 0.05) as collecting:
            for _ in range(rounds):
                writers.more(150)
                session.full()
            writers.more(100)
            collecting.more(2)
        point = session.point
    written = deltas(each_line.store)
    assert all(other.start == one.last_revision + 1 for one, other in pairwise(written))
    assert point.revision == written[-1].last_revision
    fulls = [each for each in read_catalogue(each_line.store).snapshots if each.is_full]
    assert len(fulls) == rounds + 1
    for full in fulls:
        assert not [r for r in written if full.name.last <= r.last_revision < full.last], full.key
    middle = written[len(written) // 2].last_revision
    proven(each_line, middle, middle + 1)


def test_the_oldest_full_still_leads_to_the_end_when_the_newer_ones_are_gone(scene):
    with opened(scene) as session, Writers([scene.member.endpoint]) as writers:
        writers.more(50)
        first = session.full()
        with Collecting(session, 0.05):
            for _ in range(3):
                writers.more(60)
                session.full()
            writers.more(60)
    newer = [s.key for s in read_catalogue(scene.store).snapshots if s.is_full and s.key != first.key]
    assert len(newer) == 3
    catalogue = read_catalogue(scene.store)
    last = plan_chain(catalogue, Latest()).reach
    restored = scene.etcd.make(scene.line)
    restore_members([restored], scene.store, None, keep_history=True, exclude=frozenset(newer))
    restored.start()
    scene.must_equal(restored, last, last - 40)


def test_a_database_never_ends_behind_what_etcd_says_once_its_first_bytes_came(each_line):
    """The premise of `capture.gate`: on every line the read transaction is open by then."""
    ahead = 0
    with Writers([each_line.member.endpoint], threads=4) as writers:
        writers.more(100)
        with opened(each_line) as session:
            for _ in range(12):
                source = begin_full(each_line.client)
                reached = each_line.client.header().revision
                full = store_full(each_line.client, publisher_of(session), source, reached=reached)
                real = full.record.last_revision
                assert source.revision <= real <= reached
                ahead += real > source.revision
    assert ahead, "no full ended behind its name: nothing was tried"


def test_the_first_deltas_begin_at_the_revision_in_the_name_of_the_full_that_streams(scene):
    with opened(scene) as session, Writers([scene.member.endpoint]) as writers:
        writers.more(300)
        with Collecting(session, 0.05) as collecting:
            full = session.full()
            writers.more(50)
            collecting.more(2)
    written = deltas(scene.store)
    assert written[0].start == full.record.name.last + 1
    assert written[0].captured_at > full.record.captured_at
    proven(scene)


def test_a_period_ends_at_the_revision_that_etcd_has_then(scene):
    scene.write(5)
    with opened(scene) as session:
        session.full()
        last = scene.write(7)
        before = session.point.at
        done = session.collect(time.monotonic() + 0.3)
        assert [each.record.last_revision for each in done.written] == [last]
        assert (session.point.revision, session.point.at > before) == (last, True)
        assert session.collect().written == ()
        assert session.point.revision == last


def test_a_delta_is_cut_early_when_enough_has_come_together(scene):
    scene.write()
    with opened(scene, limits=DeltaLimits(size=20_000, age=1e9)) as session:
        session.full()
        with Collecting(session, 60):
            last = scene.write(60, value=bytes(1000))
            wait_until(lambda: len(deltas(scene.store)) >= 3)
    assert deltas(scene.store)[-1].last_revision == last
    proven(scene)


def test_what_the_store_did_not_take_is_put_again_the_same(scene):
    scene.write(5)
    store = Gated(scene.store)
    with opened(scene, store=store) as session:
        session.full()
        last = scene.write(5)
        store.failures = [TransientError("away"), TransientError("still away")]
        for _ in range(2):
            with pytest.raises(TransientError, match="away"):
                session.collect()
        scene.client.compact(last, physical=True)  # etcd cannot tell it again
        scene.write(3)
        done = session.collect()
        assert done.need is None
        assert len(set(store.puts[1:4])) == 1
    assert [(r.start, r.last_revision) for r in deltas(scene.store)] == [(7, 11), (12, 14)]
    restored = scene.restored()
    restored.etcdctl("compact", str(last), "--physical")
    scene.must_equal(restored, 14)


@pytest.mark.parametrize("prefix", ["catalogue/claims/", "v2/Incr", "catalogue/records/"])
def test_a_lost_answer_of_the_store_leaves_one_delta_and_one_record(scene, prefix):
    scene.write(5)
    with opened(scene) as session:
        session.full()
    scene.write(5)
    store = LostAnswer(scene.store, prefix)
    with opened(scene, store=store) as session:
        with pytest.raises(TransientError):
            session.collect()
        assert store.prefix is None
        session.collect()
    assert len(deltas(scene.store)) == 1
    proven(scene)


def test_a_writer_faster_than_the_store_is_slowed_and_not_held_in_memory(scene):
    """64 MiB that do not compress pass a store that takes 8 MiB a second, 1 MiB of JSON at a time."""
    scene.write()
    with opened(scene) as session:
        session.full()
    slow = LimitedStore(scene.store, upload=Bandwidth(8 << 20))
    with opened(scene, store=slow, limits=DeltaLimits(size=1 << 20, age=1e9)) as session:
        session.collect()
        forget_peak()
        before = peak()
        with Collecting(session, 3600):
            for number in range(128):
                last = scene.client.put(b"k%d" % (number % 50), os.urandom(512 << 10)).revision
            grown = peak() - before
        assert session.point.revision >= last
    assert grown < 40 << 20, f"{grown >> 20} MiB more"
    written = deltas(scene.store)
    assert len(written) > 40
    assert sum(record.payload_size for record in written) > 80 << 20
    assert all(other.start == one.last_revision + 1 for one, other in pairwise(written))
    proven(scene, last - 30)


def test_a_compaction_behind_our_back_leads_to_a_full_and_deltas_go_on(scene):
    scene.write(10)
    store = Gated(scene.store)
    with opened(scene, store=store, limits=DeltaLimits(size=200_000, age=1e9)) as session:
        session.full()
        session.collect()
        store.open.clear()
        with Collecting(session, 0.2) as collecting:
            scene.write(40, value=bytes(100_000))
            assert store.held.wait(60)
            # The watch is not read, so etcd's buffers fill up, and it loses its place.
            scene.write(200, value=bytes(100_000))
            last = scene.client.header().revision
            scene.client.compact(last, physical=True)
            scene.member.kill()
            scene.member.start()
            store.open.set()
            wait_until(lambda: Need.COMPACTED in collecting.needs)
            full = session.full()
            assert full.record.last_revision >= last
            end = scene.write(5)
            collecting.more(3)
        assert session.point.revision == end
    chain = chains(read_catalogue(scene.store), 1)[-1]
    assert (chain.full.key, chain.reach, chain.gap) == (full.key, end, None)
    proven(scene)


@pytest.mark.parametrize("is_far", [False, True])
def test_a_compaction_while_a_full_streams_has_deltas_go_on_behind_it_or_another_follow(scene, is_far):
    store = Gated(scene.store)
    with opened(scene, store=store) as session:
        session.full()
        session.collect()
        scene.write(20)
        store.open.clear()
        full = threading.Thread(target=session.full)
        full.start()
        assert store.held.wait(60)
        session._stream._drop_watch()  # noqa: SLF001  as where the connection breaks
        if is_far:
            scene.write(20)
        compacted = scene.client.header().revision
        scene.client.compact(compacted, physical=True)
        assert session.collect().need.need is Need.COMPACTED
        store.open.set()
        full.join(60)
        end = scene.write(5)
        done = session.collect()
        if is_far:
            assert done.need.need is Need.COMPACTED
            session.full()
        session.collect()
        assert (session.need, session.point.revision) == (None, end)
    chain = chains(read_catalogue(scene.store), 1)[-1]
    assert (chain.reach, chain.gap) == (end, None)
    restored = scene.restored()
    if not is_far:
        with EtcdClient([restored.endpoint]) as client:
            client.compact(compacted, physical=True)
    scene.must_equal(restored, end)


def test_changed_users_ask_for_a_full_and_deltas_do_not_wait_for_it(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(3)
        with opened(scene) as session:
            session.full()
            scene.client.role_add("reader")
            last = scene.write(3)
            done = session.collect()
            assert (done.need.need, done.written[-1].record.last_revision) == (Need.AUTH, last)
            assert session.full(unless_unchanged=True) is not None
            scene.write(2)
            assert session.collect().need is None


def test_a_revision_too_large_for_etcdbrctl_asks_for_a_full_once(scene):
    scene.write()
    with opened(scene) as session:
        session.full()
        lease = scene.client.lease_grant(600)
        for start in range(0, 10_500, 100):
            scene.client.txn([ops.put(b"l%d" % n, b"x", lease=lease) for n in range(start, start + 100)])
        scene.client.lease_revoke(lease)
        assert session.collect().need.need is Need.EBR
        session.full()
        scene.write()
        assert session.collect().need is None
    proven(scene)


def test_a_full_is_skipped_when_nothing_changed_and_that_was_asked_for(scene):
    scene.write(3)
    with opened(scene) as session:
        assert session.full(unless_unchanged=True) is not None
        assert session.full(unless_unchanged=True) is None
        assert session.full() is not None
    with opened(scene) as session:
        assert session.full(unless_unchanged=True) is None
        scene.write()
        assert session.full(unless_unchanged=True) is not None


@pytest.mark.parametrize("source", ["follower", "learner"])
def test_fulls_come_from_the_member_that_is_named(etcd, store, source):
    members = etcd.start_cluster("3.6")
    with EtcdClient([member.endpoint for member in members]) as client:
        client.put(b"a", b"b")
        if source == "follower":
            leader = client.status().leader
            named = next(m for m in members if client.member(m.endpoint).status().header.member_id != leader)
        else:
            named = etcd.make("3.6", "learner", flags=("--initial-cluster-state", "existing"))
            wait_until(lambda: added(client, named.peer_url))
            named.initial_cluster = f"{members[0].initial_cluster},learner={named.peer_url}"
            named.start_soon()
        with EtcdClient([named.endpoint]) as only:
            wait_until(lambda: answers(only))
            member_id = only.status().header.member_id
            with (
                Session(client, store, writer=WRITER, source=only) as session,
                Writers([members[0].endpoint]) as writers,
                Collecting(session, 0.1) as collecting,
            ):
                full = session.full()
                writers.more(50)
                collecting.more(2)
        assert full.record.member_id == f"{member_id:x}"
        last = plan_chain(read_catalogue(store), Latest()).reach
        restored = etcd.make("3.6", "restored")
        restore_members([restored], store, None, keep_history=True)
        restored.start()
        assert restored.hash_kv(last) == members[0].hash_kv(last)


def added(client, peer_url):
    """Whether etcd, which wants its members to have been connected for a while, took a learner."""
    try:
        return client.member_add([peer_url], learner=True)
    except EtcdUnavailableError:
        return None


def answers(client):
    try:
        return client.range(b"a", serializable=True).revision > 1
    except EtcdError:
        return False


def test_a_second_session_fences_the_first_at_its_next_write(scene):
    scene.write(3)
    with opened(scene) as first:
        first.full()
        with opened(scene) as second:
            scene.write(3)
            with pytest.raises(FencedError, match="superseded"):
                first.collect()
            assert len(second.collect().written) == 1
    proven(scene)


def test_a_session_that_is_closed_lets_go_of_an_upload_and_leaves_nothing_of_it(scene):
    scene.write(3)
    store = Gated(scene.store)
    session = opened(scene, store=store)
    session.full()
    store.open.clear()
    with Collecting(session, 0.05) as collecting:
        scene.write(3)
        assert store.held.wait(60)
        began = time.monotonic()
        session.close()
        assert time.monotonic() - began < 10
        store.open.set()
        wait_until(lambda: collecting.error is not None)
        error, collecting.error = collecting.error, None
    assert isinstance(error, FencedError)
    assert deltas(scene.store) == []
    with opened(scene) as after:
        assert len(after.collect().written) == 1
    proven(scene)


def test_a_heartbeat_says_until_when_etcd_was_at_the_last_revision(scene):
    scene.write(3)
    with opened(scene) as session:
        assert session.beat() is None
        session.full()
        session.collect()
        beat = session.beat()
        catalogue = read_catalogue(scene.store)
        assert (catalogue.heartbeat, beat.revision) == (beat, 4)
        session.collect()
        assert session.beat().time > beat.time


def test_the_recovery_point_goes_on_where_the_clock_is_set_back(scene):
    ahead = [timedelta(hours=1)]
    with opened(scene, clock=lambda: utc_now() + ahead[0]) as session:
        session.full()
        session.collect()
        before = session.point
        ahead[0] = timedelta(0)
        written = scene.write(3)
        session.collect()
        assert session.point.revision == written > before.revision
        assert session.point.at < before.at
        session.beat()
        session.full()
        session.collect()
        beat = session.beat()
    assert read_catalogue(scene.store).heartbeat == beat


@pytest.mark.parametrize("quiet", [True, False])
def test_an_etcd_restored_beneath_ends_the_session_and_the_next_begins_a_timeline(scene, quiet):
    """Under the same cluster id, as etcd-backup-restore always does, to a state that is not the store's."""
    scene.write(10)
    capture(scene.client, scene.store, full=True, writer=WRITER)
    saved = scene.member.data_dir.parent / "saved"
    scene.member.kill()
    shutil.copytree(scene.member.data_dir, saved)
    scene.member.start()
    scene.wait_connected()
    with opened(scene) as session:
        scene.write(10, value=b"lost")
        session.full()
        if not quiet:
            scene.write(5, value=b"lost")
        session.collect()
        reached = session.reached
        scene.member.kill()
        shutil.rmtree(scene.member.data_dir)
        shutil.copytree(saved, scene.member.data_dir)
        scene.member.start()
        scene.wait_connected()
        while scene.write(10, value=b"other") <= reached + 5:
            pass
        with pytest.raises(ForkedError):
            session.collect(time.monotonic() + 0.5)
        with pytest.raises(ForkedError):
            session.full()
    with opened(scene) as session:
        assert (session.timeline.number, session.timeline.parent) == (2, 1)
        assert session.full() is not None
        scene.write(3)
        assert session.collect().need is None
    proven(scene)


def test_a_full_that_fails_keeps_deltas_out_of_its_range_until_they_are_past_it(scene):
    """It may have become visible all the same, and its record alone could tell with what it ends."""
    scene.write(5)
    with opened(scene) as session, Writers([scene.member.endpoint]) as writers:
        session.full()
        writers.more(50)
        object.__setattr__(publisher_of(session), "store", LostAnswer(scene.store, "v2/Full"))
        with Collecting(session, 0.02) as collecting:
            with pytest.raises(TransientError):
                session.full()
            writers.more(100)
            collecting.more(5)
    half = next(each for each in read_catalogue(scene.store).snapshots if each.is_full and not each.record)
    assert ebr_rules.check_prefix(scene.store) == [], half.key


def test_the_epoch_of_a_caller_is_kept(scene):
    scene.write()
    epoch = fence.claim_epoch(scene.store, WRITER, utc_now())
    with opened(scene, epoch=epoch) as session:
        assert session.epoch == epoch
        session.full()
    assert read_catalogue(scene.store).epoch == epoch


def test_behind_a_final_full_nothing_is_wanted_before_something_changes(scene):
    scene.write(3)
    with opened(scene) as session:
        with Collecting(session, 0.2) as collecting:
            full = session.full(final=True)
            collecting.more(3)
            assert collecting.needs == [Need.FIRST] * len(collecting.needs)
        assert session.collect().need is None
        assert session.point.revision == full.record.last_revision
    with opened(scene) as session:
        assert session.collect().need is None
        last = scene.write(2)
        assert session.collect().need.need is Need.FINAL
        assert session.full().record.last_revision == last
        assert session.collect().need is None
    proven(scene)


def test_two_writers_never_give_one_name_to_two_objects(scene):
    """The older one is paused behind its claim; the newer one cuts the same revisions in that second."""
    scene.write(3)
    now = utc_now()
    with opened(scene, clock=lambda: now) as older:
        older.full()
        scene.write(3)
        claimed = threading.Event()
        going_on = threading.Event()
        object.__setattr__(publisher_of(older), "store", PausedBehindClaim(scene.store, claimed, going_on))
        with Collecting(older, 0) as collecting:
            assert claimed.wait(60)
            with opened(scene, clock=lambda: now) as newer:
                (published,) = newer.collect().written
                going_on.set()
                wait_until(lambda: collecting.error is not None)
                assert isinstance(collecting.error, FencedError)
                collecting.error = None
            assert published.key not in older_names(scene.store)
    proven(scene)


def older_names(store):
    return {each.key for each in read_catalogue(store).tombstones}
