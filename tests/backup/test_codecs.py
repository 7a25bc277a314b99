from __future__ import annotations

import gzip
import hashlib
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.zstd import zstd
from rootcellar.errors import DamagedObjectError, FormatError, UsageError

WRITABLE = ("", ".gz", ".zlib", ".zst")
COMPRESSED = (".gz", ".zlib", ".zst")
PAYLOADS = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=8), st.integers(0, 5000)),
)
TEXT = b"the quick brown fox jumps over the lazy dog, " * 20


@st.composite
def splits(draw, data: bytes) -> list[bytes]:
    """`data` cut anywhere, with empty chunks in between."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def packed(payload: bytes, suffix: str) -> bytes:
    return b"".join(codecs.compress([payload], suffix))


def unpacked(chunks, suffix: str, name: str | None = None) -> bytes:
    return b"".join(codecs.decompress(chunks, suffix, name=name))


@pytest.mark.parametrize("suffix", WRITABLE)
@given(data=st.data())
def test_what_is_compressed_comes_back_however_it_is_cut(suffix, data):
    payload = data.draw(PAYLOADS)
    stored = b"".join(codecs.compress(data.draw(splits(payload)), suffix))
    assert unpacked(data.draw(splits(stored)), suffix) == payload


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_one_byte_at_a_time_is_enough(suffix):
    stored = packed(TEXT, suffix)
    assert unpacked((stored[i : i + 1] for i in range(len(stored))), suffix) == TEXT


def test_standard_tools_read_what_is_written():
    assert gzip.decompress(packed(TEXT, ".gz")) == TEXT
    assert zlib.decompress(packed(TEXT, ".zlib")) == TEXT


@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_what_standard_tools_write_is_read(level):
    assert unpacked([gzip.compress(TEXT, level)], ".gz") == TEXT
    assert unpacked([zlib.compress(TEXT, level)], ".zlib") == TEXT


@given(st.data())
def test_gzip_may_have_several_members(data):
    payloads = data.draw(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
    stored = b"".join(packed(payload, ".gz") for payload in payloads)
    assert unpacked(data.draw(splits(stored)), ".gz") == b"".join(payloads)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_every_truncation_is_noticed(suffix):
    stored = packed(TEXT, suffix)
    for length in range(len(stored)):
        with pytest.raises(FormatError, match=r"cut short|damaged"):
            unpacked([stored[:length]], suffix)


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("junk", [b"\0", b"x", b"\x1f", b"\x1f\x8b\x08", b"garbage" * 10])
def test_bytes_behind_the_end_are_noticed(suffix, junk):
    stored = packed(TEXT, suffix)
    with pytest.raises(FormatError, match=r"cut short|damaged|followed by"):
        unpacked([stored + junk], suffix)
    with pytest.raises(FormatError, match=r"cut short|damaged|followed by"):
        unpacked([stored, junk], suffix)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_every_flipped_bit_is_noticed_or_changes_nothing(suffix):
    payload = TEXT[:200]
    stored = bytearray(b"".join(codecs.compress(codecs.append_hash([payload]), suffix)))
    noticed = 0
    for index in range(len(stored) * 8):
        stored[index // 8] ^= 1 << index % 8
        try:
            came = b"".join(codecs.hash_tail(codecs.decompress([bytes(stored)], suffix)))
        except FormatError:
            noticed += 1
        else:
            assert came == payload
        stored[index // 8] ^= 1 << index % 8
    assert noticed > len(stored) * 7


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_bomb_costs_time_and_not_memory(suffix):
    size = 256 << 20
    bomb = b"".join(codecs.compress((b"\0" * (1 << 20) for _ in range(size >> 20)), suffix))
    assert len(bomb) < size // 50
    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in codecs.decompress([bomb], suffix)) == size
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_unknown_suffix_is_told_from_damage():
    with pytest.raises(
        DamagedObjectError, match=r"Full-1\.lz4: compression suffix '\.lz4' is not known"
    ) as told:
        unpacked([b""], ".lz4", "Full-1.lz4")
    assert ".gz" in told.value.hint


@pytest.mark.parametrize("suffix", [".Z", ".lz4"])
def test_only_what_is_read_everywhere_and_fast_is_written(suffix):
    with pytest.raises(UsageError, match="is not written"):
        codecs.compress([b""], suffix)


@pytest.mark.parametrize("suffix", [".gz", ".zlib", ".Z"])
def test_damage_names_the_object(suffix):
    with pytest.raises(DamagedObjectError) as told:
        unpacked([b"this is not compressed"], suffix, "v2/Incr-1")
    assert told.value.name == "v2/Incr-1"
    assert str(told.value).startswith("v2/Incr-1: ")
    assert "another chain" in told.value.hint


@given(st.data())
def test_the_hash_at_the_end_is_held_against_all_before_it(data):
    payload = data.draw(PAYLOADS)
    stored = payload + hashlib.sha256(payload).digest()
    tail = codecs.hash_tail(data.draw(splits(stored)))
    assert b"".join(tail) == payload
    assert tail.digest == hashlib.sha256(payload).digest()
    assert tail.length == len(payload)


@given(st.data())
def test_a_payload_with_a_changed_byte_is_refused_at_its_end(data):
    payload = data.draw(PAYLOADS)
    stored = bytearray(payload + hashlib.sha256(payload).digest())
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedObjectError, match="Incr-1: sha256 at the end is not that of the"):
        b"".join(codecs.hash_tail(data.draw(splits(bytes(stored))), name="Incr-1"))


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_payload_without_room_for_a_hash_is_refused(length):
    with pytest.raises(FormatError, match=f"payload of {length} bytes is too short"):
        b"".join(codecs.hash_tail([b"x" * length]))


def test_the_payload_passes_through_before_the_end_is_known():
    def endless():
        while True:
            yield b"x" * 100_000

    stream = iter(codecs.hash_tail(endless()))
    assert sum(len(next(stream)) for _ in range(10)) > 300_000


@given(st.data())
def test_a_hash_that_is_appended_is_one_that_is_accepted(data):
    payload = data.draw(PAYLOADS)
    stored = b"".join(codecs.append_hash(data.draw(splits(payload))))
    assert stored == payload + hashlib.sha256(payload).digest()
    assert b"".join(codecs.hash_tail([stored])) == payload


def test_what_ebr_wrote_comes_back_with_a_true_hash(ebr_backup):
    for path in sorted((ebr_backup.root / "v2").iterdir()):
        tail = codecs.hash_tail(codecs.decompress([path.read_bytes()], path.suffix))
        payload = b"".join(tail)
        assert tail.length == len(payload) > 0
        assert tail.digest == hashlib.sha256(payload).digest()


def test_zstd_with_a_window_beyond_8_mib_is_refused():
    """Whoever writes an object cannot decide how much memory its reader takes."""
    wide = {zstd.CompressionParameter.window_log: 24, zstd.CompressionParameter.compression_level: 1}
    stream = zstd.ZstdCompressor(options=wide)
    stored = stream.compress(bytes(1 << 25)) + stream.flush()
    with pytest.raises(DamagedObjectError, match=r"Full-1: zstd stream is damaged"):
        unpacked([stored], ".zst", "Full-1")


def test_several_zstd_frames_are_one_stream():
    stored = packed(TEXT, ".zst") + packed(b"", ".zst") + packed(TEXT, ".zst")
    assert unpacked([stored], ".zst") == TEXT * 2
    assert zstd.decompress(stored) == TEXT * 2
