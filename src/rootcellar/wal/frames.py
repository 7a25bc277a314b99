"""Frames of a WAL segment: how a record lies in the file, and how the end of the file is to be understood.

A segment is a run of frames: a length (8 bytes, little endian), a record, and zeros up to the next multiple
of 8.  A length of zero, or the end of the file, ends it; the rest is preallocated zeros.  A record carries
its type, a running CRC-32C over the data of all records since the log began, and data.  The CRC says
nothing of the length and the type, so those are held against what else is known (source: etcd's
`server/storage/wal`).

A crash may leave the last write unfinished.  etcd cuts such a tail off and starts; any other damage it
refuses.  Its rule is kept here: a write is torn if its record runs past the end of the last segment, or does
not check out and holds a disk sector of zeros.  With one exception: where the record is whole by its own CRC
and only its length is bad, etcd cuts off the record and all that follow; here it is damage.

Memory is bounded by `KEPT`, whatever a length claims; larger records are checked as they stream past.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from rootcellar.errors import RecordError, TornTailError, WalError
from rootcellar.mvcc.varint import get_uvarint, put_field_bytes, put_field_uint

if TYPE_CHECKING:
    from typing import BinaryIO, Never, Self

METADATA, ENTRY, STATE, CRC, SNAPSHOT = 1, 2, 3, 4, 5

KEPT = 1 << 20
"""Of a record larger than this many bytes only the beginning is kept."""

_SECTOR = 512
_LENGTH = struct.Struct("<Q")
_MAX_RECORD = 1 << 31  # protobuf's limit; a sparse file may claim far more than anyone could read
_TAG_TYPE, _TAG_CRC, _TAG_DATA = b"\x08", b"\x10", b"\x1a"


class Record(NamedTuple):
    """One record.  `crc` includes it; `data` is whole unless `size`, its true length in bytes, is larger."""

    type: int
    crc: int
    data: bytes
    size: int
    offset: int


class _Head(NamedTuple):
    type: int
    crc: int
    start: int
    size: int


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, continued from `crc`."""
    return int(google_crc32c.extend(crc, data))


def damaged(segment: str, offset: int, why: str) -> WalError:
    """The error for a segment that no crash explains."""
    return WalError(
        f"{segment}: damaged at byte {offset}: {why}",
        hint="etcd would not start on it, or lose what follows: restore the member, or let it join again",
    )


class FrameWriter:
    """Turns records into frames and carries the running CRC from one to the next."""

    def __init__(self, crc: int = 0) -> None:
        self.crc = crc

    def frame(self, record_type: int, data: bytes | None = None) -> bytes:
        record = put_field_uint(1, record_type)
        if data is None:
            record += put_field_uint(2, self.crc)
        else:
            self.crc = crc32c(data, self.crc)
            record += put_field_uint(2, self.crc) + put_field_bytes(3, data)
        padding = -len(record) % 8
        return _LENGTH.pack(_length_field(len(record), padding)) + record + bytes(padding)


def _length_field(size: int, padding: int) -> int:
    return size | (0x80 | padding) << 56 if padding else size


