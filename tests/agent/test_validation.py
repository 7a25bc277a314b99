"""Data directories of real etcds, whole and damaged, as they are found before a start."""

from __future__ import annotations

import fcntl
import resource
import shutil
import signal

import pytest

from rootcellar.agent.validation import Mode, Status, Validation, against_store, keep_guard, validate
from rootcellar.etcd.client import EtcdClient
from testbed.etcd import start_together
from tests.agent.door_scene import break_pages, damage, lived, stillborn, write
from tests.backup.killing import Killer

MODES = list(Mode)


@pytest.fixture
def killed(etcd, etcd_line):
    """A data directory of every line, whose etcd was killed."""
    member = lived(etcd, etcd_line)
    member.kill()
    return member


@pytest.fixture
def dead(etcd):
    """A data directory for what does not depend on the line."""
    member = lived(etcd, "3.6")
    member.kill()
    return member


@pytest.mark.parametrize("mode", MODES)
def test_what_a_killed_etcd_leaves_is_valid(killed, mode):
    found = validate(killed.data_dir, mode)
    assert found.status is Status.VALID, found
    assert found.revision + found.reserve >= 41
    assert found.member_id
    assert found.cluster_id


def test_what_is_found_valid_is_what_etcd_starts_on(killed):
    found = validate(killed.data_dir, Mode.FULL)
    killed.start()
    with EtcdClient([killed.endpoint]) as client:
        header = client.header()
    assert (found.member_id, found.cluster_id) == (header.member_id, header.cluster_id)
    assert found.revision <= header.revision <= found.revision + found.reserve


def leads(member):
    with EtcdClient([member.endpoint]) as client:
        status = client.status()
    return status.leader == status.header.member_id


def test_members_that_took_and_sent_raft_snapshots_are_valid_when_they_are_killed(etcd, etcd_line):
    """Also a follower that was away for so long that it was sent a database."""
    flags = ("--snapshot-count=50", "--experimental-snapshot-catchup-entries=10")
    three = etcd.start_cluster(etcd_line, flags=flags if etcd_line == "3.5" else flags[:1])
    late = next(member for member in three if not leads(member))
    with EtcdClient([member.endpoint for member in three if member is not late]) as client:
        write(client, 100)
        late.kill()
        write(client, 400)
        late.start()
        write(client, 20)
    for member in three:
        member.kill()
    for member in three:
        found = validate(member.data_dir, Mode.FULL)
        assert found.valid, found
    start_together(three)
    assert len({member.hash_kv() for member in three}) == 1


def test_looking_changes_nothing(dead):
    def tree():
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_mode)
            for path in sorted(dead.data_dir.rglob("*"))
        }

    before = tree()
    validate(dead.data_dir, Mode.FULL, latest=10**9, namespace="shoot")
    assert tree() == before


def test_a_directory_that_is_not_there_is_told_from_one_without_a_member(tmp_path):
    missing = validate(tmp_path / "nowhere", Mode.FULL)
    assert (missing.status, missing.blank) == (Status.NOT_EXIST, True)
    empty = validate(tmp_path, Mode.FULL)
    assert (empty.status, empty.blank) == (Status.INVALID_STRUCTURE, True)
    assert "holds no member" in empty.finding


@pytest.mark.parametrize("part", ["snap", "wal", "snap/db"])
def test_a_member_without_one_of_its_parts_has_an_invalid_structure_and_is_not_blank(dead, part):
    path = dead.data_dir / "member" / part
    path.rename(dead.data_dir / "taken")
    found = validate(dead.data_dir, Mode.SANITY)
    assert (found.status, found.blank) == (Status.INVALID_STRUCTURE, False)
    assert str(path) in found.finding


@pytest.mark.parametrize("mode", MODES)
def test_a_log_without_a_segment_is_none(dead, mode):
    """etcd would begin a new one that its database is ahead of, and lose what is written next."""
    log = dead.data_dir / "member" / "wal"
    for segment in log.glob("*.wal"):
        segment.rename(dead.data_dir / segment.name)
    found = validate(dead.data_dir, mode)
    assert (found.status, found.blank) == (Status.INVALID_STRUCTURE, False)
    assert f"{log} holds no segment" in found.finding


def test_an_etcd_that_died_before_it_wrote_anything_left_nothing_to_lose(tmp_path):
    (tmp_path / "member" / "snap").mkdir(parents=True)
    assert validate(tmp_path, Mode.SANITY).blank


@pytest.mark.parametrize("mode", MODES)
def test_an_etcd_that_could_not_ask_its_peers_whom_it_joins_left_nothing_to_lose(etcd, etcd_line, mode):
    member = stillborn(etcd, etcd_line)
    found = validate(member.data_dir, mode)
    assert (found.status, found.blank) == (Status.INVALID_STRUCTURE, True), found


