from __future__ import annotations

from itertools import pairwise

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.outcome import Need
from rootcellar.backup.capture.session import Session
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest, chains, plan_chain
from rootcellar.backup.catalogue.fence import claim_epoch
from rootcellar.backup.catalogue.records import Caution, Lease
from rootcellar.errors import EtcdDeniedError, FencedError
from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.builders import moment
from tests.backup.capture_scene import Between, Writers, a_scene
from tests.stores.places import s3_store


@pytest.fixture
def scene(etcd, etcd_line, store):
    with a_scene(etcd, etcd_line, store) as scene:
        yield scene


@pytest.fixture
def newest(etcd, store):
    """For what does not depend on the version."""
    with a_scene(etcd, "3.7", store) as scene:
        yield scene


def spans(captures):
    return [(each.record.start, each.record.last_revision) for each in captures]


def snapshots(store):
    return [info.key for info in store.list("v2/")]


def test_deltas_taken_while_writers_go_on_restore_to_the_sources_hash(scene):
    ends = []
    with Writers([scene.member.endpoint]) as writers:
        writers.more(100)
        scene.full()
        for _ in range(4):
            writers.more(150)
            done = scene.capture()
            assert done.full is None
            ends.append(done.deltas[-1].record.last_revision)
    assert ebr_rules.check_prefix(scene.store) == []
    deltas = [record for record in _records(scene.store) if record.kind == "Incr"]
    for one, other in pairwise(deltas):
        assert (other.start, other.previous) == (one.last_revision + 1, one.link)
    scene.must_equal(scene.restored(), ends[-1], ends[0], ends[1] - 1, ends[2] + 1)
    middle = (ends[1] + ends[2]) // 2
    scene.must_equal(scene.restored(middle), middle)


@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=pytest.mark.long)])
def test_compactions_and_defragmentations_on_the_way_change_nothing(scene, kind, request):
    if kind == "s3":
        scene.store = s3_store(request.getfixturevalue("bucket"), f"compacted-{scene.line}")
    with Writers([scene.member.endpoint], seed=7) as writers:
        writers.more(100)
        scene.full()
        for round_ in range(4):
            writers.more(100)
            last = scene.capture().deltas[-1].record.last_revision
            scene.client.compact(last - 20, physical=True)
            if round_ % 2:
                scene.client.defragment()
        writers.more(20)
    done = scene.capture()
    record = done.deltas[-1].record
    assert record.compact_revision == last - 20
    assert ebr_rules.check_prefix(scene.store) == []
    end = record.last_revision
    restored = scene.restored(keep_history=False)
    scene.must_equal(restored, end, last + 1, last - 3)


def _records(store):
    return [snapshot.record for snapshot in read_catalogue(store).snapshots]


def test_the_record_says_what_was_captured(scene):
    scene.write(10)
    full = scene.full()
    last = scene.write(20)
    scene.client.compact(11)
    record = scene.capture().deltas[0].record
    assert (record.start, record.last_revision) == (12, last)
    assert record.compact_revision == 11
    assert record.previous == full.link
    assert record.last_change == scene.client.fingerprint(last)
    assert record.catch_up
    assert record.first_received <= record.last_received <= record.captured_at
    assert record.etcd_version == scene.member.version
    assert record.auth_revision == (None if scene.line == "3.4" else 1)
    assert record.hashkv is None


def test_the_first_capture_is_a_full_and_says_why(newest):
    newest.write(3)
    done = newest.capture()
    assert (done.deltas, done.full.record.last_revision) == ((), 4)
    assert done.why_full.need is Need.FIRST
    assert done.timeline.number == 1


def test_where_nothing_changed_nothing_is_written(newest):
    newest.write(3)
    newest.full()
    before = snapshots(newest.store)
    done = newest.capture()
    assert (done.deltas, done.full) == ((), None)
    newest.write(3)
    newest.capture()
    after = snapshots(newest.store)
    assert newest.capture().deltas == ()
    assert snapshots(newest.store) == after
    assert len(after) == len(before) + 1


