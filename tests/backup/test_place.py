"""A new member in the place of an old one: killed anywhere, and nothing of anybody's is lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.restore import place
from rootcellar.errors import TargetError
from testbed.cache import UnavailableError
from tests.backup.killing import Killer

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def write(directory, **files):
    directory.mkdir(parents=True, mode=0o700)
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_text(text)
    return directory


def contents(directory):
    """Every file below with its text; empty directories do not count."""
    return {
        str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()
    }


def old_member(data_dir):
    return write(data_dir / "member", snap__db="old database", wal__0="old log")


def build(data_dir):
    """What a restore does between `prepare` and the swap."""
    owner = place.Owner.of(data_dir)
    build_id = str(uuid.uuid4())
    member = place.prepare(data_dir, build_id)
    write(member / "snap", db="new database")
    write(member / "wal", log="new log")
    place.finish(member, {"id": "a plan", "build": build_id}, owner)


def swap(data_dir, now=NOW):
    place.settle(data_dir, now)
    build(data_dir)
    return place.put_in_force(data_dir, now)


def quarantines(data_dir):
    """What each holds, oldest first."""
    top = data_dir / place.QUARANTINE
    return [contents(path) for path in sorted(top.iterdir()) if path.is_dir()] if top.exists() else []


def ours_in(data_dir):
    """Names of our own that lie in the data directory, but for the quarantine and the lock."""
    return {path.name for path in data_dir.glob(".rootcellar-*")} - {place.QUARANTINE, place.LOCK}


@pytest.fixture
def data_dir(tmp_path):
    return write(tmp_path / "data")


@pytest.fixture
def inhabited(data_dir):
    """An old member, two quarantines, and things that are none of ours."""
    old_member(data_dir)
    write(data_dir / "proxy", cluster="theirs")
    write(data_dir / "member.bak", db="theirs")
    for day in (1, 2):
        quarantine = (
            data_dir / place.QUARANTINE / (NOW - timedelta(days=10 - day)).strftime("%Y%m%dT%H%M%S.%fZ")
        )
        write(quarantine / "member", db=f"quarantined {day}")
    (data_dir / place.QUARANTINE / "README").write_text("theirs")
    return data_dir


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


def test_a_first_member_takes_its_place(data_dir):
    assert swap(data_dir) is None
    assert contents(data_dir / "member")["snap/db"] == "new database"
    assert not ours_in(data_dir)


@pytest.mark.parametrize("exchange", [True, False])
def test_an_old_member_goes_to_quarantine(data_dir, killer, exchange):
    old = contents(old_member(data_dir))

    killer.run(swap, data_dir, exchange=exchange)

    assert contents(data_dir / "member")["snap/db"] == "new database"
    assert quarantines(data_dir) == [{f"member/{name}": text for name, text in old.items()}]
    assert not ours_in(data_dir)


def test_two_quarantines_are_kept_and_the_oldest_goes(inhabited):
    swap(inhabited)

    assert [sorted(each.values()) for each in quarantines(inhabited)] == [
        ["quarantined 2"],
        ["old database", "old log"],
    ]
    assert (inhabited / place.QUARANTINE / "README").read_text() == "theirs"


def test_a_clock_that_was_set_back_does_not_cost_the_newest_quarantine(inhabited):
    quarantined = swap(inhabited, NOW - timedelta(days=4000))

    assert contents(quarantined) == {"snap/db": "old database", "wal/0": "old log"}
    for second in range(2):
        swap(inhabited, NOW - timedelta(days=4000 - second))
    assert [min(each.values()) for each in quarantines(inhabited)] == ["new database"] * 2


def test_an_old_member_from_the_very_same_plan_is_not_taken_for_a_failed_build(data_dir):
    build(data_dir)
    place.put_in_force(data_dir, NOW)
    (data_dir / "member" / "snap" / "db").write_text("written since")

    build(data_dir)
    quarantined = place.put_in_force(data_dir, NOW)

    assert contents(quarantined)["snap/db"] == "written since"


def kill_everywhere(killer, fresh, call, **how):
    """Run `call(directory)` on fresh copies, killed at every touch in turn; yields each directory left."""
    for at in range(1000):
        directory = fresh()
        if not killer.run(call, directory, at=at, **how):
            assert at > 5
            return
        yield directory
    raise AssertionError("the call never came to its end")


def settle(directory):
    place.settle(directory, NOW + timedelta(seconds=5))


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("has_old", [True, pytest.param(False, marks=pytest.mark.long)])
def test_killed_anywhere_the_old_or_the_new_is_in_force_whole(inhabited, killer, tmp_path, exchange, has_old):
    if not has_old:
        shutil.rmtree(inhabited / "member")
    before = contents(inhabited)
    copies = iter(range(10_000))

    def fresh(origin=inhabited):
        copy = tmp_path / f"copy-{next(copies)}"
        shutil.copytree(origin, copy)
        return copy

    def assert_sound(directory):
        after = contents(directory)
        note = after.pop("member/rootcellar.json", None)
        kept = [text for name, text in sorted(after.items()) if name.startswith(place.QUARANTINE)]
        theirs = {
            name: text for name, text in before.items() if name.split("/")[0] in {"proxy", "member.bak"}
        }
        assert theirs.items() <= after.items()
        if note is None:
            assert after == before
        else:
            assert json.loads(note)["id"] == "a plan"
            assert after["member/snap/db"] == "new database"
            assert after["member/wal/log"] == "new log"
            oldest = (
                ["quarantined 2", "old database", "old log"]
                if has_old
                else ["quarantined 1", "quarantined 2"]
            )
            assert kept == [*oldest, "theirs"]
        assert not ours_in(directory)
        return note is not None

    outcomes, seen = set(), set()
    for left in kill_everywhere(killer, fresh, swap, exchange=exchange):
        # Settling is killed everywhere as well, for each state that the swap can leave.
        state = frozenset(path.relative_to(left) for path in left.rglob("*"))
        for settling in kill_settling(killer, fresh, left, exchange) if state not in seen else ():
            settle(settling)
            outcomes.add(assert_sound(settling))
            shutil.rmtree(settling)
        seen.add(state)
        settle(left)
        outcomes.add(assert_sound(left))
        swap(left)
        assert contents(left / "member")["snap/db"] == "new database"
        assert len(quarantines(left)) == 2
        assert not ours_in(left)
        shutil.rmtree(left)
    assert outcomes == {True, False}


def kill_settling(killer, fresh, left, exchange):
    for at in range(200):
        directory = fresh(left)
        if not killer.run(settle, directory, at=at, exchange=exchange):
            shutil.rmtree(directory)
            return
        yield directory


def test_a_swap_stands_even_if_the_quarantine_cannot_be_made(data_dir):
    old = contents(old_member(data_dir))
    build(data_dir)
    (data_dir / place.QUARANTINE).write_text("in the way")

    where = place.put_in_force(data_dir, NOW)

    assert contents(data_dir / "member")["snap/db"] == "new database"
    assert contents(where) == old
    with pytest.raises(FileExistsError):
        place.settle(data_dir, NOW)
    assert contents(where) == old
    (data_dir / place.QUARANTINE).unlink()
    assert contents(place.settle(data_dir, NOW)) == old
    assert not ours_in(data_dir)


def swap_on_a_mount_point(data_dir):
    old = contents(old_member(data_dir))
    assert contents(swap(data_dir)) == old
    assert contents(data_dir / "member")["snap/db"] == "new database"


def test_a_data_directory_may_be_a_mount_point(data_dir, killer):
    killer.run(swap_on_a_mount_point, data_dir, mounts=((data_dir, 1 << 20),))


def swap_under_a_mounted_member(data_dir):
    write(data_dir / "member" / "snap", db="old database")
    build(data_dir)
    with pytest.raises(OSError, match=r"busy|cross-device"):
        place.put_in_force(data_dir, NOW)
    place.settle(data_dir, NOW)
    assert contents(data_dir / "member") == {"snap/db": "old database"}
    assert not ours_in(data_dir)


@pytest.mark.parametrize("exchange", [True, False])
def test_a_member_that_is_itself_a_mount_point_stays(data_dir, killer, exchange):
    (data_dir / "member").mkdir()
    mounts = ((data_dir / "member", 1 << 20),)
    killer.run(swap_under_a_mounted_member, data_dir, mounts=mounts, exchange=exchange)


def test_owner_and_mode_are_those_of_the_old_member(data_dir, killer):
    old_member(data_dir)
    (data_dir / "member").chmod(0o750)
    for path in (data_dir, *data_dir.rglob("*")):
        give(path, 1234)

    swap(data_dir)

    found = [path.stat() for path in (data_dir / "member").rglob("*")]
    assert {(status.st_uid, status.st_gid) for status in found} == {(1234, 1234)}
    assert stat.S_IMODE((data_dir / "member").stat().st_mode) == 0o750


def test_a_first_member_belongs_to_whom_the_data_directory_belongs(data_dir):
    give(data_dir, 1234)
    swap(data_dir)
    assert (data_dir / "member").stat().st_uid == 1234
    assert stat.S_IMODE((data_dir / "member").stat().st_mode) == 0o700


def give(path, uid):
    try:
        os.chown(path, uid, uid)
    except PermissionError as error:
        raise UnavailableError("only root can give files away") from error


def test_another_user_restores_where_it_may_write(tmp_path, killer):
    """A volume that belongs to root and to a group of the process, as Kubernetes mounts it."""
    data_dir = tmp_path / "volume"
    data_dir.mkdir()
    give(data_dir, 0)
    os.chown(data_dir, 0, 1234)
    data_dir.chmod(0o2770)
    reachable(data_dir)

    killer.run(swap, data_dir, uid=1234)

    assert contents(data_dir / "member")["snap/db"] == "new database"
    assert (data_dir / "member").stat().st_uid == 1234


def test_another_user_cannot_take_over_somebodys_member(tmp_path, killer):
    data_dir = write(tmp_path / "data")
    old_member(data_dir)
    give(data_dir / "member", 4321)
    data_dir.chmod(0o777)
    reachable(data_dir)

    with pytest.raises(TargetError, match="must belong to 4321") as caught:
        killer.run(build, data_dir, uid=1234)

    assert "uid 4321 or as root" in caught.value.hint


def reachable(path):
    """Let others reach a temporary directory, which pytest keeps to itself."""
    for parent in path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


def test_two_restores_do_not_work_in_one_directory(data_dir):
    with (
        place.locked(data_dir),
        pytest.raises(TargetError, match="another restore is at work"),
        place.locked(data_dir),
    ):
        pass
    with place.locked(data_dir):
        pass


def test_a_lock_left_by_root_does_not_lock_others_out(tmp_path, killer):
    data_dir = write(tmp_path / "data")
    with place.locked(data_dir):
        pass
    give(data_dir, 1234)
    give(data_dir / place.LOCK, 0)
    reachable(data_dir)

    killer.run(lock_and_unlock, data_dir, uid=1234)


def lock_and_unlock(data_dir):
    with place.locked(data_dir):
        pass


def test_a_running_etcd_is_noticed_before_and_right_at_the_swap(etcd, etcd_line):
    member = etcd.start(etcd_line)
    with pytest.raises(TargetError, match="an etcd is running"):
        place.refuse_running_etcd(member.data_dir)
    build(member.data_dir)

    with pytest.raises(TargetError, match="an etcd is running") as caught:
        place.put_in_force(member.data_dir, NOW)

    assert "stop it" in caught.value.hint
    place.settle(member.data_dir, NOW)
    member.etcdctl("put", "still", "served")
    member.stop()
    place.refuse_running_etcd(member.data_dir)


def test_whether_an_etcd_runs_on_a_file_that_cannot_be_opened_is_not_guessed(tmp_path, killer):
    data_dir = write(tmp_path / "data")
    old_member(data_dir)
    (data_dir / "member" / "snap" / "db").chmod(0o600)
    for path in (data_dir, data_dir / "member", data_dir / "member" / "snap"):
        path.chmod(0o755)
    reachable(data_dir)

    with pytest.raises(TargetError, match="cannot be told"):
        killer.run(place.refuse_running_etcd, data_dir, uid=1234)
