"""What a WAL directory says, and what it must not say."""

import pytest

from rootcellar.errors import WalError
from rootcellar.mvcc.membership import Member
from rootcellar.wal.frames import ENTRY, METADATA, SNAPSHOT, STATE
from rootcellar.wal.messages import ConfState, HardState, Metadata, SnapshotMark
from rootcellar.wal.snapfile import write_snap
from rootcellar.wal.verify import verify_member, verify_wal

MEMBER = 0x5C76A90AE78BCEE7
US = (Member(MEMBER, "m1", ("http://127.0.0.1:2380",)),)


@pytest.fixture
def snap_dir(log):
    directory = log.directory.parent / "snap"
    directory.mkdir()
    return directory


def test_a_new_log_says_whose_it_is_and_nothing_more(log):
    report = verify_wal(log.directory)

    assert (report.member_id, report.cluster_id) == (MEMBER, 0x2C535A0000C53066)
    assert (report.hard_state, report.term, report.commit) == (None, 0, 0)
    assert (report.first_index, report.last_index) == (1, 0)
    assert report.snapshots == (SnapshotMark(0, 0),)
    assert report.torn is None


def test_a_log_says_its_term_commit_entries_and_snapshots(log):
    for index in range(1, 6):
        log.entry(index)
    log.state(commit=4)
    log.mark(3, voters=(MEMBER, 5))
    log.mark(5)

    report = verify_wal(log.directory)

    assert report.hard_state == HardState(1, MEMBER, 4)
    assert (report.first_index, report.last_index, report.last_term) == (1, 5, 1)
    # The snapshot at 5 is ahead of the commit: etcd does not start from it.
    assert [mark.index for mark in report.snapshots] == [0, 3]
    assert report.conf_state == ConfState((MEMBER, 5))


def test_an_entry_that_comes_again_takes_the_place_of_all_behind_it(log):
    for index in range(1, 6):
        log.entry(index)
    log.state(commit=2)
    log.entry(3, term=2)
    log.state(commit=3, term=2)

    report = verify_wal(log.directory)

    assert (report.last_index, report.last_term) == (3, 2)


@pytest.mark.parametrize("first", ["entry", "state"])
def test_a_snapshot_from_the_leader_stands_for_the_entries_before_it(log, first):
    log.entry(1)
    log.state(commit=1)
    log.mark(100, term=3)
    if first == "entry":
        log.entry(101, term=3)
        log.state(commit=100, term=3)
    else:
        log.state(commit=100, term=3)
        log.entry(101, term=3)

    report = verify_wal(log.directory)

    assert (report.first_index, report.last_index, report.commit) == (101, 101, 100)


def test_a_snapshot_of_its_own_may_be_noted_behind_a_newer_one_from_the_leader(log):
    for index in range(1, 5):
        log.entry(index)
    log.state(commit=4)
    log.mark(100, term=3)
    log.mark(3)
    log.state(commit=100, term=3)
    log.entry(101, term=3)

    report = verify_wal(log.directory)

    assert (report.first_index, report.last_index) == (101, 101)
    assert [mark.index for mark in report.snapshots] == [0, 3, 100]


def test_a_snapshot_that_was_never_committed_does_not_hide_the_entries_before_it(log):
    log.entry(1)
    log.state(commit=1)
    log.mark(100, term=3)
    log.entry(2)

    report = verify_wal(log.directory)

    assert (report.first_index, report.last_index) == (1, 2)