def test_an_etcd_to_which_nothing_was_ever_written_is_a_beginning(newest):
    assert newest.capture().full.record.last_revision == 1
    assert newest.capture().full is None
    newest.write(3)
    assert spans(newest.capture().deltas) == [(2, 4)]


def test_deltas_are_cut_by_size_between_revisions(newest):
    newest.write(1)
    newest.full()
    newest.client.txn([ops.put(b"%d" % number, bytes(9000)) for number in range(100)])
    newest.write(40, value=bytes(50_000))
    newest.client.put(b"large", bytes(1_400_000))
    done = newest.capture(limits=DeltaLimits(size=500_000))
    assert len(done.deltas) > 4
    assert spans(done.deltas)[0] == (3, 3)
    for one, other in pairwise(done.deltas):
        assert other.record.start == one.record.last_revision + 1
        assert other.record.previous == one.record.link
        assert one.record.payload_size < 2_000_000
    assert ebr_rules.check_prefix(newest.store) == []
    newest.must_equal(newest.restored(), 44, 3, 20)


def between_name_and_stream(scene, count):
    """A client that lets others write so much after H was read and before the stream begins."""

    def late(client):
        scene.write(count)
        return client.snapshot()

    return Between(scene.client, snapshot=late)


def test_no_delta_ends_inside_a_full(newest):
    newest.write(10)
    record = newest.capture(full=True, client=between_name_and_stream(newest, 20)).full.record
    assert (record.name.last, record.last_revision) == (11, 31)
    newest.write(10)
    done = newest.capture(limits=DeltaLimits(size=1))
    assert spans(done.deltas) == [(12, 31), *((n, n) for n in range(32, 42))]
    assert ebr_rules.check_prefix(newest.store) == []
    newest.must_equal(newest.restored(), 41, 35)


def test_a_full_that_holds_all_there_is_leaves_nothing_for_a_delta(newest):
    newest.write(10)
    newest.capture(full=True, client=between_name_and_stream(newest, 20))
    assert newest.capture().deltas == ()
    newest.write(1)
    assert spans(newest.capture().deltas) == [(12, 32)]
    assert ebr_rules.check_prefix(newest.store) == []


@pytest.mark.parametrize("size", [1 << 30, 1])
def test_a_full_does_not_tear_the_chain_before_it(newest, size):
    newest.write(10)
    first = newest.full()
    newest.write(10)
    newest.capture()
    newest.write(10)
    second = newest.capture(full=True, client=between_name_and_stream(newest, 5)).full.record
    newest.write(10)
    done = newest.capture(limits=DeltaLimits(size=size))
    assert done.deltas[0].record.start == 22
    assert done.deltas[-1].record.last_revision == 46
    assert not [last for _, last in spans(done.deltas) if second.name.last <= last < second.last_revision]
    assert ebr_rules.check_prefix(newest.store) == []
    newest.must_equal(newest.restored(), 46, 40)
    plan = plan_chain(read_catalogue(newest.store), AtRevision(46), exclude={second.key})
    assert (plan.full.key, plan.reach) == (first.key, 46)
    newest.must_equal(newest.restored(exclude=frozenset({second.key})), 46, 40, 25)


def test_a_torn_chain_that_etcd_has_compacted_stays_torn(newest):
    newest.write(10)
    newest.full()
    newest.write(10)
    newest.capture()
    newest.write(10)
    second = newest.full()
    newest.client.compact(second.last_revision - 2)
    newest.write(5)
    done = newest.capture()
    assert spans(done.deltas) == [(second.last_revision + 1, second.last_revision + 5)]
    assert ebr_rules.check_prefix(newest.store) == []


def test_what_etcd_has_compacted_away_is_answered_by_a_full(scene):
    scene.write(10)
    scene.full()
    last = scene.write(10)
    scene.client.compact(last, physical=True)
    scene.write(1)
    done = scene.capture()
    assert done.deltas == ()
    assert done.why_full.need is Need.COMPACTED
    assert str(last) in done.why_full.reason
    assert done.full.record.last_revision == last + 1
    scene.write(2)
    assert spans(scene.capture().deltas) == [(last + 2, last + 3)]


