"""The small buckets and raft files that make a database a member of a new cluster.

What etcdutl's restore does, with what it leaves open decided: alarms of the dead cluster are dropped and
reported, a pending downgrade too, leases the chain mentions and the full does not hold are re-created.  The
raft position is what a fresh cluster of N members has (index N, term 1); consistent index, snapshot and WAL
must agree on it, or writes hang.  Raft snapshot and WAL record are always written: without them a member
added later would silently start with an empty keyspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.bolt.append import Transaction
from rootcellar.errors import TargetError
from rootcellar.mvcc.membership import encode_member
from rootcellar.mvcc.meta import (
    BUCKETS,
    CONF_STATE,
    CONSISTENT_INDEX,
    FINISHED_COMPACTION,
    SCHEDULED_COMPACTION,
    TERM,
    Alarm,
    Lease,
    StoreMeta,
    encode_compaction,
    encode_lease,
    encode_u64,
    leases,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rootcellar.backup.restore.database import Applied
    from rootcellar.mvcc.membership import Member

RAFT_TERM = 1
DEFAULT_LEASE_TTL = 3600
"""Seconds given to a lease that the chain mentions but whose TTL nobody recorded."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """What was decided about a database when it got its new members."""

    alarms_dropped: tuple[Alarm, ...]
    leases_created: tuple[int, ...]
    leases_of_unknown_ttl: tuple[int, ...]
    auth_enabled: bool


def raft_index(members: Sequence[Member]) -> int:
    """The index a new cluster's first snapshot has: one configuration entry per member."""
    return len(members)


def stamp(
    transaction: Transaction, members: Sequence[Member], applied: Applied, lease_ttls: Mapping[int, int]
) -> Stamped:
    """Rewrite the small buckets in `transaction` for `members`.  Raises RecordError, BoltError.

    `lease_ttls` are granted TTLs in seconds by lease id, from the chain's records.
    """
    reader = transaction.reader
    before = StoreMeta.read(reader)
    bucket = reader.bucket(b"meta")
    meta = dict(bucket.items()) if bucket else {}
    meta[CONSISTENT_INDEX] = encode_u64(raft_index(members))
    meta[TERM] = encode_u64(RAFT_TERM)
    meta.pop(CONF_STATE, None)  # nobody reads it at start; etcd writes it at the next change of membership
    if applied.compact_revision > before.compact_revision:
        meta[SCHEDULED_COMPACTION] = encode_compaction(applied.compact_revision)
    transaction.replace(b"meta", meta.items())
    transaction.replace(b"members", map(encode_member, members))
    transaction.replace(b"members_removed", ())
    transaction.replace(b"alarm", ())
    cluster = reader.bucket(b"cluster")
    kept = [row for row in (cluster.items() if cluster else ()) if row[0] != b"downgrade"]
    transaction.replace(b"cluster", kept)

    known = leases(reader)
    missing = sorted(applied.leases - known.keys())
    if missing:
        created = [Lease(id_, lease_ttls.get(id_, DEFAULT_LEASE_TTL)) for id_ in missing]
        transaction.replace(b"lease", map(encode_lease, [*known.values(), *created]))
    for name in BUCKETS:
        if reader.bucket(name) is None:
            transaction.edge(name)
    return Stamped(
        alarms_dropped=before.alarms,
        leases_created=tuple(missing),
        leases_of_unknown_ttl=tuple(id_ for id_ in missing if id_ not in lease_ttls),
        auth_enabled=before.auth_enabled,
    )


def bump_revision(path: Path, by: int) -> int:
    """Make etcd continue `by` revisions later, all before them compacted; the new revision.

    For clients whose watch caches must not see revisions go backwards.  Setting both compaction marks is
    enough for every etcd from 3.4.32 and 3.5.14 on; 3.4.23 was tried as well.  Raises TargetError, OSError.
    """
    with Transaction(path) as transaction:
        meta = StoreMeta.read(transaction.reader)
        revision = meta.revision + by
        if by < 1 or revision >= 1 << 62:
            raise TargetError(
                f"revision {meta.revision} cannot be raised by {by}",
                hint="choose a positive and not so large --bump-revision",
            )
        bucket = transaction.reader.bucket(b"meta")
        rows = dict(bucket.items()) if bucket else {}
        rows[SCHEDULED_COMPACTION] = rows[FINISHED_COMPACTION] = encode_compaction(revision)
        transaction.replace(b"meta", rows.items())
        transaction.commit(both_metas=True)
        return revision