class SegmentReader:
    """Walks the records of one segment.  `crc` is what the log came to; if None, the first record tells.

    Iterating raises WalError for damage and, in the `last` segment only, TornTailError for an unfinished
    write; `offset` and `crc` are then those behind the last good record.  `file` is a real, seekable file.
    """

    def __init__(self, file: BinaryIO, name: str, *, crc: int | None, last: bool, offset: int = 0) -> None:
        self.crc = crc
        self._file = file
        self._name = name
        self._last = last
        self.offset = offset
        self._size = os.fstat(file.fileno()).st_size
        file.seek(offset)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        prefix = self._file.read(_LENGTH.size)
        if not prefix.strip(b"\0") and len(prefix) in (0, _LENGTH.size):
            self._end()
            raise StopIteration
        if len(prefix) < _LENGTH.size:
            self._torn("a length is cut short")
        (field,) = _LENGTH.unpack(prefix)
        size = field & (1 << 56) - 1
        padding = -size % _LENGTH.size
        end = self.offset + _LENGTH.size + size + padding
        if field != _length_field(size, padding) and self._whole_record():
            self._corrupt("a whole record stands behind a damaged length")
        if end > self._size:
            self._bad(size, f"a record of {size} bytes runs past the end")
        if size > _MAX_RECORD:
            self._corrupt(f"no record has {size} bytes")
        record = self._record(size, padding)
        self.offset, self.crc = end, record.crc
        return record

    def _record(self, size: int, padding: int) -> Record:
        body = self._file.read(min(size, KEPT))
        try:
            head = _head(body)
        except RecordError as error:
            self._bad(size, f"a record cannot be read: {error.message}")
        if head.start + head.size != size:
            self._bad(size, f"a record of {size} bytes cannot hold {head.size} bytes of data")
        data = body[head.start :]
        told = head.type == CRC or self.crc is None
        crc = head.crc if told else self._continue_crc(data, size - len(body))
        if crc != head.crc:
            self._bad(size, f"a record's CRC is {crc:08x} instead of {head.crc:08x}")
        if not METADATA <= head.type <= SNAPSHOT:
            self._corrupt(f"no record has the type {head.type}")
        if (head.type == CRC) != (self.offset == 0) or (head.type == CRC and head.size):
            self._corrupt("a CRC record stands first, alone and without data")
        if head.type == CRC and self.crc is not None and head.crc != self.crc:
            self._corrupt(f"it continues CRC {head.crc:08x}, but the segment before ends with {self.crc:08x}")
        self._file.seek(self.offset + _LENGTH.size + size + padding)
        return Record(head.type, head.crc, data, head.size, self.offset)

    def _continue_crc(self, data: bytes, left: int) -> int:
        crc = crc32c(data, self.crc or 0)
        while left > 0:
            chunk = self._file.read(min(left, KEPT))
            if not chunk:
                self._torn("the file became shorter while it was read")
            crc = crc32c(chunk, crc)
            left -= len(chunk)
        return crc

    def _end(self) -> None:
        if self._last:
            # A sector is written as a whole: where the record's beginning arrived, its length must have, too.
            if self.offset % _SECTOR < _SECTOR - _LENGTH.size and self._whole_record():
                self._corrupt("a length of zero stands before a whole record")
            if self._dropped():
                self._torn("the log ends, but bytes that are not zero follow")
        if self.offset == 0:
            self._torn("the segment is empty")

    def _bad(self, size: int, why: str) -> Never:
        """The `size` bytes behind the length are no record: tell an unfinished write from damage."""
        if self._whole_record() not in (0, size):
            self._corrupt(f"{why}, but a whole record is there, so its length is damaged")
        padded = size + -size % _LENGTH.size
        if self.offset + _LENGTH.size + padded > self._size or self._holds_zero_sector(padded):
            self._torn(why)
        self._corrupt(why)

    def _torn(self, why: str) -> Never:
        if not self._last:
            self._corrupt(why)
        raise TornTailError(
            f"{self._name}: torn at byte {self.offset}: {why}",
            segment=self._name,
            valid_length=self.offset,
            dropped=self._dropped(),
            hint="a crash in the middle of a write leaves this; etcd cuts it off when it starts",
        )

    def _corrupt(self, why: str) -> Never:
        raise damaged(self._name, self.offset, why)

    def _whole_record(self) -> int:
        """The size of the record behind the length here, or 0 if none is whole by its own account."""
        self._file.seek(self.offset + _LENGTH.size)
        body = self._file.read(KEPT)
        try:
            head = _head(body)
        except RecordError:
            return 0
        size = head.start + head.size
        if head.type == CRC:
            return 0 if head.size else size
        if self.offset + _LENGTH.size + size > self._size:
            return 0
        data = body[head.start : size]
        return size if self._continue_crc(data, head.size - len(data)) == head.crc else 0

    def _holds_zero_sector(self, size: int) -> bool:
        """Whether one of the disk sectors under the `size` bytes behind the length brought only zeros."""
        pos = self.offset + _LENGTH.size
        end = pos + size
        self._file.seek(pos)
        while pos < end:
            sector = self._file.read(min(_SECTOR - pos % _SECTOR, end - pos))
            if not sector.strip(b"\0"):
                return True
            pos += len(sector)
        return False

    def _dropped(self) -> int:
        """How many bytes lie between this offset and the last byte that is not zero; holes are skipped."""
        pos = last = self.offset
        while pos < self._size:
            try:
                pos = self._file.seek(pos, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                break
            chunk = self._file.read(KEPT)
            if not chunk:
                break
            if kept := len(chunk.rstrip(b"\0")):
                last = pos + kept
            pos += len(chunk)
        return last - self.offset


def _head(body: bytes) -> _Head:
    """Type, CRC and the place of the data of a record, of which `body` is at least the beginning."""
    if len(body) < 4 or body[:1] != _TAG_TYPE or body[1] > 0x7F or body[2:3] != _TAG_CRC:
        raise RecordError("it does not begin with a type and a CRC")
    crc, pos = get_uvarint(body, 3)
    if crc >> 32:
        raise RecordError("its CRC has more than 32 bits")
    if body[pos : pos + 1] != _TAG_DATA:
        return _Head(body[1], crc, pos, 0)
    size, start = get_uvarint(body, pos + 1)
    return _Head(body[1], crc, start, size)