def test_leftovers_of_etcd_are_not_segments(log):
    (log.directory / "1.tmp").write_bytes(bytes(64))
    (log.directory / "0000000000000001-0000000000000001.wal.broken").write_bytes(b"x")

    assert verify_wal(log.directory).segments == ("0000000000000000-0000000000000000.wal",)


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda log: log.entry(2), "entry 2 follows entry 0"),
        (lambda log: (log.mark(5), log.entry(7)), "entry 7 follows entry 0"),
        (lambda log: (log.entry(1), log.state(1), log.entry(1)), "replaces one that is committed"),
        (lambda log: (log.entry(1, term=2), log.entry(2, term=1)), "an entry of term 1 follows term 2"),
        (lambda log: log.entry(1, term=1 << 40), "an entry of term 1099511627776 follows term 0"),
        (lambda log: (log.state(0, term=3), log.state(0, term=2)), "follows HardState"),
        (lambda log: (log.entry(1), log.state(1), log.state(0)), "follows HardState"),
        (lambda log: (log.entry(1, term=3), log.state(1, term=2)), "an entry of term 3"),
        (lambda log: log.record(METADATA, Metadata(MEMBER, 1).encode()), "once and before all else"),
        (lambda log: (log.cut(1), log.record(METADATA, b"")), "once and before all else"),
        (lambda log: log.record(STATE, b"\x10\x01"), "a hard state has no term"),
        (lambda log: log.record(STATE, b"\x08\x01\x22\x00"), "field 4 is unexpected"),
        (lambda log: log.record(STATE, b"\x08\x01\x08\x01"), "field 1 is unexpected"),
        (lambda log: log.record(STATE, b"\x0a\x01a"), "wire type 2 where a varint belongs"),
        (lambda log: log.record(STATE, b"\x08"), "is cut short"),
        (lambda log: log.record(ENTRY, b""), "no entry has type 0, term 0 and index 0"),
        (lambda log: log.record(ENTRY, b"\x08\x03\x10\x01\x18\x01"), "no entry has type 3"),
        (lambda log: log.record(ENTRY, b"\x10\x01\x18\x01\x22\x05a"), "holds 5 bytes of data"),
        (lambda log: log.record(ENTRY, b"\x18\x01\x10\x01"), "unexpected field 2"),
        (lambda log: log.record(SNAPSHOT, b"\x1a\x02\x08\x80"), "is cut short"),
        (lambda log: log.record(SNAPSHOT, b"\x1a\x01"), "needs 1 bytes, 0 are left"),
        (lambda log: log.record(SNAPSHOT, bytes(70_000)), "cannot have 70000 bytes"),
    ],
)
def test_records_that_no_member_writes_are_refused_with_their_place(log, write, complaint):
    write(log)

    with pytest.raises(WalError) as caught:
        verify_wal(log.directory)

    assert complaint in caught.value.message
    assert caught.value.message.startswith(f"{log.path.name}: damaged at byte ")
    assert "restore the member" in caught.value.hint


def test_segments_of_two_clusters_are_no_log(log):
    log.cut(1, cluster=7)

    with pytest.raises(
        WalError, match=r"the log of Metadata\(.*\) cannot be the log of Metadata\(.*cluster_id=7\)"
    ):
        verify_wal(log.directory)


def test_a_commit_beyond_the_last_entry_is_refused(log):
    log.entry(1)
    log.state(commit=2)

    with pytest.raises(WalError, match="committed up to 2, but entries end at 1") as caught:
        verify_wal(log.directory)

    assert caught.value.hint == "etcd would panic: restore this member, or let it join again"


def test_a_directory_without_a_log_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()

    with pytest.raises(WalError, match="empty: no WAL segment"):
        verify_wal(tmp_path / "empty")
    with pytest.raises(WalError, match="No such file or directory"):
        verify_wal(tmp_path / "missing")


def test_a_conf_state_written_packed_is_read(log):
    log.entry(1)
    log.state(commit=1)
    log.record(SNAPSHOT, b"\x08\x01\x10\x01\x1a\x06\x0a\x02\x05\x07\x12\x00")

    assert verify_wal(log.directory).conf_state == ConfState((5, 7))


def test_the_newest_snapshot_file_that_the_log_vouches_for_is_found(log, snap_dir):
    for index in range(1, 10):
        log.entry(index)
    log.state(commit=8)
    log.mark(4)
    log.mark(6)
    for index in (4, 6, 9):
        write_snap(snap_dir, term=1, index=index, members=US)

    report = verify_member(log.directory.parent)

    assert report.snapshot.path.name == "0000000000000001-0000000000000006.snap"
    assert report.snapshot.metadata.conf_state == ConfState((MEMBER,))
    assert report.broken == ()
    assert not report.lacks_snapshot


def test_a_broken_snapshot_file_is_named_and_the_one_before_it_taken(log, snap_dir):
    for index in range(1, 10):
        log.entry(index)
    log.state(commit=8)
    for index in (4, 6):
        log.mark(index)
        path = write_snap(snap_dir, term=1, index=index, members=US)
    path.write_bytes(path.read_bytes()[:-1])

    report = verify_member(log.directory.parent)

    assert report.snapshot.metadata.index == 4
    assert report.broken == ("0000000000000001-0000000000000006.snap",)
    assert path.exists()


@pytest.mark.parametrize(("kept", "lacking"), [(3, True), (6, False), (None, True)])
def test_a_log_without_its_beginning_needs_a_snapshot_file_that_reaches_it(log, snap_dir, kept, lacking):
    for index in range(1, 7):
        log.entry(index)
    log.state(commit=6)
    log.mark(3)
    log.mark(6)
    if kept:
        write_snap(snap_dir, term=1, index=kept, members=US)
    oldest = log.path
    log.cut(7)
    log.state(commit=6)
    log.mark(3)
    log.mark(6)
    oldest.unlink()

    assert verify_member(log.directory.parent).lacks_snapshot is lacking
