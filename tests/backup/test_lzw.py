from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.objects import codecs, lzw
from rootcellar.errors import FormatError
from tests.backup.ebr_rules import lzw as reference

CLEAR, END = 256, 257


class Writer:
    """LZW as Go's writer emits it, with a table that may also stay full, which the format allows."""

    def __init__(self):
        self.bits = ""
        self.clear()

    def clear(self):
        self.table, self.width, self.size = {}, 9, 258

    def emit(self, code):
        self.bits += f"{code:0{self.width}b}"[::-1]

    def learn(self, string):
        """As Go's writer counts, which is one string ahead of the reader."""
        self.table[string] = self.size
        self.size += 1
        if self.size > 1 << self.width and self.width < 12:
            self.width += 1

    def code(self, string):
        return self.table.get(string, string[0])

    def bytes(self):
        return bytes(int(self.bits[at : at + 8][::-1], 2) for at in range(0, len(self.bits), 8))


def compressed(data: bytes, clear_when_full: bool = True) -> bytes:
    writer = Writer()
    writer.emit(CLEAR)
    prefix = b""
    for longer in (prefix := prefix + bytes([value]) for value in data):
        if len(longer) == 1 or longer in writer.table:
            continue
        writer.emit(writer.code(longer[:-1]))
        if writer.size < 4096:
            writer.learn(longer)
        elif clear_when_full:
            writer.emit(CLEAR)
            writer.clear()
        prefix = longer[-1:]
    if prefix:
        writer.emit(writer.code(prefix))
        writer.learn(b"")
    writer.emit(END)
    return writer.bytes()


DATA = st.one_of(
    st.binary(max_size=3000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=6), st.integers(0, 4000)),
    st.builds(
        lambda seed, size: seed.randbytes(size), st.randoms(use_true_random=False), st.integers(0, 30_000)
    ),
)


@given(DATA, st.booleans())
def test_what_was_compressed_comes_back(data, clear_when_full):
    stored = compressed(data, clear_when_full)
    assert b"".join(lzw.decompress([stored])) == data


@given(DATA, st.lists(st.integers(0, 40_000), max_size=10))
def test_chunks_may_end_anywhere(data, cuts):
    stored = compressed(data)
    ends = sorted(min(cut, len(stored)) for cut in cuts)
    chunks = [stored[a:b] for a, b in zip([0, *ends], [*ends, len(stored)], strict=True)]
    assert b"".join(lzw.decompress(chunks)) == data


@given(st.binary(max_size=400))
def test_any_bytes_end_in_a_result_or_a_format_error(raw):
    """And agree with the plain reading of the format, but for bytes behind the end, which EBR ignores."""
    try:
        came = b"".join(lzw.decompress([raw]))
    except FormatError as error:
        if "goes on" not in error.message:
            with pytest.raises((EOFError, ValueError)):
                reference(raw)
    else:
        assert came == reference(raw)


def test_what_go_wrote_comes_back_byte_by_byte(ebr_backup):
    for path in (ebr_backup.root / "v2").glob("*.Z"):
        raw = path.read_bytes()
        whole = b"".join(lzw.decompress([raw]))
        assert whole == b"".join(lzw.decompress(raw[i : i + 1] for i in range(len(raw)))) == reference(raw)


def test_every_truncation_is_noticed():
    stored = compressed(b"the quick brown fox jumps over the lazy dog, " * 20)
    for length in range(len(stored)):
        with pytest.raises(FormatError, match="lzw stream is cut short"):
            b"".join(lzw.decompress([stored[:length]]))


@pytest.mark.parametrize("behind", [b"\0", b"\0\0\0", b"junk"])
def test_bytes_behind_the_end_code_are_noticed(behind):
    stored = compressed(b"hello")
    for chunks in ([stored + behind], [stored, behind]):
        with pytest.raises(FormatError, match="goes on after its end code"):
            b"".join(lzw.decompress(chunks))


def test_a_code_that_is_not_in_the_table_is_refused():
    first_code_is_300 = (300).to_bytes(2, "little")
    with pytest.raises(FormatError, match="lzw code 300 is not in the table of 258"):
        b"".join(lzw.decompress([first_code_is_300]))


def test_a_bomb_costs_time_and_not_memory():
    # The table learns ever longer runs of one byte until it is full; its longest then stands for 3,839 bytes.
    writer = Writer()
    for code in (ord("a"), *range(258, 4096)):
        writer.emit(code)
        writer.learn(code)
    for code in (*[4095] * 20_000, END):
        writer.emit(code)
    bomb = writer.bytes()
    tracemalloc.start()
    try:
        size = 0
        for piece in lzw.decompress([bomb]):
            assert len(piece) <= 4 << 20
            size += len(piece)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert size == 3839 * 20_000 + sum(range(1, 3840))


def test_every_flipped_bit_is_noticed_by_the_hash_or_changes_nothing():
    payload = b"the quick brown fox jumps over the lazy dog, " * 3
    stored = bytearray(compressed(b"".join(codecs.append_hash([payload]))))
    noticed = 0
    for index in range(len(stored) * 8):
        stored[index // 8] ^= 1 << index % 8
        try:
            came = b"".join(codecs.hash_tail(codecs.decompress([bytes(stored)], ".Z")))
        except FormatError:
            noticed += 1
        else:
            assert came == payload
        stored[index // 8] ^= 1 << index % 8
    assert noticed > len(stored) * 7