class InterruptedByCompaction:
    """A watch that brings half of a batch; then etcd compacts, and the watch has to begin anew behind it."""

    def __init__(self, scene, watch):
        self.scene = scene
        self.watch = watch
        self.rest = None

    def close(self):
        self.watch.close()

    def get(self, timeout):
        if self.rest is None:
            batch = self.watch.get(60)
            half = len(batch.events) // 2
            self.rest = batch.events[half:]
            return batch._replace(events=batch.events[:half])
        self.scene.client.compact(self.rest[-1].kv.mod_revision, physical=True)
        self.watch.close()
        self.watch = self.scene.client.watch(self.rest[0].kv.mod_revision)
        return self.watch.get(timeout)


def test_a_compaction_in_the_middle_leaves_what_was_got_and_asks_for_a_full(newest):
    newest.write(10)
    newest.full()
    last = newest.write(20)
    client = Between(
        newest.client,
        watch=lambda client, start, **options: InterruptedByCompaction(
            newest, client.watch(start, **options)
        ),
        fingerprint=lambda client, revision: client.fingerprint(revision),
    )
    done = newest.capture(client=client)
    assert spans(done.deltas) == [(12, 21)]
    assert done.why_full.need is Need.COMPACTED
    assert done.full.record.last_revision == last
    assert ebr_rules.check_prefix(newest.store) == []
    after = newest.write(3)
    assert spans(newest.capture().deltas) == [(last + 1, after)]
    newest.must_equal(newest.restored(), after, last + 1)


def test_leases_are_recorded_once_with_what_was_granted(scene):
    scene.full()
    long = scene.client.lease_grant(1000)
    scene.client.put(b"a", b"", lease=long)
    ended = scene.client.lease_grant(500)
    scene.client.put(b"b", b"", lease=ended)
    scene.client.lease_revoke(ended)
    scene.client.put(b"dangling", b"")
    assert scene.capture().deltas[0].record.leases == (Lease(long, 1000),)
    scene.client.put(b"a", b"again", lease=long)
    other = scene.client.lease_grant(300)
    scene.client.put(b"c", b"", lease=other)
    assert scene.capture().deltas[0].record.leases == (Lease(other, 300),)
    restored = scene.restored()
    with EtcdClient([restored.endpoint]) as client:
        assert client.lease_ttl(long).granted == 1000
        assert client.lease_ttl(other).granted == 300


def test_changed_users_ask_for_a_full_which_holds_them(etcd, etcd_line, store):
    with a_scene(etcd, etcd_line, store) as scene:
        scene.write(3)
        scene.full()
        scene.client.role_add("late")
        scene.write(3)
        done = scene.capture()
        assert spans(done.deltas) == [(5, 7)]
        if etcd_line == "3.4":
            assert done.full is None, "etcd 3.4 does not say its auth revision"
        else:
            assert done.why_full.need is Need.AUTH
            assert done.full.record.auth_revision == 2
            scene.write(1)
            assert scene.capture().full is None


def test_a_reader_of_all_keys_is_privilege_enough(scene):
    scene.write(3)
    scene.client.role_add("root")
    scene.client.role_add("reader", ALL_KEYS)
    scene.client.role_add("tenant", (b"k", b"l"))
    scene.client.user_add("root", "p", roles=["root"])
    scene.client.user_add("reader", "r", roles=["reader"])
    scene.client.user_add("tenant", "t", roles=["tenant"])
    scene.client.auth_enable()
    endpoint = [scene.member.endpoint]
    with EtcdClient(endpoint, user="root", password="p") as root:
        scene.capture(full=True, client=root)
        lease = root.lease_grant(900)
        root.put(b"k1", b"", lease=lease)
    with EtcdClient(endpoint, user="reader", password="r") as reader:
        record = scene.capture(client=reader).deltas[0].record
        assert record.leases == (Lease(lease, 900),)
    with (
        EtcdClient(endpoint, user="tenant", password="t") as tenant,
        pytest.raises(EtcdDeniedError) as caught,
    ):
        scene.capture(client=tenant)
    assert "permission to read" in caught.value.hint


