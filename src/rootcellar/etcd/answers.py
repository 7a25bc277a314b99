"""What etcd answers, as plain values.

Protobuf messages stay inside `etcd/`, but for two that pass by the million and are handed on as they came:
`KeyValue` and `Event`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.etcd._proto.kv_pb2 import Event, KeyValue


class Version(NamedTuple):
    """A server's version; a pre-release counts as the release it precedes."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `3.6.16`, `3.7.0-rc.0` or `3.6`.  Anything else is 0.0.0: a version never stops a backup."""
        found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
        return cls(*(int(part or 0) for part in found.groups())) if found else cls(0, 0, 0)

    def __str__(self) -> str:
        return ".".join(map(str, self))


class Header(NamedTuple):
    """Who answered, at which revision and raft term."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


class Status(NamedTuple):
    """One member's own view.  `leader` is 0 when it knows none; sizes are in bytes.

    `storage_version` (3.6+) and `db_size_quota` (3.6+) are empty and 0 before.
    """

    header: Header
    version: Version
    db_size: int
    db_size_in_use: int
    db_size_quota: int
    leader: int
    raft_index: int
    raft_term: int
    raft_applied_index: int
    is_learner: bool
    storage_version: str
    errors: tuple[str, ...]


class Page(NamedTuple):
    """A page of a range: the keys, the revision it was read at, and how many keys it has in all."""

    kvs: Sequence[KeyValue]
    revision: int
    more: bool
    total: int


class TxnResult(NamedTuple):
    """Which branch ran, at which revision, and what each of its `range` operations found."""

    header: Header
    succeeded: bool
    ranges: tuple[Page, ...]


class HashKv(NamedTuple):
    """A member's HashKV: only the three values together mean something.

    `revision` is the one asked for (etcd before 3.6 does not repeat it); `compact_revision` is the one that
    the hash was computed with, -1 for never compacted.
    """

    hash: int
    revision: int
    compact_revision: int


class LeaseTtl(NamedTuple):
    """Seconds: what is left, and what was granted."""

    id: int
    remaining: int
    granted: int


class Member(NamedTuple):
    """One row of the member list.  `name` is empty until the member has started."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    is_learner: bool


class AlarmKind(Enum):
    """What is wrong, under etcd's numbers."""

    NOSPACE = 1
    CORRUPT = 2


class Alarm(NamedTuple):
    """An alarm that a member has raised."""

    member_id: int
    kind: AlarmKind


class AuthStatus(NamedTuple):
    """Whether authentication is on, and the revision of users, roles and permissions."""

    enabled: bool
    revision: int


class WatchBatch(NamedTuple):
    """Whole revisions, ascending: every event of each is here.

    `last` is the newest revision that has been delivered up to and including this batch; a progress report is
    a batch without events.
    """

    events: Sequence[Event]
    last: int
