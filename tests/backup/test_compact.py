"""Folds of real chains: equal to them, smaller, readable by EBR, and continued by what is captured after."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest, plan_chain
from rootcellar.backup.catalogue.timeline import abandon, open_timeline
from rootcellar.backup.compact.compact import compact
from rootcellar.backup.compact.plan import plan_compaction
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.sealing.keyring import Keyring
from rootcellar.backup.restore import pins
from rootcellar.backup.restore.restore import restore
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import (
    ChainError,
    DamagedObjectError,
    FencedError,
    NoKeyError,
    NothingToRestoreError,
    TargetError,
    UsageError,
)
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.meta import StoreMeta, leases
from tests.backup import ebr_rules
from tests.backup.capture_scene import a_scene
from tests.backup.fold_scene import BY, a_sealed_chain, chain, sound
from tests.backup.plans import plan_of, restore_into
from tests.backup.sealed_scene import FIRST, SECOND
from tests.mvcc.workload import Workload


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


@contextmanager
def database_of(store, record, directory):
    """The database in a full, as a file that is open."""
    payload = b"".join(codecs.HashTail(codecs.decompress(store.get(record.key), record.name.suffix)))
    path = directory / "payload"
    path.write_bytes(payload)
    with BoltFile(path) as file:
        yield file


@pytest.mark.parametrize("line", ["3.4", "3.5", "3.6", "3.7"])
def test_a_fold_restores_to_what_its_chain_restores_to(etcd, store, line, tmp_path):
    with a_scene(etcd, line, store) as scene:
        workload = Workload(scene.client, 5)
        workload.run(150)
        scene.full()
        workload.run(60)
        scene.capture()
        workload.compact()
        workload.run(60)
        scene.capture()
        last = scene.client.header().revision
        before = restore_into(tmp_path / "before", store)

        done = compact(store, by=BY)

        after = restore_into(tmp_path / "after", store)
        assert plan_chain(read_catalogue(store), Latest()).steps == ()
        assert after.hashkv == before.hashkv == done.hashkv
        assert done.hashkv.revision == last
        sound(scene, last)


def test_captures_go_on_above_a_fold_without_a_new_full(scene):
    chain(scene)
    done = compact(scene.store, by=BY)

    last = scene.write(5)
    captured = scene.capture()

    assert captured.full is None
    (delta,) = captured.deltas
    assert (delta.record.start, delta.record.last_revision) == (done.hashkv.revision + 1, last)
    assert (delta.record.previous.key, delta.record.timeline) == (done.key, 1)
    sound(scene, last)


def test_a_fold_s_record_says_what_a_capture_would(scene, tmp_path):
    lease = scene.client.lease_grant(4321)
    scene.client.put(b"leased", b"1", lease=lease)
    chain(scene)
    chained = plan_chain(read_catalogue(scene.store), Latest())
    base, last = chained.full.record, chained.steps[-1].snapshot.record

    record = compact(scene.store, by=BY).record

    assert (record.cluster_id, record.member_id) == (base.cluster_id, base.member_id)
    assert (record.auth_revision, record.etcd_version) == (base.auth_revision, base.etcd_version)
    assert (record.last_change, record.compact_revision) == (last.last_change, last.compact_revision)
    assert record.captured_at == last.last_received
    assert (record.previous, record.writer) == (last.link, BY)
    assert [(each.id, each.ttl) for each in record.leases] == [(lease, 4321)]
    assert record.epoch == read_catalogue(scene.store).epoch.number
    with database_of(scene.store, record, tmp_path) as file:
        meta = StoreMeta.read(file)
        assert (meta.revision, meta.auth_revision) == (record.last_revision, record.auth_revision)
        assert list(leases(file)) == [lease]


def test_folds_alone_let_go_of_leases_that_ended_and_keep_those_that_may_be_alive(scene, tmp_path):
    client = scene.client
    unused, lasting = client.lease_grant(1000), client.lease_grant(1001)
    client.put(b"lasting", b"1", lease=lasting)
    ending = [client.lease_grant(1002)]
    client.put(b"ending", b"0", lease=ending[0])
    scene.full()
    for number in range(3):
        ending.append(client.lease_grant(1003))
        client.put(b"ending%d" % number, b"1", lease=ending[-1])
        client.lease_revoke(ending.pop(0))
        moved = client.lease_grant(1004)
        client.put(b"moved", b"%d" % number, lease=moved)
        client.put(b"moved", b"%d" % number)
        scene.capture()
        record = compact(scene.store, by=BY).record
        (tmp_path / f"{number}").mkdir()
        with database_of(scene.store, record, tmp_path / f"{number}") as file:
            assert leases(file).keys() == {unused, lasting, *ending}
    sound(scene, client.header().revision)


def test_a_fold_is_the_source_s_own_database_and_not_a_new_cluster_s(scene, tmp_path):
    scene.write(3)
    base = scene.full()
    (tmp_path / "one").mkdir()
    with database_of(scene.store, base, tmp_path / "one") as file:
        before = StoreMeta.read(file)
    scene.write(3)
    scene.capture()

    record = compact(scene.store, by=BY).record

    with database_of(scene.store, record, tmp_path) as file:
        after = StoreMeta.read(file)
    assert (after.members, after.consistent_index, after.term) == (
        before.members,
        before.consistent_index,
        before.term,
    )
    assert after.members


def test_users_and_roles_survive_a_fold(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.member.enable_auth()
        with EtcdClient([scene.member.endpoint], user="root", password="secret") as client:
            scene.client = client
            chain(scene)
            done = compact(store, by=BY)
            client.put(b"after", b"1")
            assert scene.capture().full is None, "the auth revision of the fold is the live one"
        assert done.record.auth_revision > 1


def test_etcdutl_calls_a_fold_a_snapshot_of_its_revision(scene, tmp_path):
    last = chain(scene)
    done = compact(scene.store, by=BY)
    path = tmp_path / "snapshot.db"
    path.write_bytes(gzip.decompress(b"".join(scene.store.get(done.key))))

    status = scene.member.etcdutl("snapshot", "status", path, "--write-out", "json")

    assert f'"revision":{last}' in status
    assert f'"totalSize":{done.size}' in status


def test_bbolt_finds_nothing_wrong_with_a_fold(scene, boltcheck, tmp_path):
    chain(scene)
    done = compact(scene.store, by=BY)
    path = tmp_path / "snapshot.db"
    path.write_bytes(gzip.decompress(b"".join(scene.store.get(done.key)))[:-32])
    checked = boltcheck("check", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_many_updates_of_few_keys_fold_to_less_than_the_base(scene):
    scene.write(3000, value=bytes(200))
    scene.full()
    last = scene.write(3000, value=bytes(200))
    scene.capture()
    scene.client.compact(last - 5, physical=True)
    last = scene.write(2)
    scene.capture()
    done = compact(scene.store, by=BY)
    assert done.size * 20 < done.base_size
    assert done.stored_size < done.chain_size
    assert done.rows_dropped >= 3000
    sound(scene, last)


def test_history_stays_where_no_compaction_is_known(scene):
    last = chain(scene, compacts=False)
    done = compact(scene.store, by=BY)
    assert (done.rows_dropped, done.hashkv.compact_revision) == (0, -1)
    scene.must_equal(scene.restored(), last, last - 100, 5)


def test_a_compaction_can_be_asked_for_where_none_is_recorded(scene):
    last = chain(scene, compacts=False)
    done = compact(scene.store, by=BY, compact_to=last - 3)
    assert done.hashkv.compact_revision == last - 3
    scene.client.compact(last - 3, physical=True)
    sound(scene, last)


def test_a_fold_leaves_one_object_and_its_record(scene):
    chain(scene)
    before = {info.key for info in scene.store.list()}
    done = compact(scene.store, by=BY)
    assert {info.key for info in scene.store.list()} - before == {done.key, keys.record(done.record.name)}


def test_folding_twice_folds_nothing(scene):
    chain(scene)
    assert compact(scene.store, by=BY) is not None
    before = [info.key for info in scene.store.list()]
    assert compact(scene.store, by=BY) is None
    assert [info.key for info in scene.store.list()] == before


def test_an_empty_store_is_no_chain(store):
    with pytest.raises(NothingToRestoreError, match="there is no backup here"):
        compact(store, by=BY)


def test_a_chain_is_folded_up_to_a_revision_inside_a_delta(scene):
    last = chain(scene)
    inside = last - 15

    done = compact(scene.store, AtRevision(inside), by=BY)

    assert (done.hashkv.revision, done.record.last_revision) == (inside, inside)
    assert done.record.captured_at < datetime.now(UTC)
    planned = plan_chain(read_catalogue(scene.store), Latest())
    assert (planned.full.key, len(planned.steps)) == (done.key, 1)
    sound(scene, last)
    last = scene.write(4)
    assert scene.capture().full is None
    sound(scene, last)


def test_a_revision_that_no_chain_reaches_is_refused(scene):
    last = chain(scene)
    with pytest.raises(ChainError, match="was not captured"):
        compact(scene.store, AtRevision(last + 1), by=BY)


def test_times_between_the_deltas_still_restore(scene, tmp_path):
    """A fold holds for the moments behind its last event, the old chain for those before."""
    chain(scene)
    chained = plan_chain(read_catalogue(scene.store), Latest())
    first = chained.steps[0].snapshot.record
    done = compact(scene.store, by=BY)
    moment = int(first.last_received.timestamp() * 10**9) + 10**6
    restored = restore_into(tmp_path / "then", scene.store, moment=moment, keep_history=True)
    assert restored.revision == first.last_revision
    now = int(datetime.now(UTC).timestamp() * 10**9)
    assert restore_into(tmp_path / "now", scene.store, moment=now).revision == done.hashkv.revision


def test_a_damaged_delta_ends_a_fold_and_the_sound_part_is_told(scene):
    last = chain(scene)
    record = plan_chain(read_catalogue(scene.store), Latest()).steps[-1].snapshot.record
    raw = bytearray(b"".join(scene.store.get(record.key)))
    raw[len(raw) // 2] ^= 1
    scene.store.put(record.key, [bytes(raw)])
    before = [info.key for info in scene.store.list()]
    with pytest.raises(DamagedObjectError) as caught:
        compact(scene.store, by=BY)
    assert caught.value.name == record.key
    assert caught.value.hint == f"fold what is sound: --to-revision {record.start - 1}"
    assert [info.key for info in scene.store.list()] == before, "not even a pin is left"
    assert compact(scene.store, AtRevision(record.start - 1), by=BY).hashkv.revision < last


def test_a_chain_is_folded_into_no_unknown_compression(scene):
    chain(scene)
    before = [info.key for info in scene.store.list()]
    with pytest.raises(UsageError, match=r"into \.xz"):
        compact(scene.store, by=BY, suffix=".xz")
    assert [info.key for info in scene.store.list()] == before


def test_a_chain_that_etcdbrctl_reads_is_folded_into_an_encrypted_full_and_left_to_it(scene, tmp_path):
    last = chain(scene)
    readable = [info.key for info in scene.store.list("v2/")]

    done = compact(scene.store, by=BY, suffix=".zst.age", recipients=(FIRST.recipient,))

    assert (done.key.startswith("sealed/snapshots/full_"), done.record.keys) == (True, (FIRST.key_id,))
    assert [info.key for info in scene.store.list("v2/")] == readable
    assert ebr_rules.check_prefix(scene.store) == []
    plan = plan_of(scene.store)
    restored = restore(
        plan, scene.store, {plan.members[0].name: tmp_path / "data"}, keyring=Keyring((FIRST,))
    )
    assert (plan.full.key, restored.hashkv.hash) == (done.key, scene.member.hash_kv(last).hash)
    scene.write(3)
    sealed = {"how": FullOptions(".zst.age"), "recipients": (FIRST.recipient,)}
    assert scene.capture(**sealed).full is None, "deltas go on behind it"
    assert plan_chain(read_catalogue(scene.store), Latest()).reach == last + 3


def test_a_chain_of_zstd_is_folded_into_zstd_and_nothing_that_etcdbrctl_reads(scene, tmp_path):
    last = a_sealed_chain(scene, suffix=".zst")
    with pytest.raises(UsageError, match="is sealed, and etcdbrctl could read the fold"):
        compact(scene.store, by=BY)
    assert len(list(scene.store.list("sealed/"))) == 2

    done = compact(scene.store, by=BY, suffix=".zst")

    assert (done.key.startswith("sealed/snapshots/full_"), list(scene.store.list("v2/"))) == (True, [])
    assert restore_into(tmp_path / "data", scene.store).hashkv.hash == scene.member.hash_kv(last).hash
    scene.write(3)
    assert scene.capture(how=FullOptions(".zst")).full is None


def test_an_encrypted_chain_is_folded_for_the_recipients_that_are_named(scene, tmp_path):
    last = a_sealed_chain(scene, FIRST, suffix=".zst.age")
    ours, theirs = Keyring((FIRST,)), Keyring((SECOND,))
    to = {"suffix": ".zst.age", "recipients": (SECOND.recipient,)}
    for suffix in (".gz", ".zst"):
        with pytest.raises(UsageError, match="is encrypted, and the fold would not be"):
            compact(scene.store, by=BY, suffix=suffix, keyring=ours)
    with pytest.raises(UsageError, match="would have no recipients"):
        compact(scene.store, by=BY, suffix=".zst.age", keyring=ours)
    with pytest.raises(NoKeyError, match="needs one of"):
        compact(scene.store, by=BY, **to)
    assert len(list(scene.store.list("sealed/"))) == 2

    done = compact(scene.store, by=BY, keyring=ours, **to)

    assert (done.record.keys, done.record.payload_sha256) == ((SECOND.key_id,), "")
    plan = plan_of(scene.store)
    assert (plan.full.key, plan.deltas) == (done.key, ())
    with pytest.raises(NoKeyError):
        restore(plan, scene.store, {plan.members[0].name: tmp_path / "data"}, keyring=ours)
    restored = restore(plan, scene.store, {plan.members[0].name: tmp_path / "data"}, keyring=theirs)
    assert restored.hashkv.hash == scene.member.hash_kv(last).hash
    scene.write(3)
    assert scene.capture(how=FullOptions(".zst.age"), recipients=(SECOND.recipient,)).full is None


def test_a_scratch_directory_that_is_not_there_is_told(scene, tmp_path):
    chain(scene)
    with pytest.raises(TargetError, match="No such file"):
        compact(scene.store, by=BY, scratch=tmp_path / "missing")


def test_a_chain_of_ebr_s_is_folded_without_a_record(ebr_backup, tmp_path):
    """Nothing tells its cluster, and a guess would look like a fork to the first capture."""
    fold = plan_compaction(read_catalogue(ebr_backup.store), ebr_backup.store.url)
    before = restore_into(tmp_path / "before", ebr_backup.store, announce=False)
    if fold is None:
        assert compact(ebr_backup.store, by=BY) is None
        return
    done = compact(ebr_backup.store, by=BY)
    assert done.record is None
    assert ebr_rules.check_prefix(ebr_backup.store) == []
    assert restore_into(tmp_path / "after", ebr_backup.store).hashkv == before.hashkv == done.hashkv


class Meanwhile:
    """A store in which something happens right before the first full is put."""

    def __init__(self, store, happens):
        self._store = store
        self._happens = happens

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, chunks, *, condition=None):
        if key.startswith("v2/Full") and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return self._store.put(key, chunks, condition=condition)


def test_an_agent_that_captures_meanwhile_is_neither_fenced_nor_stopped(scene):
    chain(scene)
    epoch = read_catalogue(scene.store).epoch

    def captures():
        scene.write(7)
        scene.capture()

    done = compact(Meanwhile(scene.store, captures), by=BY)

    catalogue = read_catalogue(scene.store)
    assert catalogue.epoch.number == epoch.number + 1, "the capture's own, and none of ours"
    planned = plan_chain(catalogue, Latest())
    assert (planned.full.key, len(planned.steps)) == (done.key, 1)
    sound(scene, scene.client.header().revision)
    scene.write(2)
    assert scene.capture().full is None
    sound(scene, scene.client.header().revision)


def test_a_full_that_an_agent_takes_meanwhile_lies_beside_ours(scene):
    chain(scene)
    compact(Meanwhile(scene.store, scene.full), by=BY)
    fulls = [each for each in read_catalogue(scene.store).snapshots if each.is_full]
    assert len({each.name.order for each in fulls}) == len(fulls) == 3
    sound(scene, scene.client.header().revision)
    scene.write(2)
    assert scene.capture().full is None
    sound(scene, scene.client.header().revision)


def test_folds_and_captures_in_turn_are_always_restorable(scene):
    """Deletions, leases, transactions and compactions; each fold is overtaken by a capture."""
    workload = Workload(scene.client, 17)
    workload.run(40)
    scene.full()
    for _ in range(4):
        workload.run(60)
        scene.capture()
        workload.compact(within=20)

        def captures():
            workload.run(20)
            scene.capture()

        compact(Meanwhile(scene.store, captures), by=BY)
        sound(scene, scene.client.header().revision)


def fork(scene, below):
    """What a capture does once it has seen that history forked `below` this revision."""
    open_timeline(
        scene.store,
        parent=1,
        forked_at=below,
        cluster_id="abc",
        writer="agent/2",
        now=datetime.now(UTC),
    )
    abandon(scene.store, read_catalogue(scene.store))


class BeforeTheClaim(Meanwhile):
    """The same right before the timelines are looked at."""

    def list(self, prefix="", *, after=""):
        if prefix == keys.TIMELINES and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return self._store.list(prefix, after=after)

    def put(self, key, chunks, *, condition=None):
        return self._store.put(key, chunks, condition=condition)


@pytest.mark.parametrize("when", [BeforeTheClaim, Meanwhile])
def test_a_fold_that_a_fork_overtakes_leaves_nothing_of_the_dead_timeline(scene, when):
    last = chain(scene)
    with pytest.raises(FencedError, match="history forked below revision"):
        compact(when(scene.store, lambda: fork(scene, last - 35)), by=BY)
    catalogue = read_catalogue(scene.store)
    assert not [each for each in catalogue.snapshots if each.is_full and each.last == last]
    assert len(catalogue.tombstones) == (when is Meanwhile)
    assert (catalogue.lost, catalogue.pins) == ((), ())
    assert ebr_rules.check_prefix(scene.store) == []


def test_a_fold_at_or_below_a_fork_stays(scene):
    last = chain(scene)
    below = plan_chain(read_catalogue(scene.store), Latest()).steps[0].snapshot.last
    fork(scene, below)
    done = compact(scene.store, by=BY)
    assert done.hashkv.revision == below < last
    assert ebr_rules.check_prefix(scene.store) == []


def test_a_pin_keeps_the_chain_while_it_is_read_and_is_gone_afterwards(scene):
    last = chain(scene)
    seen = []

    def look():
        seen.extend(read_catalogue(scene.store).pins)

    chained = plan_chain(read_catalogue(scene.store), Latest())
    compact(Meanwhile(scene.store, look), by=BY)
    (pin,) = seen
    assert (pin.key, pin.through, pin.by) == (chained.full.name.key, last, BY)
    assert pin.until - pin.created_at == pins.STAY
    assert read_catalogue(scene.store).pins == ()
