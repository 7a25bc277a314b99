"""Going back inside one file: its history up to a revision, everything later taken away.

Possible for every revision at or above the file's last compaction, since all rows in between are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rootcellar.errors import NothingToRestoreError
from rootcellar.mvcc.history import Keyspace
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.removal import remove_rows

if TYPE_CHECKING:
    from rootcellar.bolt.append import Transaction


class Truncated(NamedTuple):
    """How many rows went, and the ids of the leases that keys which live now are attached to.

    A lease that ended after that revision is gone from the file, and etcd keeps a key for ever whose lease it
    does not know.
    """

    rows: int
    leases: set[int]


def truncate_after(transaction: Transaction, revision: int) -> Truncated:
    """Remove all rows above `revision`.  Leases, users and members stay as they are.

    Commit with `both_metas`.  Memory: some 100 bytes beside each live key.  Raises NothingToRestoreError when
    the file was compacted above `revision`; BoltError, RecordError, OSError.
    """
    meta = StoreMeta.read(transaction.reader)
    if revision < meta.compact_revision:
        raise NothingToRestoreError(
            f"revision {revision} was compacted away before this full was taken "
            f"(compacted at {meta.compact_revision})",
            hint="choose an older full, or a later revision",
        )
    live = Keyspace(transaction.reader, min(revision, meta.revision)).live()
    leases = {lease for entry in live if (lease := entry.record.lease)}
    return Truncated(remove_rows(transaction, lambda rows: rows.mains > revision), leases)