@pytest.mark.parametrize("what", ["operations", "bytes"])
def test_what_etcdbrctl_cannot_replay_is_recorded_and_followed_by_a_full(etcd, store, what):
    flags = ["--max-txn-ops=20000", "--max-request-bytes=10000000"]
    with a_scene(etcd, "3.6", store, flags=flags) as scene:
        scene.write(3)
        scene.full()
        if what == "operations":
            scene.client.txn([ops.put(b"%05d" % number, b"") for number in range(10_241)])
        else:
            scene.client.put(b"large", bytes(2 << 20))
        scene.write(2)
        assert ebr_rules.check_prefix(store) == []
        done = scene.capture()
        (record,) = [each.record for each in done.deltas]
        assert [notice.code for notice in record.warnings] == [Caution.EBR_CANNOT_REPLAY]
        assert "revision 5" in record.warnings[0].message
        assert done.why_full.need is Need.EBR
        assert ebr_rules.check_prefix(store) == []
        scene.must_equal(scene.restored(), 7, 5, 4)


class Overtaken(FileStore):
    """Behind the first snapshot that is put here, something else happens before its writer goes on."""

    meanwhile = None

    def put(self, key, chunks, *, condition=None):
        info = super().put(key, chunks, condition=condition)
        if key.startswith("v2/") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return info


def test_a_delta_of_a_superseded_writer_stays_for_a_successor_that_goes_on_from_it(newest, tmp_path):
    newest.write(3)
    newest.full()
    newest.write(3)
    store = Overtaken(tmp_path / "store")

    def successor():
        newest.write(2)
        assert spans(newest.capture().deltas) == [(8, 9)]

    store.meanwhile = successor
    with pytest.raises(FencedError, match="superseded") as caught:
        newest.capture(store=store)
    assert "stays" in caught.value.__notes__[0]
    catalogue = read_catalogue(newest.store)
    assert (catalogue.lost, catalogue.tombstones) == ((), ())
    assert plan_chain(catalogue, Latest()).reach == 9
    assert ebr_rules.check_prefix(newest.store) == []
    newest.must_equal(newest.restored(), 9, 7, 5)


def test_a_full_of_a_superseded_writer_stays_for_a_successor_that_goes_on_from_it(newest, tmp_path):
    newest.write(3)
    store = Overtaken(tmp_path / "store")

    def successor():
        newest.write(2)
        newest.capture()
        newest.write(2)
        assert newest.capture().full is None

    store.meanwhile = successor
    with pytest.raises(FencedError, match="superseded"):
        newest.capture(full=True, store=store)
    assert plan_chain(read_catalogue(newest.store), Latest()).reach == 8
    newest.must_equal(newest.restored(), 8, 6)


@pytest.mark.parametrize("is_quiet", [True, False])
def test_deltas_go_on_past_a_full_whose_writer_died_before_its_record(newest, tmp_path, is_quiet):
    newest.write(3)
    newest.full()
    newest.write(3)
    newest.capture()
    newest.write(3)

    class Dying(FileStore):
        has_full = False

        def put(self, key, chunks, *, condition=None):
            if self.has_full and key.startswith(keys.RECORDS):
                raise ConnectionAbortedError("killed here")
            self.has_full = self.has_full or "/Full-" in key
            return super().put(key, chunks, condition=condition)

    with pytest.raises(ConnectionAbortedError):
        newest.capture(full=True, store=Dying(tmp_path / "store"))
    last = newest.client.header().revision if is_quiet else newest.write(2)
    with Session(newest.client, newest.store, writer="next/1") as session:
        done = session.collect()
        assert spans(done.written) == [(8, last)]
        assert done.need.need is Need.EBR
        assert "nothing is recorded of v2/Full-00000000-00000010" in done.need.reason
        assert ebr_rules.check_prefix(newest.store) == []
        session.full()
        assert session.collect().need is None
    catalogue = read_catalogue(newest.store)
    assert [chain.gap for chain in chains(catalogue, 1)] == [None] * 3
    assert ebr_rules.check_prefix(newest.store) == []
    newest.must_equal(newest.restored(), last, 9, 7)


