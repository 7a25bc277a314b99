"""A small log with every bit flipped and cut at every length: told what it is, or read as it was."""

import contextlib
import shutil

import pytest

from rootcellar.errors import TornTailError, WalError
from rootcellar.wal.segments import list_segments, read_log
from rootcellar.wal.verify import verify_wal

MASKS = [1, 2, 4, 8, 16, 32, 64, 128, 255]


@pytest.fixture
def life(log):
    """What a short life leaves: configuration, writes of two terms, and a snapshot."""
    log.entry(1, entry_type=1, data=b'{"id":1}')
    log.state(commit=1)
    log.entry(2, data=None)
    log.entry(3, data=b"a request")
    log.entry(4, data=bytes(40))
    log.state(commit=3)
    log.entry(5, term=2, data=None)
    log.state(commit=5, term=2)
    log.mark(4)
    log.entry(6, term=2, data=b"z" * 300)
    log.state(commit=6, term=2)
    return log


def records(directory):
    """The records of a log up to its end or a torn tail."""
    found = []
    try:
        for _, record in read_log(list_segments(directory)):
            found.append((record.type, record.data))
    except TornTailError:
        return found
    return found


def verdict(directory):
    """The report of a log, or None if it is damaged."""
    with contextlib.suppress(WalError):
        return verify_wal(directory)


@pytest.mark.parametrize(
    "spare",
    [pytest.param(0, marks=pytest.mark.long, id="to the last byte"), pytest.param(4096, id="preallocated")],
)
def test_every_flipped_bit_is_found_or_changes_nothing(life, spare):
    good = life.path.read_bytes() + bytes(spare)
    life.path.write_bytes(good)
    report, whole = verify_wal(life.directory), records(life.directory)
    last_frame = life.boundaries[-2]
    harmless = set()

    for position in range(life.boundaries[-1]):
        for mask in MASKS:
            flipped = bytearray(good)
            flipped[position] ^= mask
            life.path.write_bytes(flipped)
            found = verdict(life.directory)
            if found is None:
                continue
            if found.torn:
                # Only what could be an unfinished write may be called one.
                assert found.torn.valid_length == last_frame <= position
                assert records(life.directory) == whole[:-1]
            else:
                assert (found, records(life.directory)) == (report, whole)
                harmless.add(position)

    padding = {p for end in life.boundaries for p in range(max(end - 7, 0), end) if not any(good[p:end])}
    assert harmless <= padding


def test_a_log_cut_at_any_length_is_whole_up_to_the_last_frame_before(life):
    good, ends = life.path.read_bytes(), life.boundaries
    whole = records(life.directory)

    for length in range(len(good)):
        life.path.write_bytes(good[:length])
        frames = sum(end <= length for end in ends[1:])
        if frames < 2:
            with pytest.raises(WalError, match="the log does not say whose it is"):
                verify_wal(life.directory)
            continue
        torn = verify_wal(life.directory).torn
        assert (torn.valid_length if torn else length) == ends[frames]
        assert (torn is None) == (length == ends[frames])
        assert records(life.directory) == whole[:frames]


def test_a_log_cut_at_any_sector_of_a_preallocated_file_is_torn_there(log):
    for index in range(1, 12):
        log.entry(index, data=bytes([index]) * 1000)
        log.state(commit=index)
    good, ends = log.path.read_bytes(), log.boundaries

    for length in range(512, len(good), 512):
        log.path.write_bytes(good[:length] + bytes(len(good) - length + 4096))
        frames = sum(end <= length for end in ends[1:])
        torn = verify_wal(log.directory).torn
        assert (torn.valid_length if torn else length) == ends[frames]


def test_the_last_records_of_a_whole_segment_cannot_get_lost_unnoticed(life):
    life.cut(7)
    life.state(commit=6, term=2)
    first = life.directory / "0000000000000000-0000000000000000.wal"
    good = first.read_bytes()

    assert verify_wal(life.directory).last_index == 6
    for length in range(len(good)):
        first.write_bytes(good[:length])
        with pytest.raises(WalError) as caught:
            verify_wal(life.directory)
        assert not isinstance(caught.value, TornTailError)


def test_a_lost_segment_is_noticed(life):
    for index in (7, 8, 9):
        life.cut(index)
        life.entry(index, term=2)
        life.state(commit=index, term=2)
    names = sorted(path.name for path in life.directory.iterdir())

    assert verify_wal(life.directory).segments == tuple(names)
    for lost in names[1:-1]:
        copy = life.directory.with_name(f"without-{lost}")
        shutil.copytree(life.directory, copy)
        (copy / lost).unlink()
        with pytest.raises(WalError, match=r"stands where segment \d belongs"):
            verify_wal(copy)


def test_a_log_without_its_oldest_segments_is_whole_as_etcd_purges_them(life):
    for index in (7, 8):
        life.cut(index)
        life.entry(index, term=2)
        life.state(commit=index, term=2)
        life.mark(index - 1, term=2)
    (life.directory / "0000000000000000-0000000000000000.wal").unlink()

    report = verify_wal(life.directory)

    assert (report.first_index, report.last_index, report.commit) == (7, 8, 8)
    assert [mark.index for mark in report.snapshots] == [6, 7]
