"""The protobuf wire format, as far as etcd's files use it: varints and a strict walk over fields.

etcd's records are tiny and have a handful of message types, so they are read and written by hand: no
generated code, no descriptor pool, and an error that says what is wrong instead of a half-filled message.
"Strict" means that the walk refuses what no etcd ever wrote (groups, field number 0, a length past the
end); unknown fields, which a newer etcd may write, are yielded like all others.  Zero fields, absent in
proto3 and written by etcd 3.4-3.6 in proto2, are the caller's business.

Every error is a `RecordError`, and no length is believed before it was held against the bytes that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rootcellar.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
LENGTH = 2
FIXED32 = 5

_MAX_VARINT_BYTES = 10
_MAX_FIELD_NUMBER = (1 << 29) - 1
_UINT64_END = 1 << 64
_INT64_END = 1 << 63


class Field(NamedTuple):
    """One field of a message: an int for varint, fixed64 and fixed32, else the bytes themselves."""

    number: int
    wire_type: int
    value: int | bytes | memoryview

    def uint64(self) -> int:
        """The value of a varint field."""
        if self.wire_type != VARINT or not isinstance(self.value, int):
            raise RecordError(f"field {self.number} has wire type {self.wire_type} where a varint belongs")
        return self.value

    def int64(self) -> int:
        """The value of a varint field that holds an int64, which is negative from 2**63 on."""
        return to_int64(self.uint64())

    def bytes(self) -> bytes:
        """A copy of the value of a length-delimited field."""
        if self.wire_type != LENGTH or isinstance(self.value, int):
            raise RecordError(f"field {self.number} has wire type {self.wire_type} where bytes belong")
        return bytes(self.value)


def put_uvarint(n: int) -> bytes:
    """A varint of 1 to 10 bytes; a negative int64 becomes its two's complement, always 10 bytes."""
    if n < 0:
        if n < -_INT64_END:
            raise RecordError(f"{n} does not fit in 64 bits")
        n += _UINT64_END
    elif n >= _UINT64_END:
        raise RecordError(f"{n} does not fit in 64 bits")
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def get_uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """The uint64 at `pos` and the position behind it.  More bytes than needed are legal, up to 10."""
    if pos < len(buf) and (first := buf[pos]) < 0x80:
        return first, pos + 1  # most varints of these files are one byte
    value = shift = 0
    for at, byte in enumerate(buf[pos : pos + _MAX_VARINT_BYTES], pos + 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _UINT64_END:
                raise RecordError(f"varint at byte {pos} does not fit in 64 bits")
            return value, at
        shift += 7
    if len(buf) - pos < _MAX_VARINT_BYTES:
        raise RecordError(f"varint at byte {pos} is cut short")
    raise RecordError(f"varint at byte {pos} is longer than {_MAX_VARINT_BYTES} bytes")


def to_int64(n: int) -> int:
    """The int64 that a uint64 stands for in two's complement."""
    return n - _UINT64_END if n >= _INT64_END else n


def put_field_uint(number: int, n: int) -> bytes:
    """A varint field, zero included; a negative int64 is allowed."""
    return put_uvarint(number << 3 | VARINT) + put_uvarint(n)


def put_field_bytes(number: int, data: bytes) -> bytes:
    """A length-delimited field: bytes, a string or a message."""
    return put_uvarint(number << 3 | LENGTH) + put_uvarint(len(data)) + data


def fields(buf: bytes | memoryview) -> Iterator[Field]:
    """The fields of a message in the order they were written; values from a memoryview are views.

    Walks lazily: an error in a later field is raised only when the walk comes to it.
    """
    pos, end = 0, len(buf)
    while pos < end:
        start = pos
        tag, pos = get_uvarint(buf, pos)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise RecordError(f"field number {number} at byte {start} is out of range")
        if wire_type == VARINT:
            value, pos = get_uvarint(buf, pos)
            yield Field(number, wire_type, value)
            continue
        if wire_type == LENGTH:
            size, pos = get_uvarint(buf, pos)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise RecordError(f"field {number} at byte {start} has the unknown wire type {wire_type}")
        if size > end - pos:
            raise RecordError(f"field {number} at byte {start} needs {size} bytes, {end - pos} are left")
        chunk = buf[pos : pos + size]
        pos += size
        yield Field(number, wire_type, chunk if wire_type == LENGTH else int.from_bytes(chunk, "little"))