def late_delta(newest, directory, *, does_go_on):
    """A writer is stopped between its claim and its object, and another stores the same and more."""
    newest.write(3)
    newest.full()
    newest.write(3)

    class Late(FileStore):
        def put(self, key, chunks, *, condition=None):
            if key.startswith("v2/"):
                newest.write(2)
                newest.second = Session(newest.client, newest.store, writer="second/1")
                newest.second.collect()
            info = super().put(key, chunks, condition=condition)
            if key.startswith("v2/") and not does_go_on:
                raise ConnectionAbortedError("killed here")
            return info

    with pytest.raises(FencedError if does_go_on else ConnectionAbortedError):
        newest.capture(store=Late(directory))


def test_a_delta_that_comes_too_late_is_taken_back_once_it_is_held_by_its_successor(newest, tmp_path):
    late_delta(newest, tmp_path / "store", does_go_on=True)
    newest.second.close()
    catalogue = read_catalogue(newest.store)
    assert [each.reason[:18] for each in catalogue.tombstones] == ["published too late"]
    assert (catalogue.lost, plan_chain(catalogue, Latest()).reach) == ((), 9)
    assert ebr_rules.check_prefix(newest.store) == []


@pytest.mark.parametrize("by", ["the successor", "the next"])
def test_a_delta_that_comes_too_late_from_a_dead_writer_is_removed(newest, tmp_path, by):
    late_delta(newest, tmp_path / "store", does_go_on=False)
    assert ebr_rules.check_prefix(newest.store) != []
    newest.write()
    if by == "the successor":
        assert spans(newest.second.collect().written) == [(10, 10)]
    newest.second.close()
    newest.capture()
    assert ebr_rules.check_prefix(newest.store) == []
    assert plan_chain(read_catalogue(newest.store), Latest()).reach == 10
    newest.must_equal(newest.restored(), 10, 7)


def test_what_is_published_before_the_next_epoch_is_claimed_is_gone_on_from(newest, tmp_path):
    newest.write(3)
    newest.full()
    newest.write(3)

    class Slow(FileStore):
        def put(self, key, chunks, *, condition=None):
            if key == keys.epoch(2):
                newest.capture()
                newest.write(2)
            return super().put(key, chunks, condition=condition)

    done = capture(newest.client, Slow(tmp_path / "store"), full=False, writer="second/1")
    assert spans(done.deltas) == [(8, 9)]
    assert ebr_rules.check_prefix(newest.store) == []


def test_a_writer_that_was_superseded_before_writes_nothing(newest):
    newest.write(3)
    newest.full()
    newest.write(3)
    before = snapshots(newest.store)
    claims = [info.key for info in newest.store.list(keys.CLAIMS)]
    epoch = claim_epoch(newest.store, "me/1", moment(0))
    claim_epoch(newest.store, "another/1", moment(0))
    for full in True, False:
        with pytest.raises(FencedError, match="superseded"):
            capture(newest.client, newest.store, full=full, writer="me/1", epoch=epoch)
    assert snapshots(newest.store) == before
    assert [info.key for info in newest.store.list(keys.CLAIMS)] == claims


def test_damage_in_the_middle_of_the_chain_asks_for_a_full(newest):
    newest.write(3)
    newest.full()
    newest.write(3)
    middle = newest.capture().deltas[0].record
    newest.write(3)
    newest.capture()
    newest.store.delete(middle.key)
    newest.write(3)
    done = newest.capture()
    assert done.why_full.need is Need.GAP
    assert "revisions 5 to 7 are missing" in done.why_full.reason
    assert done.full.record.last_revision == 13


def test_nothing_follows_a_final_full_but_a_full(newest):
    newest.write(3)
    newest.full(final=True)
    newest.write(3)
    done = newest.capture()
    assert done.why_full.need is Need.FINAL
    assert not done.full.record.name.final
