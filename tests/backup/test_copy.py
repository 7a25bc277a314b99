"""Copies between real stores: the same bytes, restorable by us and by EBR at every moment."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.catalogue import keys, ledger
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.records import Check
from rootcellar.backup.catalogue.timeline import abandon, open_timeline
from rootcellar.backup.compact.compact import compact
from rootcellar.backup.copy.copy import POLL, copy, copy_as_reference, wait_for_final
from rootcellar.backup.copy.plan import CopyWish
from rootcellar.backup.objects.sealing.grants import add_recipient
from rootcellar.backup.objects.sealing.keyring import Keyring
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import restore
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import DeniedError, IdentityError, UsageError
from rootcellar.stores.file import FileStore
from rootcellar.stores.limit import Bandwidth, LimitedStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import Dying, a_scene, store_at
from tests.backup.killing import Killer
from tests.backup.plans import plan_of, restore_into
from tests.backup.sealed_scene import FIRST, SECOND

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


def place_of(kind, request, tmp_path, name):
    if kind == "file":
        return tmp_path / name
    return request.getfixturevalue("bucket"), f"copy-{name}-{next(_prefixes)}"


@pytest.fixture
def destination(tmp_path):
    return FileStore(tmp_path / "destination")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


def two_chains(scene):
    """A full and two deltas, twice; the last revision."""
    for _ in range(2):
        scene.write(30)
        scene.full()
        for _ in range(2):
            last = scene.write(10)
            scene.capture()
    return last


def contents(store, prefix=""):
    return {info.key: b"".join(store.get(info.key)) for info in store.list(prefix)}


def sound(scene, destination, last):
    """What is there agrees, EBR can restore it, and it is etcd's state."""
    catalogue = read_catalogue(destination)
    assert (catalogue.damaged, catalogue.lost, catalogue.resized) == ((), (), [])
    assert ebr_rules.check_prefix(destination) == []
    assert plan_chain(catalogue, Latest()).reach == last
    source, scene.store = scene.store, destination
    try:
        scene.must_equal(scene.restored(), last)
    finally:
        scene.store = source


@pytest.mark.parametrize(("here", "there"), [("file", "s3"), ("s3", "file"), ("s3", "s3")])
def test_a_copy_has_the_same_bytes_and_restores_to_the_same(etcd, request, tmp_path, here, there):
    source = store_at(place_of(here, request, tmp_path, "source"))
    destination = store_at(place_of(there, request, tmp_path, "destination"))
    with a_scene(etcd, "3.6", source) as scene:
        last = two_chains(scene)

        done = copy(source, destination)

        assert contents(destination, "v2/") == contents(source, "v2/")
        for prefix in (keys.RECORDS, keys.MARKERS, keys.TIMELINES):
            assert contents(destination, prefix) == contents(source, prefix)
        assert (len(done.copied), done.failed, done.left_out) == (6, (), ())
        sound(scene, destination, last)


def test_what_belongs_to_the_writer_stays_with_it(scene, destination):
    two_chains(scene)
    (full, *_) = read_catalogue(scene.store).snapshots
    now = datetime.now(UTC)
    ledger.write_pin(scene.store, full, by="a reader", now=now, until=now + timedelta(hours=1))
    copy(scene.store, destination)
    for prefix in (keys.EPOCHS, keys.CLAIMS, keys.HEARTBEATS, keys.PINS, keys.TOMBSTONES):
        assert contents(destination, prefix) == {}
    assert contents(scene.store, keys.EPOCHS)


def test_repeating_it_writes_nothing_and_reads_no_object(scene, destination):
    two_chains(scene)
    copy(scene.store, destination)
    before = contents(destination)
    again = copy(scene.store, destination)
    assert (again.copied, len(again.present), again.size, again.documents) == ((), 6, 0, 0)
    assert contents(destination) == before


def test_it_goes_on_with_what_came_since(scene, destination):
    two_chains(scene)
    copy(scene.store, destination)
    last = scene.write(5)
    scene.capture()
    assert len(copy(scene.store, destination).copied) == 1
    sound(scene, destination, last)


def test_a_fold_copies_like_any_full(scene, destination):
    last = two_chains(scene)
    folded = compact(scene.store, by="tests/1")
    assert folded.key in copy(scene.store, destination, CopyWish(max_backups=1)).copied
    assert plan_chain(read_catalogue(destination), Latest()).steps == ()
    sound(scene, destination, last)


