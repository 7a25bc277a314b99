"""Taking rows out of the `key` bucket of a file that is about to be written.

Leaf pages that lose rows are changed where they lie, those that lose all of them are left out, and the
branches above are written anew: a fraction of what writing the whole bucket again would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rootcellar.mvcc.revision import KEY_BUCKET
from rootcellar.mvcc.rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rootcellar.bolt.append import Child, Transaction
    from rootcellar.mvcc.rows import Rows


def remove_rows(transaction: Transaction, chosen: Callable[[Rows], NDArray[np.bool_]]) -> int:
    """Remove the rows that `chosen` marks, batch by batch; how many there were.

    Commit with `both_metas`, as the old state is changed in place.  Raises BoltError, RecordError, OSError.
    """
    bucket = transaction.reader.bucket(KEY_BUCKET)
    if bucket is None:
        return 0
    children: list[Child] = []
    kept: list[tuple[bytes, bytes]] = []
    removed = 0
    for rows in KeyRows(transaction.reader):
        drop = chosen(rows)
        removed += int(drop.sum())
        if bucket.is_inline:
            kept += rows.pairs(np.flatnonzero(~drop))
        else:
            children += _leaves(transaction, rows, drop)
    if removed and bucket.is_inline:
        transaction.replace(KEY_BUCKET, kept)
    elif removed:
        transaction.adopt(KEY_BUCKET, children)
    return removed


def _leaves(transaction: Transaction, rows: Rows, drop: NDArray[np.bool_]) -> Iterator[Child]:
    """The leaf pages of `rows` that still hold something, rewritten where they lose rows."""
    pages, first = rows.elements.pages, rows.elements.first
    before = np.concatenate([[0], np.cumsum(drop)])
    gone = before[first + pages.counts] - before[first]
    for index, page_id in enumerate(pages.ids.tolist()):
        begin, count = int(first[index]), int(pages.counts[index])
        if gone[index] == count:
            continue
        if not gone[index]:
            yield rows.row_key(begin), page_id
            continue
        kept = rows.pairs(np.flatnonzero(~drop[begin : begin + count]) + begin)
        taken = int(pages.ends[index] - pages.starts[index]) // rows.tree.page_size
        transaction.overwrite_leaf(page_id, taken, kept)
        yield kept[0][0], page_id
