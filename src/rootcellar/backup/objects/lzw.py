"""Decoder for the LZW that Go's compress/lzw writes (LSB first, 8-bit literals), which EBR stores as `.Z`.

It is GIF's LZW and not that of Unix compress: codes grow from 9 to 12 bits, 256 clears the table, 257 ends
the stream, and a full table stays as it is until a clear.  Read only: rootcellar never writes it.

The width of a code depends only on how many codes came since the last clear, so codes are cut out of the
stream a run at a time with NumPy, and the loop that is left in Python does one lookup for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rootcellar.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CLEAR: Final = 256
_END: Final = 257
_FIRST_WIDTH: Final = 9
_LAST_WIDTH: Final = 12
_TABLE_SIZE: Final = 1 << _LAST_WIDTH
_RUN: Final = 1024  # codes at a time: bounds the output of one step to 4 MiB, whatever the input says
_WEIGHTS: Final = (1 << np.arange(_LAST_WIDTH)).astype(np.uint16)
_LITERALS: Final = tuple(bytes((value,)) for value in range(256))


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The decoded bytes, in pieces of at most 4 MiB.

    Raises FormatError when a code is impossible, when the end code is missing, or when bytes follow it.
    """
    decoder = _Decoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
    decoder.finish()


class _Decoder:
    """The state between chunks: bits not yet cut into codes, the table, and the last string."""

    def __init__(self) -> None:
        self._pending = b""
        self._bit = 0  # the first unread bit of _pending
        self._ended = False
        self._clear()

    def _clear(self) -> None:
        self._table: list[bytes] = [*_LITERALS, b"", b""]
        self._last = b""  # empty right after a clear
        self._width = _FIRST_WIDTH
        self._left = (
            1 << _FIRST_WIDTH
        ) - _END  # codes until the width grows; at 12 bits until the table is full

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._pending = self._pending[self._bit // 8 :] + chunk
        self._bit %= 8
        while not self._ended:
            codes = self._cut()
            if not codes:
                return
            yield self._expand(codes)
        # Only the rest of the byte that holds the end code may be left.
        if len(self._pending) * 8 - self._bit >= 8:
            raise FormatError("lzw stream goes on after its end code")

    def finish(self) -> None:
        if not self._ended:
            raise FormatError("lzw stream is cut short: its end code is missing")

    def _cut(self) -> list[int]:
        """The next codes of equal width, up to and with a clear or end code; consumes nothing yet."""
        width = self._width
        count = min(_RUN, (len(self._pending) * 8 - self._bit) // width)
        if self._left > 0:
            count = min(count, self._left)
        if count <= 0:
            return []
        first, skip = divmod(self._bit, 8)
        size = (skip + count * width + 7) // 8
        bits = np.unpackbits(np.frombuffer(self._pending, np.uint8, size, first), bitorder="little")
        codes = bits[skip : skip + count * width].reshape(count, width) @ _WEIGHTS[:width]
        special = np.flatnonzero(codes >> 1 == _CLEAR >> 1)  # 256 or 257
        if special.size:
            codes = codes[: special[0] + 1]
        cut: list[int] = codes.tolist()
        return cut

    def _expand(self, codes: list[int]) -> bytes:
        """Decode what `_cut` returned, and consume it."""
        self._bit += len(codes) * self._width
        full = self._left == 0
        if not full:
            self._left -= len(codes)
            if self._left == 0 and self._width < _LAST_WIDTH:
                self._width += 1
                self._left = 1 << (self._width - 1)
        special = codes.pop() if codes[-1] in (_CLEAR, _END) else None
        out = [self._table[code] for code in codes] if full else self._learn(codes)
        if special == _CLEAR:
            self._clear()
        self._ended = special == _END
        return b"".join(out)

    def _learn(self, codes: list[int]) -> list[bytes]:
        """Expand codes while each adds a string to the table: the one before it and its own first byte."""
        table, last = self._table, self._last
        out: list[bytes] = []
        for code in codes:
            try:
                entry = table[code]
            except IndexError:
                if code != len(table) or not last:
                    raise FormatError(f"lzw code {code} is not in the table of {len(table)}") from None
                entry = last + last[:1]
            if last:
                table.append(last + entry[:1])
            out.append(entry)
            last = entry
        self._last = last
        return out
