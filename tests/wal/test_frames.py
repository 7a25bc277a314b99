"""Frames and records of one segment: what is written is read, and what is read is proven."""

import itertools
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import TornTailError, WalError
from rootcellar.wal.frames import CRC, ENTRY, KEPT, METADATA, SNAPSHOT, STATE, FrameWriter, SegmentReader

records = st.lists(st.tuples(st.sampled_from([METADATA, ENTRY, STATE, SNAPSHOT]), st.binary(max_size=600)))


def write(directory, *frames, size=None):
    path = Path(directory) / "segment"
    path.write_bytes(b"".join(frames))
    if size is not None:
        with path.open("r+b") as file:
            file.truncate(size)
    return path


def read(path, *, crc=None, last=True):
    with path.open("rb") as file:
        return list(SegmentReader(file, path.name, crc=crc, last=last))


def test_the_first_frame_has_etcds_bytes():
    assert FrameWriter().frame(CRC).hex() == "040000000000008408041000" + "00000000"


def test_frames_have_etcds_bytes_and_running_crc():
    # Taken from a log that etcdutl 3.5.1 made.
    frames = FrameWriter()
    frames.frame(CRC)

    metadata = frames.frame(METADATA, bytes.fromhex("08e79dafbcaea1aabb5c10e690c5d5a8acd2a92c"))
    snapshot = frames.frame(SNAPSHOT, bytes.fromhex("08001000"))

    assert (
        metadata.hex()
        == "1e000000000000820801 1088add08a01 1a1408e79dafbcaea1aabb5c10e690c5d5a8acd2a92c0000".replace(
            " ", ""
        )
    )
    assert snapshot.hex() == "0e00000000000082080510d1d5f3c30e1a04080010000000"


@given(records, st.integers(0, 2**32 - 1), st.sampled_from([0, 8, 4096]))
def test_records_come_back_with_their_crc_and_place(wanted, crc, spare):
    writer = FrameWriter(crc)
    frames = [writer.frame(CRC), *(writer.frame(kind, data) for kind, data in wanted)]
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, *frames, bytes(spare))

        first, *found = read(path, crc=crc)

    assert (first.type, first.crc, first.size) == (CRC, crc, 0)
    assert [(record.type, record.data) for record in found] == wanted
    assert [record.offset for record in found] == list(itertools.accumulate(map(len, frames)))[:-1]
    assert not found or found[-1].crc == writer.crc


def test_a_large_record_is_checked_whole_and_kept_in_part(tmp_path):
    writer = FrameWriter()
    data = bytes(range(256)) * 16_384
    path = write(tmp_path, writer.frame(CRC), writer.frame(ENTRY, data), writer.frame(STATE, b"\x08\x01"))

    _, large, after = read(path)

    assert large.size == len(data) > len(large.data) > KEPT - 64
    assert data.startswith(large.data)
    assert after.data == b"\x08\x01"


@pytest.mark.parametrize("at", [40, KEPT // 2, KEPT + 100_000, 2 * KEPT])
def test_a_flipped_bit_anywhere_in_a_large_record_is_found(tmp_path, at):
    writer = FrameWriter()
    frames = bytearray(writer.frame(CRC) + writer.frame(ENTRY, b"\xa5" * (2 * KEPT)))
    frames[at] ^= 4
    path = write(tmp_path, frames)

    with pytest.raises(WalError, match="segment: damaged at byte 16: a record's CRC is"):
        read(path)


def test_a_segment_must_continue_the_crc_of_the_one_before(tmp_path):
    path = write(tmp_path, FrameWriter(7).frame(CRC))

    assert len(read(path, crc=7)) == 1
    with pytest.raises(
        WalError, match="it continues CRC 00000007, but the segment before ends with 00000008"
    ):
        read(path, crc=8)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "frames",
    [
        [FrameWriter().frame(METADATA, b"")],
        [FrameWriter().frame(CRC), FrameWriter().frame(CRC)],
        [FrameWriter().frame(CRC, b"data")],
    ],
    ids=["no CRC record", "two of them", "one with data"],
)
def test_a_crc_record_stands_first_and_only_there(tmp_path, frames, last):
    with pytest.raises(WalError, match="a CRC record stands first, alone and without data") as caught:
        read(write(tmp_path, *frames), last=last)

    assert not isinstance(caught.value, TornTailError)


def test_a_type_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(WalError, match="no record has the type 6"):
        read(write(tmp_path, FrameWriter().frame(CRC), FrameWriter().frame(6, b"")))


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80])
def test_a_whole_record_whose_length_has_bad_padding_is_damage(tmp_path, mask):
    frame = bytearray(FrameWriter().frame(ENTRY, b"e"))
    frame[7] ^= mask

    with pytest.raises(WalError, match="a whole record stands behind a damaged length") as caught:
        read(write(tmp_path, FrameWriter().frame(CRC), frame))

    assert not isinstance(caught.value, TornTailError)


