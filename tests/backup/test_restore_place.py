"""A restore over an old member: killed, refused, repeated; the old data outlives whatever goes wrong."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs
from rootcellar.backup.restore import place
from rootcellar.backup.restore.restore import restore
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import DamagedObjectError, QuotaError, TargetError, UsageError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import encode_row_key
from rootcellar.stores.file import FileStore
from rootcellar.wal.verify import verify_member
from tests.backup.killing import Killer
from tests.backup.plans import plan_of
from tests.mvcc.databases import write_database

OLD = {"snap/db": b"old database", "wal/0.wal": b"old log"}


def old_member(data_dir):
    for name, data in OLD.items():
        (data_dir / "member" / name).parent.mkdir(parents=True, exist_ok=True)
        (data_dir / "member" / name).write_bytes(data)
    return data_dir


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def ours_in(data_dir):
    return {path.name for path in data_dir.glob(".rootcellar-*")} - {place.QUARANTINE, place.LOCK}


def assert_complete(data_dir, expected):
    """The new member is whole: database, log and snapshot file, with the recorded HashKV."""
    with BoltFile(data_dir / "member" / "snap" / "db") as file:
        check(file)
        assert hash_kv(file).hash == expected["hashkv"][str(expected["last_revision"])]["hash"]
    assert not verify_member(data_dir / "member").lacks_snapshot


def restore_over(root, data_dir):
    store = FileStore(root)
    plan = plan_of(store)
    return restore(plan, store, {plan.members[0].name: data_dir}, replace=True)


@pytest.fixture
def data_dir(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


one_backup = pytest.mark.parametrize("ebr_backup", ["gzip-3.5"], indirect=True)


@one_backup
@pytest.mark.parametrize("exchange", [True, False])
def test_killed_anywhere_the_old_data_or_the_whole_new_is_there(ebr_backup, killer, tmp_path, exchange):
    outcomes = set()
    for at in range(1000):
        data_dir = old_member(tmp_path / f"data-{at}")
        if not killer.run(restore_over, ebr_backup.root, data_dir, at=at, exchange=exchange):
            break
        place.settle(data_dir, datetime.now(UTC))
        assert not ours_in(data_dir)
        if contents(data_dir / "member") == OLD:
            outcomes.add("old")
            assert not (data_dir / place.QUARANTINE).exists()
        else:
            outcomes.add("new")
            assert_complete(data_dir, ebr_backup.expected)
            (quarantine,) = (data_dir / place.QUARANTINE).iterdir()
            assert contents(quarantine / "member") == OLD
        shutil.rmtree(data_dir)
    assert outcomes == {"old", "new"}
    assert at > 50


@one_backup
def test_a_restore_that_was_killed_is_simply_run_again(ebr_backup, killer, data_dir):
    old_member(data_dir)
    for at in (5, 25, 45, 65):
        killer.run(restore_over, ebr_backup.root, data_dir, at=at)

    restore_over(ebr_backup.root, data_dir)

    assert_complete(data_dir, ebr_backup.expected)
    (quarantine,) = (data_dir / place.QUARANTINE).iterdir()
    assert contents(quarantine / "member") == OLD


@one_backup
def test_repeating_a_restore_does_nothing(ebr_backup, data_dir):
    store = ebr_backup.store
    plan = plan_of(store, members=["a=http://localhost:1", "b=http://localhost:2"])
    assert restore(plan, store, {"a": data_dir}) is not None
    before = contents(data_dir)

    assert restore(plan, store, {"a": data_dir}) is None
    assert restore(plan, store, {"a": data_dir}, replace=True) is None

    assert contents(data_dir) == before


@one_backup
def test_the_wrong_member_of_the_same_plan_is_replaced_and_kept(ebr_backup, data_dir):
    store = ebr_backup.store
    plan = plan_of(store, members=["a=http://localhost:1", "b=http://localhost:2"])
    restore(plan, store, {"a": data_dir})
    (data_dir / "member" / "written-since").write_bytes(b"precious")

    with pytest.raises(TargetError, match="holds an etcd member already") as caught:
        restore(plan, store, {"b": data_dir})
    assert "--replace" in caught.value.hint
    restored = restore(plan, store, {"b": data_dir}, replace=True)

    assert (data_dir / "member" / "rootcellar.json").exists()
    (quarantined,) = restored.quarantined
    assert contents(Path(quarantined))["written-since"] == b"precious"


@one_backup
def test_a_member_that_the_plan_does_not_know_is_refused_before_anything_is_touched(ebr_backup, data_dir):
    store = ebr_backup.store
    plan = plan_of(store)
    with pytest.raises(UsageError, match="no member other"):
        restore(plan, store, {"other": data_dir})
    assert not list(data_dir.iterdir())


@one_backup
def test_a_damaged_object_leaves_the_old_data_in_force(ebr_backup, data_dir):
    old_member(data_dir)
    keys = sorted(
        info.key for info in ebr_backup.store.list() if names.parse(info.key).kind is names.Kind.DELTA
    )
    path = ebr_backup.root / keys[2]
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(DamagedObjectError) as caught:
        restore_over(ebr_backup.root, data_dir)

    assert caught.value.name == keys[2]
    sound = names.parse(keys[1]).last
    assert f"--to-revision {sound}" in caught.value.hint
    assert contents(data_dir / "member") == OLD
    assert not ours_in(data_dir)
    store = ebr_backup.store
    restored = restore(plan_of(store, sound), store, {"default": data_dir}, replace=True)
    assert restored.revision == sound


@one_backup
def test_a_result_over_quota_is_refused(ebr_backup, data_dir):
    old_member(data_dir)
    store = ebr_backup.store
    plan = plan_of(store, quota=100_000)
    with pytest.raises(QuotaError, match="quota"):
        restore(plan, store, {"default": data_dir}, replace=True)
    assert contents(data_dir / "member") == OLD
    assert not ours_in(data_dir)


def refuse_a_small_disk(root, data_dir):
    old_member(data_dir)
    with pytest.raises(TargetError, match="free, the restore needs") as caught:
        restore_over(root, data_dir)
    assert "another file system" in caught.value.hint
    assert contents(data_dir / "member") == OLD
    assert not ours_in(data_dir)


def run_out_of_space(root, data_dir):
    old_member(data_dir)
    with pytest.raises(TargetError, match="the file system is full; the old data is untouched"):
        restore_over(root, data_dir)
    assert contents(data_dir / "member") == OLD
    assert not ours_in(data_dir)


@one_backup
def test_a_file_system_without_room_is_refused(ebr_backup, data_dir, killer):
    killer.run(refuse_a_small_disk, ebr_backup.root, data_dir, mounts=((data_dir, 1 << 20),))


def test_a_file_system_that_fills_up_keeps_the_old_data(store, tmp_path, data_dir, killer):
    """Nobody recorded how large the full is, and it is more than its stored bytes let one expect."""
    rows = {
        encode_row_key(revision): encode(KeyValue(b"key", 2, revision, revision - 1, bytes(1 << 20)))
        for revision in range(2, 30)
    }
    database = write_database(tmp_path / "db", {b"key": rows})
    payload = codecs.append_hash([database.read_bytes()])
    store.put(names.full(29, 1_790_000_000).key, codecs.compress(payload, names.GZIP))

    killer.run(run_out_of_space, tmp_path / "store", data_dir, mounts=((data_dir, 20 << 20),))


def restore_as_another_user(root, data_dir):
    with pytest.raises(TargetError) as caught:
        restore_over(root, data_dir)
    return caught.value.hint


@one_backup
def test_a_directory_that_cannot_be_written_is_refused_with_a_hint(ebr_backup, data_dir, killer):
    old_member(data_dir)
    reachable(data_dir)
    reachable(ebr_backup.root)
    data_dir.chmod(0o755)

    killer.run(restore_as_another_user, ebr_backup.root, data_dir, uid=65534)

    assert contents(data_dir / "member") == OLD


@one_backup
def test_another_user_restores_its_own_directory(ebr_backup, data_dir, killer):
    old_member(data_dir)
    for path in (data_dir, *data_dir.rglob("*")):
        os.chown(path, 65534, 65534)
    reachable(data_dir)
    for path in (ebr_backup.root, *ebr_backup.root.rglob("*")):
        path.chmod(0o755)
    reachable(ebr_backup.root)

    killer.run(restore_over, ebr_backup.root, data_dir, uid=65534)

    assert_complete(data_dir, ebr_backup.expected)
    assert {path.stat().st_uid for path in (data_dir / "member").rglob("*")} == {65534}


def reachable(path):
    """Let others reach a temporary directory, which pytest keeps to itself."""
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


@one_backup
def test_a_running_etcd_is_refused_and_not_disturbed(etcd, ebr_backup):
    member = etcd.start("3.5")
    with pytest.raises(TargetError, match="an etcd is running"):
        restore_over(ebr_backup.root, member.data_dir)
    member.etcdctl("put", "still", "served")


@one_backup
def test_a_mistake_in_one_data_directory_leaves_all_members_as_they_were(ebr_backup, tmp_path):
    store = ebr_backup.store
    plan = plan_of(store, members=["a=http://localhost:1", "b=http://localhost:2"])
    old_member(tmp_path / "b")
    with pytest.raises(TargetError, match="holds an etcd member already"):
        restore(plan, store, {"a": tmp_path / "a", "b": tmp_path / "b"})
    assert not (tmp_path / "a" / "member").exists()
    assert contents(tmp_path / "b" / "member") == OLD


@one_backup
def test_an_etcd_that_starts_meanwhile_keeps_all_members_as_they_were(etcd, ebr_backup, tmp_path):
    """Found out before the first member is swapped, although the restore had looked at its beginning."""
    store = ebr_backup.store
    late = etcd.make("3.5")
    old_member(tmp_path / "a")
    plan = plan_of(store, members=["a=http://localhost:1", "b=http://localhost:2"])

    def start_late(phase, _more):
        if phase == "full" and not late.running:
            late.start()

    with pytest.raises(TargetError, match="an etcd is running"):
        restore(plan, store, {"a": tmp_path / "a", "b": late.data_dir}, replace=True, progress=start_late)

    assert contents(tmp_path / "a" / "member") == OLD
    assert not ours_in(tmp_path / "a")
    assert not ours_in(late.data_dir)
    late.etcdctl("put", "still", "served")
