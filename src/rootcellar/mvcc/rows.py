"""The rows of the `key` bucket as arrays, and the keys inside their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rootcellar.bolt.tree import Tree
from rootcellar.errors import RecordError
from rootcellar.mvcc.record import decode_key
from rootcellar.mvcc.revision import KEY_BUCKET, PUT_KEY_SIZE, TOMBSTONE_KEY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rootcellar.bolt.file import BoltFile
    from rootcellar.bolt.tree import Elements, Integers


_LONG = np.uint64(0x0A_80_80 << 40)
"""A value that begins with a key whose length takes three bytes or more."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some consecutive rows.  `keys`, `values`, `ends` are offsets into `buffer`: a row is its key's bytes
    [keys, values) and its value's [values, ends).
    """

    tree: Tree
    elements: Elements
    mains: Integers
    subs: Integers
    is_tombstone: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.mains)

    def row_key(self, row: int) -> bytes:
        """The key of one row."""
        return self.tree.buffer[int(self.elements.keys[row]) : int(self.elements.values[row])]

    def pairs(self, chosen: Integers) -> list[tuple[bytes, bytes]]:
        """Key and value of the rows at these indexes."""
        buffer, elements = self.tree.buffer, self.elements
        offsets = (elements.keys[chosen], elements.values[chosen], elements.ends[chosen])
        spans = zip(*(each.tolist() for each in offsets), strict=True)
        return [(buffer[key:value], buffer[value:end]) for key, value, end in spans]

    def user_keys(self) -> list[bytes]:
        """The key each row is about.  Raises RecordError."""
        tree, values, ends = self.tree, self.elements.values, self.elements.ends
        buffer = tree.buffer
        head = tree.key_words(values, ends, 1)[0]
        sizes = (head >> np.uint64(48) & np.uint64(0xFF)).astype(np.int64)
        plain = (head >> np.uint64(56) == 0x0A) & (sizes < 0x80) & (values + 2 + sizes <= ends)
        starts = values + 2
        if plain.all():
            return [buffer[a:b] for a, b in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
        return [decode_key(buffer[a:b]) for a, b in zip(values.tolist(), ends.tolist(), strict=True)]


class KeyRows:
    """The whole `key` bucket of a file, read in batches."""

    def __init__(self, file: BoltFile) -> None:
        """Raises BoltError."""
        bucket = file.bucket(KEY_BUCKET)
        self.tree = Tree.of_file(file)
        self.leaf_ids: Integers = np.zeros(0, np.int64)
        if bucket is not None and bucket.is_inline:
            self.tree, self.leaf_ids = Tree.of_rows(list(bucket.items()))
        elif bucket is not None:
            self.leaf_ids = self.tree.leaf_ids(bucket.root)

    def any_key_begins(self, prefix: bytes) -> bool:
        """Whether some row is about a key with this prefix of at least six bytes.  Raises BoltError,
        RecordError.
        """
        # The first word of a value is tag, length and six bytes of the key, or five behind a longer length.
        six, five = (np.uint64(int.from_bytes(prefix[:size], "big")) for size in (6, 5))
        for elements in self.tree.batches(self.leaf_ids):
            head = self.tree.key_words(elements.values, elements.ends, 1)[0]
            likely = (head & np.uint64((1 << 48) - 1) == six) | (head & np.uint64((1 << 40) - 1) == five)
            likely |= head & _LONG == _LONG
            for row in np.flatnonzero(likely).tolist():
                start, end = int(elements.values[row]), int(elements.ends[row])
                if decode_key(self.tree.buffer[start:end]).startswith(prefix):
                    return True
        return False

    def __iter__(self) -> Iterator[Rows]:
        """Batches in revision order.  Raises BoltError, RecordError."""
        for elements in self.tree.batches(self.leaf_ids):
            yield _rows(self.tree, elements)


def _rows(tree: Tree, elements: Elements) -> Rows:
    sizes = elements.values - elements.keys
    tombstone = sizes == TOMBSTONE_KEY_SIZE
    words = tree.key_words(elements.keys, elements.values, 3)
    low = words[1] << np.uint64(8) | words[2] >> np.uint64(56)
    wrong = (
        (elements.flags != 0)
        | ((sizes != PUT_KEY_SIZE) & ~tombstone)
        | (words[1] >> np.uint64(56) != ord("_"))
        | (tombstone & (words[2] >> np.uint64(48) & np.uint64(0xFF) != ord("t")))
        | (words[0] >> np.uint64(63) != 0)
        | (low >> np.uint64(63) != 0)
    )
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        key = tree.buffer[int(elements.keys[at]) : min(int(elements.values[at]), int(elements.keys[at]) + 32)]
        page = int(elements.pages.ids[elements.page[at]])
        raise RecordError(f"page {page}: row key {key.hex()} is no revision")
    return Rows(tree, elements, words[0].astype(np.int64), low.astype(np.int64), tombstone)