@pytest.mark.parametrize("wish", [CopyWish(max_backups=1), CopyWish(chain="newest")])
def test_a_part_restores_by_itself(scene, destination, wish):
    last = two_chains(scene)
    newest = [each for each in read_catalogue(scene.store).snapshots if each.is_full][-1]
    if wish.chain:
        wish = CopyWish(chain=newest.name.name)
    done = copy(scene.store, destination, wish)
    assert newest.key in done.copied
    assert len([each for each in read_catalogue(destination).snapshots if each.is_full]) == 1
    sound(scene, destination, last)


def test_up_to_a_revision_ends_with_the_object_that_holds_it(scene, destination, tmp_path):
    two_chains(scene)
    copy(scene.store, destination, CopyWish(upto=35))
    assert read_catalogue(destination).snapshots[-1].last == 41
    restored = restore_into(tmp_path / "data", destination, 35)
    scene.member.etcdctl("endpoint", "health")
    assert restored.hashkv.hash == scene.member.hash_kv(35).hash


def test_final_is_gone_from_the_copy_and_captures_may_go_on(scene, destination):
    scene.write(20)
    record = scene.full(final=True)
    copy(scene.store, destination)
    (full,) = read_catalogue(destination).snapshots
    assert full.key == record.key.removesuffix(".final")
    assert (full.record.key, full.record.stored_sha256) == (full.key, record.stored_sha256)
    assert contents(destination)[full.key] == contents(scene.store)[record.key]
    last = scene.write(3)
    assert scene.capture(store=destination).full is None
    sound(scene, destination, last)


def prove(store, checks=LEVELS[2]):
    plan = plan_restore(read_catalogue(store), store.url, Wish(Latest(), token="proof", bump_revision=0))
    return keep_proof(store, verify(store, plan, checks, by="tests/1"))


@pytest.mark.parametrize("final", [False, True])
def test_proofs_and_holds_go_with_their_objects(scene, destination, final):
    scene.write(20)
    scene.full(final=final)
    now = datetime.now(UTC)
    (full,) = read_catalogue(scene.store).snapshots
    hold = ledger.write_hold(scene.store, full, reason="kept", by="me", now=now)
    lifted = ledger.write_hold(scene.store, full, reason="was kept", by="me", now=now)
    ledger.release_hold(scene.store, lifted, reason="enough", by="me", now=now)
    prove(scene.store)
    copy(scene.store, destination)
    catalogue = read_catalogue(destination)
    (proof,), (held,) = catalogue.proofs, catalogue.holds
    (copied,) = catalogue.snapshots
    assert proof.passed(Check.HASH)
    assert [link.key for link in proof.objects] == [copied.key]
    assert (held.nonce, held.key) == (hold.nonce, copied.key)

    ledger.release_hold(scene.store, hold, reason="enough", by="me", now=now)
    copy(scene.store, destination)
    assert read_catalogue(destination).holds == ()


def test_proofs_of_what_was_not_copied_stay_behind(scene, destination):
    scene.write(20)
    scene.full()
    prove(scene.store)
    scene.write(20)
    scene.full()
    copy(scene.store, destination, CopyWish(max_backups=1))
    assert read_catalogue(destination).proofs == ()


@pytest.mark.parametrize("final", [False, True])
def test_encrypted_backups_go_over_unread_and_open_with_every_key_they_opened_with(
    scene, destination, tmp_path, final
):
    how = {"how": FullOptions(".zst.age", final=final), "recipients": (FIRST.recipient,)}
    last = scene.write(20)
    scene.capture(full=True, **how)
    if not final:
        last = scene.write(5)
        scene.capture(**how)
    catalogue = read_catalogue(scene.store)
    add_recipient(scene.store, catalogue, SECOND.recipient, Keyring((FIRST,)), by="me", now=datetime.now(UTC))

    done = copy(scene.store, destination)

    assert (len(done.copied), done.failed) == (1 if final else 2, ())
    assert list(contents(destination, "sealed/").values()) == list(contents(scene.store, "sealed/").values())
    for identity in (FIRST, SECOND):
        data_dir = tmp_path / identity.recipient.key_id
        plan = plan_of(destination)
        restored = restore(plan, destination, {"default": data_dir}, keyring=Keyring((identity,)))
        assert restored.hashkv.hash == scene.member.hash_kv(last).hash
    again = copy(scene.store, destination)
    assert (again.copied, again.documents) == ((), 0)


def test_zstd_is_checked_on_its_way(scene, destination):
    scene.write(20)
    key = scene.capture(full=True, how=FullOptions(".zst")).full.key
    scene.store.delete(keys.record(read_catalogue(scene.store).snapshots[0].name))
    corrupt(scene.store, key)
    assert [each.key for each in copy(scene.store, destination).failed] == [key]


