"""Going back inside one file: its history up to a revision, everything later taken away.

Possible for every revision at or above the file's last compaction, since all rows in between are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.errors import NothingToRestoreError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.removal import remove_rows

if TYPE_CHECKING:
    from rootcellar.bolt.append import Transaction


def truncate_after(transaction: Transaction, revision: int) -> int:
    """Remove all rows above `revision`; how many.  Leases, users and members stay as they are.

    Commit with `both_metas`.  Raises NothingToRestoreError when the file was compacted above `revision`;
    BoltError, RecordError, OSError.
    """
    meta = StoreMeta.read(transaction.reader)
    if revision < meta.compact_revision:
        raise NothingToRestoreError(
            f"revision {revision} was compacted away before this full was taken "
            f"(compacted at {meta.compact_revision})",
            hint="choose an older full, or a later revision",
        )
    return remove_rows(transaction, lambda rows: rows.mains > revision)