def test_a_record_that_runs_past_the_end_is_torn_in_the_last_segment_and_damage_in_others(tmp_path):
    path = write(tmp_path, FrameWriter().frame(CRC), FrameWriter().frame(ENTRY, bytes(500))[:200])

    with pytest.raises(TornTailError) as torn:
        read(path)
    with pytest.raises(
        WalError, match="damaged at byte 16: a record of 511 bytes runs past the end"
    ) as damaged:
        read(path, last=False)

    assert (torn.value.segment, torn.value.valid_length) == ("segment", 16)
    assert torn.value.dropped == 19
    assert torn.value.hint == "a crash in the middle of a write leaves this; etcd cuts it off when it starts"
    assert not isinstance(damaged.value, TornTailError)


def test_a_sector_that_never_arrived_is_torn_and_one_that_changed_is_damage(tmp_path):
    writer = FrameWriter()
    frames = bytearray(
        writer.frame(CRC) + writer.frame(ENTRY, b"v" * 2000) + writer.frame(STATE, b"\x08\x01")
    )
    missing, changed = frames.copy(), frames.copy()
    missing[512:1024] = bytes(512)
    changed[512:1023] = bytes(511)

    with pytest.raises(TornTailError, match="torn at byte 16: a record's CRC is"):
        read(write(tmp_path, missing, size=64_000))
    with pytest.raises(WalError, match="damaged at byte 16: a record's CRC is"):
        read(write(tmp_path, changed, size=64_000))


def test_what_lies_behind_the_end_is_the_rest_of_a_write_that_never_finished(tmp_path):
    first = FrameWriter().frame(CRC)
    path = write(tmp_path, first, bytes(1000), b"rest", size=64_000)

    with pytest.raises(
        TornTailError, match="torn at byte 16: the log ends, but bytes that are not zero follow"
    ) as torn:
        read(path)

    assert torn.value.dropped == 1004
    assert len(read(path, last=False)) == 1


@pytest.mark.parametrize("last", [True, False])
def test_an_empty_segment_is_never_whole(tmp_path, last):
    with pytest.raises(TornTailError if last else WalError, match="the segment is empty"):
        read(write(tmp_path, size=4096), last=last)


@pytest.mark.parametrize("damage", [0x10_0000, 0x40, 1 << 40, 7])
def test_a_damaged_length_before_a_whole_record_is_never_taken_for_a_torn_write(tmp_path, damage):
    # etcd would cut the log here and forget the entries behind.
    writer = FrameWriter()
    frames = [writer.frame(CRC), *(writer.frame(ENTRY, b"e" * 100) for _ in range(3))]
    size = int.from_bytes(frames[1][:7], "little") ^ damage
    padding = -size % 8
    length = (size | (0x80 | padding) << 56 if padding else size).to_bytes(8, "little")
    path = write(tmp_path, frames[0], length, frames[1][8:], *frames[2:], size=64_000_000)

    with pytest.raises(WalError, match="a whole record is there, so its length is damaged") as caught:
        read(path)

    assert not isinstance(caught.value, TornTailError)


def test_a_length_that_became_zero_in_front_of_its_record_is_damage_unless_a_sector_ends_between(tmp_path):
    writer = FrameWriter()
    first = writer.frame(CRC)
    filler = writer.frame(ENTRY, b"f" * (504 - 16 - 8 - 13))
    second = writer.frame(ENTRY, b"e" * 100)
    assert len(first + filler) == 504

    whole = write(tmp_path, first, filler, second)
    assert len(read(whole)) == 3
    with pytest.raises(TornTailError, match="torn at byte 504"):
        read(write(tmp_path, first, filler, bytes(8), second[8:]))
    with pytest.raises(
        WalError, match="damaged at byte 16: a length of zero stands before a whole record"
    ) as caught:
        read(write(tmp_path, first, bytes(8), filler[8:], second))
    assert not isinstance(caught.value, TornTailError)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_behind_the_first_frame_are_records_or_a_wal_error(data, last):
    with tempfile.TemporaryDirectory() as directory:
        path = write(directory, FrameWriter().frame(CRC), data)
        try:
            found = read(path, last=last)
        except WalError:
            return
    assert not data.strip(b"\0") or len(found) > 1


@pytest.mark.parametrize("length", [2**55, 2**40 - 24, 2**31 + 8, 2**30])
def test_memory_stays_small_whatever_a_length_claims(tmp_path, length):
    path = write(
        tmp_path, FrameWriter().frame(CRC), length.to_bytes(8, "little"), b"\x08\x02\x10", size=2**40
    )
    tracemalloc.start()
    try:
        with pytest.raises(WalError):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * KEPT
