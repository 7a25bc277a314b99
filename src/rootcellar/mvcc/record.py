"""The value of a row: `mvccpb.KeyValue`, written field by field as etcd writes it.

Fields: 1 key, 2 create_revision, 3 mod_revision, 4 version, 5 value, 6 lease; zeros are left out; a tombstone
has the key alone.  The bytes matter: HashKV is computed over them.
"""

from __future__ import annotations

from typing import NamedTuple

from rootcellar.errors import RecordError
from rootcellar.mvcc.varint import LENGTH, VARINT, fields, put_uvarint

_KEY, _CREATE, _MOD, _VERSION, _VALUE, _LEASE = (b"\x0a", b"\x10", b"\x18", b"\x20", b"\x2a", b"\x30")


class KeyValue(NamedTuple):
    """One key at one revision, as etcd stores it."""

    key: bytes
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


def encode(record: KeyValue) -> bytes:
    """The stored bytes of `record`."""
    key, create, mod, version, value, lease = record
    parts = [_KEY, uvarint(len(key)), key] if key else []
    for tag, number in ((_CREATE, create), (_MOD, mod), (_VERSION, version)):
        if number:
            parts += (tag, uvarint(number))
    if value:
        parts += (_VALUE, uvarint(len(value)), value)
    if lease:
        parts += (_LEASE, uvarint(lease))
    return b"".join(parts)


def decode(data: bytes) -> KeyValue:
    """Read stored bytes.  Raises RecordError where etcd would refuse to start."""
    found: list[int | bytes] = [b"", 0, 0, 0, b"", 0]
    for field in fields(data):
        if field.number > len(found):
            continue
        wants = LENGTH if field.number in (1, 5) else VARINT
        if field.wire_type != wants:
            raise RecordError(f"field {field.number} of a KeyValue has wire type {field.wire_type}")
        found[field.number - 1] = field.bytes() if wants == LENGTH else field.int64()
    return KeyValue(*found)  # type: ignore[arg-type]  # the loop puts bytes and ints where they belong


def decode_key(data: bytes) -> bytes:
    """The key alone: what a scan of millions of rows needs.  Raises RecordError."""
    if len(data) > 2 and data[0] == 0x0A and data[1] < 0x80:
        end = 2 + data[1]
        if end <= len(data):
            return data[2:end]
    return decode(data).key


_SMALL = [put_uvarint(n) for n in range(1 << 14)]
_LOW = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14)]
"""The low 14 bits of a longer varint, both bytes saying that more follow."""


def uvarint(n: int) -> bytes:
    """`put_uvarint` by table for what lengths, versions and revisions are."""
    if 0 <= n < 1 << 14:
        return _SMALL[n]
    if 0 < n < 1 << 28:
        return _LOW[n & 0x3FFF] + _SMALL[n >> 14]
    if 0 < n < 1 << 42:
        return _LOW[n & 0x3FFF] + _LOW[n >> 14 & 0x3FFF] + _SMALL[n >> 28]
    return put_uvarint(n)
