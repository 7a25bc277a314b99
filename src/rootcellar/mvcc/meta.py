"""Where a file stands: revisions, compactions, raft position, versions, auth, alarms, members, leases.

Everything here lives in small buckets beside `key`.  The same ten names from 3.4 to 3.7; any of them may be
missing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.errors import RecordError
from rootcellar.mvcc.membership import Member, decode_member
from rootcellar.mvcc.revision import (
    FIRST,
    KEY_BUCKET,
    NEVER_COMPACTED,
    Revision,
    decode_revision_value,
    decode_row_key,
    encode_row_key,
)
from rootcellar.mvcc.varint import fields, put_field_uint

if TYPE_CHECKING:
    from rootcellar.bolt.file import BoltFile

BUCKETS = (
    b"alarm",
    b"auth",
    b"authRoles",
    b"authUsers",
    b"cluster",
    KEY_BUCKET,
    b"lease",
    b"members",
    b"members_removed",
    b"meta",
)
CONSISTENT_INDEX, TERM, CONF_STATE = b"consistent_index", b"term", b"confState"
STORAGE_VERSION = b"storageVersion"
SCHEDULED_COMPACTION, FINISHED_COMPACTION = b"scheduledCompactRev", b"finishedCompactRev"


class Alarm(NamedTuple):
    """An alarm that was raised when the file was copied; `kind` is NOSPACE, CORRUPT or a number."""

    member: int
    kind: str


class Lease(NamedTuple):
    """A lease record.  `ttl` is what was granted, `remaining` the last checkpoint (0: none), in seconds."""

    id: int
    ttl: int
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """What the small buckets of one file say."""

    revision: Revision
    last_row: Revision
    scheduled_compaction: Revision
    compact_revision: Revision
    consistent_index: int
    term: int
    storage_version: str | None
    cluster_version: str | None
    auth_enabled: bool
    auth_revision: int
    alarms: tuple[Alarm, ...]
    members: tuple[Member, ...]

    @classmethod
    def read(cls, file: BoltFile) -> StoreMeta:
        """Read the small buckets.  Raises RecordError, BoltError.

        `revision` follows etcd's own rule: the last row's, raised to the compactions if those are beyond it.
        """
        meta, auth = _rows(file, b"meta"), _rows(file, b"auth")
        finished = _revision(meta.get(FINISHED_COMPACTION))
        scheduled = _revision(meta.get(SCHEDULED_COMPACTION))
        keys = file.bucket(KEY_BUCKET)
        last = keys.last() if keys else None
        last_row = decode_row_key(last[0]).main if last else FIRST
        return cls(
            revision=max(last_row, finished, scheduled),
            last_row=last_row,
            scheduled_compaction=scheduled,
            compact_revision=max(finished, scheduled),
            consistent_index=decode_u64(meta.get(CONSISTENT_INDEX)),
            term=decode_u64(meta.get(TERM)),
            storage_version=decode_version(meta.get(STORAGE_VERSION)),
            cluster_version=decode_version(_rows(file, b"cluster").get(b"clusterVersion")),
            auth_enabled=auth.get(b"authEnabled", b"\0") == b"\x01",
            auth_revision=decode_u64(auth.get(b"authRevision")),
            alarms=tuple(map(_alarm, _rows(file, b"alarm"))),
            members=tuple(decode_member(key, value) for key, value in _rows(file, b"members").items()),
        )


def leases(file: BoltFile) -> dict[int, Lease]:
    """All lease records by id.  Raises RecordError, BoltError."""
    bucket = file.bucket(b"lease")
    found = map(decode_lease, (value for _, value in bucket.items())) if bucket else ()
    return {lease.id: lease for lease in found}


def decode_lease(value: bytes) -> Lease:
    """Read a `leasepb.Lease`.  Raises RecordError."""
    numbers = {field.number: field.int64() for field in fields(value) if field.number <= 3}
    return Lease(numbers.get(1, 0), numbers.get(2, 0), numbers.get(3, 0))


def encode_lease(lease: Lease) -> tuple[bytes, bytes]:
    """The row of a lease: id as 8 bytes, and the message with zero fields left out."""
    numbers = enumerate(lease, 1)
    value = b"".join(put_field_uint(number, n) for number, n in numbers if n)
    return struct.pack(">q", lease.id), value


def encode_u64(number: int) -> bytes:
    """How `meta` and `auth` store numbers."""
    return struct.pack(">Q", number)


def encode_compaction(revision: int) -> bytes:
    """How `meta` stores a compaction's revision."""
    return encode_row_key(revision)


def _rows(file: BoltFile, name: bytes) -> dict[bytes, bytes]:
    bucket = file.bucket(name)
    return dict(bucket.items()) if bucket else {}


def _revision(value: bytes | None) -> Revision:
    return NEVER_COMPACTED if value is None else decode_revision_value(value)


def decode_u64(value: bytes | None) -> int:
    """How `meta` and `auth` store numbers; 0 for one that is not there.  Raises RecordError."""
    if value is None:
        return 0
    if len(value) != 8:
        raise RecordError(f"a number of the meta bucket has {len(value)} bytes, not 8")
    return int.from_bytes(value, "big")


def decode_version(value: bytes | None) -> str | None:
    """How `meta` and `cluster` store versions.  Raises RecordError."""
    if value is None:
        return None
    try:
        return value.decode("ascii")
    except UnicodeDecodeError as error:
        raise RecordError(f"version {value[:32]!r} is not text") from error


def _alarm(key: bytes) -> Alarm:
    numbers = {field.number: field.uint64() for field in fields(key) if field.number <= 2}
    kind = {1: "NOSPACE", 2: "CORRUPT"}.get(numbers.get(2, 0), str(numbers.get(2, 0)))
    return Alarm(numbers.get(1, 0), kind)
