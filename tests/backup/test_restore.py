"""What a restore promises beyond its data: where it ends, what it compares, refuses and tells."""

from __future__ import annotations

import gzip
import hashlib

import msgspec
import pytest

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.objects import delta
from rootcellar.backup.restore.plan import ExpectedHash
from rootcellar.backup.restore.restore import restore
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import (
    ChainError,
    DamagedObjectError,
    DeniedError,
    NothingToRestoreError,
    ProofError,
    TargetError,
    UsageError,
)
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.revision import KEY_BUCKET
from rootcellar.stores.file import FileStore
from rootcellar.wal.verify import verify_member
from tests.backup.histories import BEGINNING, REVISIONS_PER_DELTA, SECOND, database, invent, stored, upto
from tests.backup.plans import plan_of, restore_into, restore_members

one_backup = pytest.mark.parametrize("ebr_backup", ["gzip-3.5"], indirect=True)


def database_of(data_dir):
    return data_dir / "member" / "snap" / "db"


def hash_of(data_dir, *where, **how):
    with BoltFile(database_of(data_dir)) as file:
        check(file)
        return hash_kv(file, *where, **how)


@pytest.fixture
def chain(store, tmp_path):
    """A full up to revision 100 and deltas of 40 revisions each, a second a revision."""
    events = invent(300, 7)
    path = database(tmp_path / "full", upto(events, 100))
    payload = path.read_bytes()
    store.put(names.full(100, 1_790_000_099).key, [gzip.compress(payload + hashlib.sha256(payload).digest())])
    last = events[-1].mod_revision
    for first in range(101, last + 1, REVISIONS_PER_DELTA):
        end = min(first + REVISIONS_PER_DELTA - 1, last)
        part = [event for event in events if first <= event.mod_revision <= end]
        store.put(names.delta(first, end, 1_790_000_000 + end).key, [stored(part)])
    whole = database(tmp_path / "whole", events)
    return store, events, whole


def expected(whole, revision):
    with BoltFile(whole) as file:
        return hash_kv(file, revision)