def corrupt(store, key):
    raw = bytearray(b"".join(store.get(key)))
    raw[len(raw) // 2] ^= 1
    store.put(key, [bytes(raw)])


def keys_of(store):
    return [each.key for each in read_catalogue(store).snapshots]


def test_a_damaged_delta_is_not_copied_nor_what_only_it_leads_to(scene, destination):
    two_chains(scene)
    all_keys = keys_of(scene.store)
    corrupt(scene.store, all_keys[4])
    done = copy(scene.store, destination)
    assert [each.key for each in done.failed] == [all_keys[4]]
    assert "its sha256 differs" in done.failed[0].reason
    assert done.left_out == (all_keys[5],)
    assert set(keys_of(destination)) == set(all_keys[:4])
    assert ebr_rules.check_prefix(destination) == []


def test_behind_a_damaged_full_goes_what_the_chain_before_leads_to(scene, destination):
    """The first delta behind a full spans it, for exactly this."""
    last = two_chains(scene)
    all_keys = keys_of(scene.store)
    fulls = [key for key in all_keys if "Full" in key]
    corrupt(scene.store, fulls[1])
    done = copy(scene.store, destination)
    assert [each.key for each in done.failed] == [fulls[1]]
    assert done.left_out == ()
    assert set(keys_of(destination)) == set(all_keys) - {fulls[1]}
    sound(scene, destination, last)


def test_damage_is_found_without_a_record_too(ebr_backup, destination):
    deltas = [key for key in keys_of(ebr_backup.store) if "Incr" in key]
    wanted = (deltas or keys_of(ebr_backup.store))[-1]
    corrupt(ebr_backup.store, wanted)
    done = copy(ebr_backup.store, destination)
    assert [each.key for each in done.failed] == [wanted]
    assert wanted not in keys_of(destination)


def test_a_backup_of_ebr_s_is_copied_as_it_is(ebr_backup, destination, tmp_path):
    done = copy(ebr_backup.store, destination)
    assert done.failed == ()
    assert ebr_rules.check_prefix(destination) == []
    strip = {key.removesuffix(".final"): raw for key, raw in contents(ebr_backup.store, "v").items()}
    assert {key: raw for key, raw in contents(destination, "v").items() if key in strip} == {
        key: strip[key] for key in contents(destination, "v")
    }
    last = ebr_backup.expected["last_revision"]
    assert restore_into(tmp_path / "data", destination).revision == last
    assert copy(ebr_backup.store, destination).copied == ()


def test_another_object_of_the_name_is_left_alone_and_told(scene, destination):
    scene.write(20)
    record = scene.full()
    destination.put(record.key, [b"x" * record.stored_size])
    done = copy(scene.store, destination)
    assert "is not the object that the destination has" in done.failed[0].reason
    assert contents(destination)[record.key] == b"x" * record.stored_size


def test_a_copy_by_another_tool_only_lacks_its_records(scene, destination):
    last = two_chains(scene)
    for key, raw in contents(scene.store, "v2/").items():
        destination.put(key, [raw])
    done = copy(scene.store, destination)
    assert (done.copied, len(done.present)) == ((), 6)
    assert contents(destination, keys.RECORDS) == contents(scene.store, keys.RECORDS)
    sound(scene, destination, last)


def test_another_cluster_s_prefix_is_refused_before_anything_is_written(scene, etcd, tmp_path, destination):
    scene.write(3)
    scene.full()
    with a_scene(etcd, "3.6", destination) as other:
        other.write(3)
        other.full()
    before = contents(destination)
    with pytest.raises(IdentityError, match="the destination holds backups of cluster"):
        copy(scene.store, destination)
    assert contents(destination) == before


def test_a_store_is_not_copied_into_itself(scene):
    with pytest.raises(UsageError, match="source and destination are both"):
        copy(scene.store, scene.store)


def test_a_fork_since_the_last_copy_takes_the_dead_part_out_of_ebr_s_sight(scene, destination, tmp_path):
    two_chains(scene)
    copy(scene.store, destination)
    deltas = [each for each in read_catalogue(scene.store).snapshots if not each.is_full]
    below = deltas[1].last
    open_timeline(
        scene.store,
        parent=1,
        forked_at=below,
        cluster_id="abc",
        writer="agent/2",
        now=datetime.now(UTC),
    )
    abandon(scene.store, read_catalogue(scene.store))
    copy(scene.store, destination)
    assert sorted(keys_of(destination)) == sorted(keys_of(scene.store))
    assert ebr_rules.check_prefix(destination) == []
    assert restore_into(tmp_path / "data", destination, below).revision == below


class Failing:
    """A store that refuses one put, as a role without the right does."""

    def __init__(self, store, at):
        self._store = store
        self._at = at
        self._lock = threading.Lock()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, chunks, *, condition=None):
        with self._lock:
            self._at -= 1
        if self._at == 0:
            raise DeniedError(f"no right to put {key}")
        return self._store.put(key, chunks, condition=condition)


