"""Compaction of a file that is about to get newer rows.

A chain's deltas know nothing of compactions, so what they supersede at or below compact revision C must not
be written, or a busy cluster's restore outgrows its quota.  Leaving out only the deltas' own superseded rows
is wrong: etcd counts a key's version from the first row it meets, so a key whose rows have a hole gets wrong
versions on its next write.  Hence, for every key a delta touches at or below C, its older rows go from the
file as well: then its first row is again the one etcd's own compaction would have kept, with version and
create revision inside.

Keys that no delta touches keep all rows; etcd finishes their compaction when it starts
(`scheduledCompactRev`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rootcellar.mvcc.removal import remove_rows

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

    from rootcellar.bolt.append import Transaction
    from rootcellar.mvcc.rows import Rows


def drop_rows(transaction: Transaction, touched: Container[bytes], compact_revision: int) -> int:
    """Remove the rows at or below `compact_revision` whose key is in `touched`; how many there were.

    Commit with `both_metas`.  Raises BoltError, RecordError, OSError.
    """

    def superseded(rows: Rows) -> NDArray[np.bool_]:
        drop = np.zeros(len(rows), np.bool_)
        end = int(np.searchsorted(rows.mains, compact_revision, "right"))
        if end:
            keys = rows.user_keys()[:end]
            drop[:end] = np.fromiter((key in touched for key in keys), np.bool_, end)
        return drop

    return remove_rows(transaction, superseded)