@pytest.mark.parametrize("second", [100, 101, 150, 180, 181, 299])
def test_a_moment_means_the_last_revision_received_by_then(chain, tmp_path, second):
    store, _, whole = chain
    restored = restore_into(tmp_path / "data", store, moment=BEGINNING + second * SECOND + SECOND // 2)
    assert restored.revision == second
    assert restored.hashkv == expected(whole, second)
    if second > 100:
        assert restored.last_time == delta.format_time(BEGINNING + second * SECOND)


@pytest.mark.parametrize("revision", [2, 40, 99])
def test_a_revision_below_the_only_full_is_cut_out_of_it(chain, tmp_path, revision):
    store, _, whole = chain
    restored = restore_into(tmp_path / "data", store, revision)
    assert (restored.revision, restored.hashkv) == (revision, expected(whole, revision))


@one_backup
def test_a_revision_that_was_cut_out_of_a_full_is_served(etcd, ebr_backup, tmp_path):
    member = etcd.make("3.5")
    restored = restore_members([member], ebr_backup.store, 100)
    member.start()
    said = member.hash_kv()
    assert (said.hash, said.revision) == (restored.hashkv.hash, 100)
    member.etcdctl("put", "next", "revision")
    assert member.hash_kv().revision == 101


@pytest.mark.parametrize("ebr_backup", ["none-compacted-3.5"], indirect=True)
def test_a_revision_that_the_full_has_compacted_away_is_refused(ebr_backup, tmp_path):
    with pytest.raises(NothingToRestoreError, match="was compacted away before this full was taken"):
        restore_into(tmp_path / "data", ebr_backup.store, 5)
    assert not (tmp_path / "data" / "member").exists()


@pytest.mark.parametrize("ask", ["beyond the end", "in a gap"])
def test_what_was_never_captured_is_not_made_up(chain, tmp_path, ask):
    store, events, _ = chain
    if ask == "in a gap":
        store.delete(next(info.key for info in store.list() if "-00000181-" in info.key))
    wanted = 190 if ask == "in a gap" else events[-1].mod_revision + 1
    with pytest.raises((ChainError, NothingToRestoreError)) as caught:
        restore_into(tmp_path / "data", store, wanted)
    assert caught.value.hint
    assert not (tmp_path / "data").exists()


def test_a_moment_in_a_gap_is_found_out_when_the_deltas_are_read(chain, tmp_path):
    """Names have seconds only: that nothing of the last delta lies behind the moment shows in its events."""
    store, _, _ = chain
    for info in list(store.list()):
        if info.key.startswith("v2/Incr") and names.parse(info.key).start > 181:
            store.delete(info.key)
    store.delete(next(info.key for info in store.list() if "-00000181-" in info.key))
    plan = plan_of(store, moment=BEGINNING + 150 * SECOND)
    must_stop = msgspec.structs.replace(plan, must_stop=True)
    assert restore(must_stop, store, {"default": tmp_path / "a"}).revision == 150
    late = msgspec.structs.replace(must_stop, moment=BEGINNING + 190 * SECOND)
    with pytest.raises(ChainError, match="after revision 180 and before that time is missing") as caught:
        restore(late, store, {"default": tmp_path / "b"})
    assert "--to-revision 180" in caught.value.hint
    assert not (tmp_path / "b" / "member").exists()


@one_backup
def test_the_hash_that_was_recorded_with_the_full_is_held_against_it(ebr_backup, tmp_path):
    store = ebr_backup.store
    full = ebr_backup.expected["full_revision"]
    said = ebr_backup.expected["hashkv"][str(full)]["hash"]
    plan = plan_of(store)
    right = msgspec.structs.replace(plan, expected=ExpectedHash(said, full, -1))
    assert restore(right, store, {"default": tmp_path / "a"}).compared
    wrong = msgspec.structs.replace(plan, expected=ExpectedHash(said ^ 1, full, -1))
    with pytest.raises(ProofError, match=f"at revision {full} the source had HashKV {said ^ 1}") as caught:
        restore(wrong, store, {"default": tmp_path / "b"})
    assert "another full" in caught.value.hint
    assert not (tmp_path / "b" / "member").exists()
    assert not restore(plan, store, {"default": tmp_path / "c"}).compared


@one_backup
def test_an_object_that_is_another_than_recorded_is_refused_though_it_is_sound(ebr_backup, tmp_path):
    store = ebr_backup.store
    plan = plan_of(store)
    changed = msgspec.structs.replace(plan.deltas[1], sha256="0" * 64)
    plan = msgspec.structs.replace(plan, deltas=(plan.deltas[0], changed, *plan.deltas[2:]))
    with pytest.raises(DamagedObjectError, match="its sha256 differs") as caught:
        restore(plan, store, {"default": tmp_path / "data"})
    assert caught.value.name == changed.key
    assert f"--to-revision {plan.deltas[0].last}" in caught.value.hint


@one_backup
def test_what_was_read_is_told_by_hash(ebr_backup, tmp_path):
    plan, read = plan_of(ebr_backup.store), {}
    restore(plan, ebr_backup.store, {"default": tmp_path / "data"}, read=read)
    assert read == {
        each.key: hashlib.sha256((ebr_backup.root / each.key).read_bytes()).hexdigest()
        for each in (plan.full, *plan.deltas)
    }


@one_backup
def test_an_etcd_that_could_not_serve_it_is_refused(ebr_backup, tmp_path):
    with pytest.raises(TargetError, match=r"from etcd 3.5, which etcd 3.4 cannot serve"):
        restore_into(tmp_path / "data", ebr_backup.store, for_etcd="3.4")
    assert not (tmp_path / "data" / "member").exists()


@one_backup
def test_all_members_come_from_one_download(ebr_backup, tmp_path):
    store = ebr_backup.store
    members = [f"{name}=http://{name}:2380" for name in ("a", "b", "c")]
    plan = plan_of(store, members=members)
    reads = []

    class Counting(FileStore):
        def get(self, key, **how):
            reads.append(key)
            return super().get(key, **how)

    restored = restore(plan, Counting(ebr_backup.root), {name: tmp_path / name for name in ("a", "b", "c")})
    assert len(reads) == len(set(reads)) == 1 + len(plan.deltas)
    assert len({database_of(tmp_path / name).read_bytes() for name in ("a", "b", "c")}) == 1
    reports = [verify_member(tmp_path / name / "member").wal for name in ("a", "b", "c")]
    assert {f"{report.cluster_id:x}" for report in reports} == {restored.cluster_id} == {plan.cluster_id}
    assert {f"{report.member_id:x}" for report in reports} == {member.id for member in plan.members}


@one_backup
def test_members_restored_on_different_hosts_are_of_one_cluster(ebr_backup, tmp_path):
    store = ebr_backup.store
    plan = plan_of(store, members=["a=http://h1:2380", "b=http://h2:2380"])
    found = [restore(plan, store, {name: tmp_path / name}) for name in ("a", "b")]
    assert found[0].hashkv == found[1].hashkv
    assert found[0].cluster_id == found[1].cluster_id
    assert hash_of(tmp_path / "a") == hash_of(tmp_path / "b")


@one_backup
def test_the_announcement_of_a_fork_is_left_before_the_swap(ebr_backup, tmp_path):
    store = ebr_backup.store
    restored = restore_into(tmp_path / "data", store, 200, announce=True)
    (intent,) = read_catalogue(store).intents
    assert (intent.forked_at, intent.cluster_id) == (200, restored.cluster_id)
    assert restored.warnings == ()


class ReadOnly(FileStore):
    def put(self, key, chunks, *, condition=None):
        raise DeniedError(f"{key}: access denied")


def test_a_store_that_cannot_be_written_is_no_reason_not_to_restore(chain, tmp_path):
    store, _, _ = chain
    plan = plan_of(store, announce=True)

    restored = restore(plan, ReadOnly(tmp_path / "store"), {"default": tmp_path / "data"})
    assert "no fork intent could be left" in restored.warnings[0]
    assert (tmp_path / "data" / "member").exists()


def test_keys_and_history_asked_for_at_once_are_refused(chain):
    with pytest.raises(UsageError, match="exclude each other"):
        plan_of(chain[0], keep_history=True, compact_to=5)


def test_a_compaction_goes_with_a_full_that_is_cut_back_and_never_above_it(chain, tmp_path):
    store, _, whole = chain
    with pytest.raises(UsageError, match=r"--compact-to 41 lies above the target, 40"):
        plan_of(store, 40, compact_to=41)
    restored = restore_into(tmp_path / "data", store, 40, compact_to=30)
    with BoltFile(whole) as file:
        assert restored.hashkv == hash_kv(file, 40, compact_revision=30)
    with BoltFile(database_of(tmp_path / "data")) as file:
        assert StoreMeta.read(file).compact_revision == 30


def test_no_row_is_left_of_the_time_behind_the_end(chain, tmp_path):
    store, events, _ = chain
    restore_into(tmp_path / "data", store, 150)
    with BoltFile(database_of(tmp_path / "data")) as file:
        found = len(list(file.bucket(KEY_BUCKET).items()))
    assert found == len(upto(events, 150))
