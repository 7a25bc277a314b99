"""What takes the space in a backup: live keys and their history, by prefix.

Bytes are those of rows (row key and record).  What bbolt spends on pages, and free pages, are no key's: their
sum is the difference to the size of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rootcellar.mvcc.history import KeyRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rootcellar.mvcc.history import Keyspace

MOST_GROUPS = 1 << 18
"""Prefixes told apart; rows of any further ones are counted together."""

_DELETED = 0


class Size(NamedTuple):
    """One prefix; None stands for all beyond MOST_GROUPS.  A key with fewer segments is its own prefix.

    History is what was superseded or deleted and is still in the file, deletions included.
    """

    prefix: bytes | None
    live_keys: int
    live_bytes: int
    history_rows: int
    history_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.live_bytes + self.history_bytes


def sizes(keyspace: Keyspace, prefix: bytes = b"", *, depth: int = 2, separator: bytes = b"/") -> list[Size]:
    """Sizes of the groups below `prefix`, the largest first.

    A group is what shares `depth` segments below `prefix`, each up to and with its separator; one at the very
    beginning is not counted: at depth 2, `/registry/pods/a/b` belongs to `/registry/pods/`.  Raises
    RecordError, BoltError.  Memory: one small entry per live key, and per group.
    """
    groups = _Groups(prefix, depth, separator)
    rows, row_bytes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    newest: dict[bytes, int] = {}
    for scanned in keyspace.scan(KeyRange.prefix(prefix)):
        row_sizes, gone = scanned.sizes(), scanned.is_deletion()
        ids = np.fromiter(map(groups.of, scanned.keys), np.int64, len(scanned.keys))
        rows, row_bytes = _grown(rows, len(groups)), _grown(row_bytes, len(groups))
        np.add.at(rows, ids, 1)
        np.add.at(row_bytes, ids, row_sizes)
        newest.update(zip(scanned.keys, np.where(gone, _DELETED, row_sizes).tolist(), strict=True))
        for at in np.flatnonzero(gone).tolist():
            if newest.get(scanned.keys[at]) == _DELETED:
                del newest[scanned.keys[at]]
    live, live_bytes = [0] * len(groups), [0] * len(groups)
    for key, size in newest.items():
        group = groups.of(key)
        live[group] += 1
        live_bytes[group] += size
    found = [
        Size(name, live[at], live_bytes[at], int(rows[at]) - live[at], int(row_bytes[at]) - live_bytes[at])
        for name, at in groups.numbers.items()
    ]
    return sorted(found, key=lambda size: (-size.total_bytes, size.prefix or b""))


class _Groups:
    """Numbers for prefixes, in the order in which they were met."""

    def __init__(self, prefix: bytes, depth: int, separator: bytes) -> None:
        self._prefix, self._depth, self._separator = prefix, depth, separator
        self.numbers: dict[bytes | None, int] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def of(self, key: bytes) -> int:
        """The number of the group that a key belongs to."""
        at = len(self._prefix)
        if key.startswith(self._separator, at):
            at += len(self._separator)
        for _ in range(self._depth):
            end = key.find(self._separator, at)
            if end < 0:
                at = len(key)
                break
            at = end + len(self._separator)
        name: bytes | None = key[:at]
        number = self.numbers.get(name)
        if number is None and len(self.numbers) >= MOST_GROUPS:
            name = None
        return self.numbers.setdefault(name, len(self.numbers)) if number is None else number


def _grown(array: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return array if len(array) >= size else np.concatenate([array, np.zeros(size - len(array), np.int64)])