@pytest.fixture
def unborn(etcd):
    """The member directory of an etcd that never was a member, for what does not depend on the line."""
    return stillborn(etcd, "3.6").data_dir / "member"


def test_an_empty_log_beside_a_database_without_a_row_is_blank(unborn):
    (unborn / "wal").mkdir()
    assert validate(unborn.parent, Mode.SANITY).blank


def test_a_log_that_was_not_finished_has_not_voted(unborn):
    (unborn / "wal.tmp").mkdir()
    (unborn / "wal.tmp" / f"{0:016x}-{0:016x}.wal").write_bytes(b"\0" * 4096)
    assert validate(unborn.parent, Mode.SANITY).blank


@pytest.mark.parametrize("name", ["snap/0000000000000002-0000000000000064.snap", "notes"])
def test_with_anything_else_beside_the_database_it_is_not_blank(unborn, name):
    (unborn / name).write_bytes(b"somebody's")
    assert not validate(unborn.parent, Mode.SANITY).blank


def test_a_log_on_another_disk_makes_a_member(unborn, dead, tmp_path):
    (dead.data_dir / "member" / "wal").rename(tmp_path / "wal")
    (unborn / "wal").symlink_to(tmp_path / "wal")
    (unborn / "snap" / "db").unlink()
    assert not validate(unborn.parent, Mode.SANITY).blank


def test_a_damaged_database_without_a_log_is_not_blank(unborn):
    damage(unborn / "snap" / "db", 0, b"\0" * 8192)
    assert not validate(unborn.parent, Mode.SANITY).blank


def test_broken_pages_of_the_database_are_found(killed):
    break_pages(killed.data_dir / "member" / "snap" / "db")
    found = validate(killed.data_dir, Mode.FULL)
    assert found.status is Status.BOLT_CORRUPT
    assert "the database is damaged" in found.finding


def test_broken_meta_pages_are_found_at_a_shallow_look_too(dead):
    database = dead.data_dir / "member" / "snap" / "db"
    damage(database, 0, b"\0" * 8192)
    assert validate(dead.data_dir, Mode.SANITY).status is Status.BOLT_CORRUPT


def test_a_database_cut_short_is_found_before_etcd_dies_of_it(dead):
    database = dead.data_dir / "member" / "snap" / "db"
    with database.open("r+b") as file:
        file.truncate(8192)
    found = validate(dead.data_dir, Mode.SANITY)
    assert found.status is Status.BOLT_CORRUPT
    assert "cut short" in found.finding


def last_segment(data_dir):
    return max((data_dir / "member" / "wal").glob("*.wal"))


def end_of_log(segment):
    data = segment.read_bytes().rstrip(b"\0")
    return (len(data) + 7) // 8 * 8


def test_a_torn_tail_of_the_log_is_a_remark_and_no_reason_to_throw_a_member_away(killed):
    segment = last_segment(killed.data_dir)
    end = end_of_log(segment)
    # The beginning of one more record, as a crash in the middle of a write leaves it: a length, then zeros.
    damage(segment, end, (2048).to_bytes(8, "little") + b"\x08\x02\x10" + bytes(1024))
    found = validate(killed.data_dir, Mode.FULL)
    assert found.status is Status.VALID, found
    assert any("was not finished" in remark for remark in found.remarks)