@pytest.mark.parametrize("at", range(1, 15, 3))
def test_a_store_that_refuses_ends_it_and_leaves_what_ebr_can_restore(scene, destination, at):
    last = two_chains(scene)
    with pytest.raises(DeniedError, match="no right to put"):
        copy(scene.store, Failing(destination, at))
    if any("Full" in key for key in keys_of(destination)):
        assert ebr_rules.check_prefix(destination) == []
    copy(scene.store, destination)
    sound(scene, destination, last)


def test_the_limits_of_a_store_hold(scene, destination):
    """A virtual clock tells how long a thin line would have taken."""
    scene.write(50, value=bytes(range(256)) * 40)
    scene.full()
    clock = VirtualClock()
    limited = LimitedStore(scene.store, download=Bandwidth(1000, clock=clock))
    size = read_catalogue(scene.store).snapshots[0].size
    done = copy(limited, destination)
    assert done.size == size
    assert clock.now >= (size - 1000) / 1000


class VirtualClock:
    """Time that passes by sleeping alone; `happens` at its moment."""

    def __init__(self, at=0.0, happens=None):
        self.now = 0.0
        self._at = at
        self._happens = happens

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self._happens is not None and self.now >= self._at:
            happens, self._happens = self._happens, None
            happens()


def test_waiting_for_a_final_full_ends_when_one_comes(scene):
    scene.write(3)
    scene.full()
    clock = VirtualClock(at=100, happens=lambda: scene.full(final=True))
    assert wait_for_final(scene.store, 600, clock=clock)
    assert 100 <= clock.now <= 100 + POLL


def test_waiting_for_a_final_full_ends_in_time(scene):
    scene.write(3)
    scene.full()
    clock = VirtualClock()
    assert not wait_for_final(scene.store, 50, clock=clock)
    assert clock.now == 50


def test_a_final_full_counts_among_the_newest_four(store):
    def put(last, *, final=False):
        store.put(f"v2/Full-00000000-{last:08d}-1{'.final' if final else ''}", [b"x"])

    put(10, final=True)
    for last in (11, 12, 13):
        put(last)
    assert wait_for_final(store, 0)
    put(14)
    assert not wait_for_final(store, 0)


def test_the_reference_s_arguments_mean_what_they_mean_there(scene, tmp_path):
    two_chains(scene)

    def copied(**arguments):
        destination = FileStore(tmp_path / f"destination-{next(_prefixes)}")
        return len(copy_as_reference(scene.store, destination, **arguments).copied)

    assert copied() == 6
    assert copied(max_backups_to_copy=1) == 3
    assert copied(max_backups_to_copy=0) == 0
    assert copied(max_backup_age=1) == 6
    assert copied(max_backup_age=0) == 0
    clock = VirtualClock()
    wait = {"wait_for_final_snapshot": True, "wait_for_final_snapshot_timeout": timedelta(seconds=40)}
    assert copied(**wait, clock=clock) == 6, "a wait in vain is no error"
    assert clock.now == 40


def copy_and_die(source, destination, at, when):
    copy(store_at(source), Dying(store_at(destination), at, when), parallel=1)


# Marker, timeline, then six objects each with its record.
@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("at", "when"),
    [
        (1, "after"),
        (2, "after"),
        (3, "within"),
        (3, "before"),
        *((at, "after") for at in (3, 4, 5, 8, 14)),
        *(pytest.param(at, "before", marks=pytest.mark.long) for at in (4, 5, 8, 11, 14)),
    ],
)
def test_a_copy_killed_anywhere_is_restorable_and_made_up_by_the_next(
    etcd, request, tmp_path, killer, kind, at, when
):
    source = place_of("file", request, tmp_path, "source")
    destination = place_of(kind, request, tmp_path, "destination")
    with a_scene(etcd, "3.6", store_at(source)) as scene:
        last = two_chains(scene)
        assert killer.run(copy_and_die, source, destination, at, when)
        there = store_at(destination)
        if any("Full" in key for key in keys_of(there)):
            assert ebr_rules.check_prefix(there) == []
        assert all(each.timeline == 1 for each in read_catalogue(there).snapshots)
        copy(scene.store, there)
        assert contents(there, "v2/") == contents(scene.store, "v2/")
        sound(scene, there, last)


def test_a_copy_that_is_not_killed_lives(scene, tmp_path, killer):
    """The premise of the numbers above: there is nothing more to be killed at."""
    two_chains(scene)
    assert not killer.run(copy_and_die, tmp_path / "store", tmp_path / "destination", 15, "before")
