"""etcd revisions, and the row keys of the `key` bucket that hold them.

A row key is main (8 bytes, big-endian), `_`, sub (8 bytes), and `t` when the row is a tombstone.  Main counts
transactions from 2 on (1 is the empty store); sub counts the changes inside one from 0.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NewType

from rootcellar.errors import RecordError

Revision = NewType("Revision", int)
"""An etcd main revision."""

KEY_BUCKET = b"key"
PUT_KEY_SIZE, TOMBSTONE_KEY_SIZE = 17, 18
FIRST = Revision(1)
"""The revision of an empty store."""
NEVER_COMPACTED = Revision(-1)
_MAX = (1 << 63) - 1
_ROW = struct.Struct(">qcq")


class RowKey(NamedTuple):
    """The key of one row of the `key` bucket."""

    main: Revision
    sub: int
    is_tombstone: bool


def encode_row_key(main: int, sub: int = 0, *, tombstone: bool = False) -> bytes:
    """17 bytes, or 18 for a tombstone."""
    key = _ROW.pack(main, b"_", sub)
    return key + b"t" if tombstone else key


def decode_row_key(key: bytes) -> RowKey:
    """Read a row key.  Raises RecordError for anything etcd would panic on."""
    tombstone = len(key) == TOMBSTONE_KEY_SIZE
    if len(key) != PUT_KEY_SIZE and not (tombstone and key.endswith(b"t")):
        raise RecordError(f"row key {key[:32].hex()} is neither a put nor a tombstone")
    main, separator, sub = _ROW.unpack(key[:PUT_KEY_SIZE])
    if separator != b"_" or main < 0 or sub < 0:
        raise RecordError(f"row key {key.hex()} is no revision")
    return RowKey(Revision(main), sub, tombstone)


def decode_revision_value(value: bytes) -> Revision:
    """The main revision in a value of the `meta` bucket (`scheduledCompactRev` and its like)."""
    return decode_row_key(value).main