def test_damage_within_the_log_is_told_from_a_torn_tail(killed):
    segment = last_segment(killed.data_dir)
    damage(segment, end_of_log(segment) // 2 // 8 * 8, b"\x5a" * 64)
    found = validate(killed.data_dir, Mode.FULL)
    assert found.status is Status.CORRUPT
    assert "the log is damaged" in found.finding


def test_a_shallow_look_leaves_a_damaged_log_to_etcd_and_says_so(dead):
    segment = last_segment(dead.data_dir)
    damage(segment, end_of_log(segment) // 2 // 8 * 8, b"\x5a" * 64)
    found = validate(dead.data_dir, Mode.SANITY)
    assert found.status is Status.VALID
    assert any("the log is damaged" in remark for remark in found.remarks)


def test_a_database_ahead_of_its_log_is_corrupt(etcd, etcd_line, tmp_path):
    member = lived(etcd, etcd_line)
    early = tmp_path / "early"
    member.stop()
    shutil.copytree(member.data_dir / "member" / "wal", early)
    member.start()
    with EtcdClient([member.endpoint]) as client:
        write(client, 50)
    member.stop()
    shutil.rmtree(member.data_dir / "member" / "wal")
    early.rename(member.data_dir / "member" / "wal")
    found = validate(member.data_dir, Mode.FULL)
    assert found.status is Status.CORRUPT
    assert "part of the log is lost" in found.finding


def test_a_database_behind_its_log_is_valid(etcd, etcd_line, tmp_path):
    """The commit that the log notes may lie behind what it holds: the log's end counts."""
    member = lived(etcd, etcd_line)
    member.stop()
    early = shutil.copy(member.data_dir / "member" / "snap" / "db", tmp_path / "early")
    member.start()
    with EtcdClient([member.endpoint]) as client:
        write(client, 50)
    member.stop()
    shutil.copy(early, member.data_dir / "member" / "snap" / "db")
    found = validate(member.data_dir, Mode.FULL, latest=91)
    assert found.status is Status.VALID, found
    member.start()
    with EtcdClient([member.endpoint]) as client:
        assert client.header().revision == 91


def test_a_database_behind_the_store_is_told(dead):
    found = validate(dead.data_dir, Mode.SANITY, latest=5000)
    assert found.status is Status.REVISION_BEHIND
    assert "the store reaches revision 5000" in found.finding


def test_a_database_at_the_stores_revision_is_valid(dead):
    assert validate(dead.data_dir, Mode.SANITY, latest=41).valid


def test_entries_that_the_database_has_not_seen_count_for_its_revision():
    behind = Validation(Status.VALID, "", revision=10, reserve=5)
    assert against_store(behind, 15).valid
    assert against_store(behind, 16).status is Status.REVISION_BEHIND


def test_what_is_bad_already_stays_what_it_is():
    bad = Validation(Status.CORRUPT, "bad", revision=10)
    assert against_store(bad, 16) is bad


def test_a_running_etcd_is_told(etcd, etcd_line):
    member = lived(etcd, etcd_line)
    found = validate(member.data_dir, Mode.FULL)
    assert found.status is Status.CANNOT_OPEN
    assert "an etcd is running" in found.finding


def test_any_process_that_holds_the_database_is_told(dead):
    with (dead.data_dir / "member" / "snap" / "db").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert validate(dead.data_dir, Mode.FULL).status is Status.CANNOT_OPEN


def test_a_volume_of_another_namespace_is_refused(dead):
    keep_guard(dead.data_dir, "shoot--a")
    assert validate(dead.data_dir, Mode.SANITY, namespace="shoot--a").valid
    found = validate(dead.data_dir, Mode.SANITY, namespace="shoot--b")
    assert found.status is Status.WRONG_VOLUME
    assert "shoot--a" in found.finding
    assert "shoot--b" in found.finding


def test_the_guard_is_left_once_and_only_where_a_namespace_is_known(tmp_path):
    keep_guard(tmp_path / "data", "")
    assert not (tmp_path / "safe_guard").exists()
    keep_guard(tmp_path / "data", "first")
    keep_guard(tmp_path / "data", "second")
    assert (tmp_path / "safe_guard").read_text() == "first"


def keep_guard_on_a_full_disk(data_dir, namespace):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    keep_guard(data_dir, namespace)


def test_a_full_disk_leaves_no_guard_that_locks_the_volume_out(tmp_path):
    with Killer() as killer, pytest.raises(OSError, match="File too large"):
        killer.run(keep_guard_on_a_full_disk, tmp_path / "data", "shoot--a")
    assert not (tmp_path / "safe_guard").exists()
    keep_guard(tmp_path / "data", "shoot--a")
    assert (tmp_path / "safe_guard").read_text() == "shoot--a"


def test_killed_anywhere_the_guard_is_whole_or_not_there_and_the_next_start_leaves_it(tmp_path):
    deaths = 0
    with Killer() as killer:
        for at in range(100):
            volume = tmp_path / f"volume-{at}"
            killed = killer.run(keep_guard, volume / "data", "shoot--a", at=at)
            deaths += killed
            assert validate(volume / "data", Mode.FULL, namespace="shoot--a").status is Status.NOT_EXIST
            keep_guard(volume / "data", "shoot--a")
            assert [path.name for path in volume.iterdir()] == ["safe_guard"], at
            assert (volume / "safe_guard").read_text() == "shoot--a"
            if not killed:
                break
    assert deaths > 4


def test_an_empty_guard_is_none(dead):
    """Written in place, a guard was left so by a full disk."""
    guard = dead.data_dir.parent / "safe_guard"
    guard.touch()
    assert validate(dead.data_dir, Mode.SANITY, namespace="shoot--a").valid
    keep_guard(dead.data_dir, "shoot--a")
    assert guard.read_text() == "shoot--a"


def test_a_database_that_may_not_be_read_is_no_corruption(dead, monkeypatch):
    """It is looked at by the process itself: what it may not open, it must not throw away."""

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("rootcellar.agent.validation.BoltFile", refuse)
    assert validate(dead.data_dir, Mode.FULL).status is Status.CANNOT_OPEN


def test_what_the_file_system_refuses_is_unknown_and_never_corrupt(dead, monkeypatch):
    def refuse(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("rootcellar.agent.validation.BoltFile", refuse)
    found = validate(dead.data_dir, Mode.FULL)
    assert found.status is Status.UNKNOWN
    assert "Input/output error" in found.finding
