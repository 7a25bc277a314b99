"""The structure proof of a bbolt file: what `bbolt check` looks for, and the bounds it does not.

etcd opens a file by walking its whole tree and panics at the first error, so a backup that fails here would
not start.  Checked: every page reachable once and only once, of the kind its place demands, elements within
their page, keys strictly ascending within a page, across pages and against every branch above, free pages not
in use. Values are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rootcellar.bolt.file import Bucket
from rootcellar.bolt.layout import (
    BUCKET_ELEMENT,
    FREELIST,
    HEADER_SIZE,
    LEAF,
    MAX_DEPTH,
    MAX_KEY_SIZE,
    META,
    NO_FREELIST,
    PAGE_HEADER,
)
from rootcellar.bolt.tree import PageUse, Tree
from rootcellar.errors import BoltError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rootcellar.bolt.file import BoltFile
    from rootcellar.bolt.tree import Integers, Pages

WIDE_KEY = 24
"""Keys up to this many bytes are compared as numbers, longer ones one by one."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What a sound file holds.  `rows` is by top-level bucket name, nested rows included."""

    pages: int
    pages_in_use: int
    rows: dict[bytes, int]


def check(file: BoltFile) -> Structure:
    """Prove the structure of `file`.  Raises BoltError at the first thing that is wrong."""
    _check_meta_pages(file)
    checker = _Checker(file)
    rows = checker.rows()
    met = checker.use.met()
    _check_free_list(file, met)
    return Structure(file.meta.high_water, int(met.sum()) + 2, rows)


class _Checker:
    def __init__(self, file: BoltFile) -> None:
        self._file = file
        self.tree = Tree.of_file(file)
        self.use = PageUse(file.meta.high_water, file.meta.page_size)

    def rows(self) -> dict[bytes, int]:
        """Check everything; how many rows each top-level bucket has."""
        root = self._file.root()
        self._tree(root.root)
        found = {}
        for flags, name, value in root.elements():
            if not flags & BUCKET_ELEMENT:
                raise BoltError(f"{name!r} lies in the root as a row, not as a bucket")
            try:
                found[name] = self._bucket(Bucket(self._file, value))
            except BoltError as error:
                raise BoltError(f"bucket {name!r}: {error.message}", hint=error.hint) from error
        return found

    def _bucket(self, outermost: Bucket) -> int:
        """Check one bucket and those nested in it, however deep; the number of rows of all."""
        total, waiting = 0, [outermost]
        while waiting:
            bucket = waiting.pop()
            rows, has_buckets = _inline(bucket) if bucket.is_inline else self._tree(bucket.root)
            total += rows
            if has_buckets:
                nested = [inner for _, inner in bucket.buckets()]
                total -= len(nested)
                waiting += nested
        return total

    def _tree(self, root: int) -> tuple[int, bool]:
        """Check the tree below page `root`: (elements of its leaves, whether some of them are buckets)."""
        tree = self.tree
        level, low = tree.top(root), np.zeros((2, 0), np.int64)
        for _ in range(MAX_DEPTH):
            kind = tree.kind(level)
            rows, has_buckets, done = 0, False, 0
            below: list[Integers] = []
            below_low: list[Integers] = []
            for pages in tree.page_batches(level):
                self.use.add(pages)
                if low.shape[1] and not pages.counts.all():
                    raise BoltError(f"page {int(pages.ids[pages.counts == 0][0])} is empty")
                if kind == LEAF:
                    elements = tree.elements(pages)
                    keys, ends = elements.keys, elements.values
                    has_buckets = has_buckets or bool((elements.flags & BUCKET_ELEMENT).any())
                else:
                    children, keys, ends = tree.children(pages)
                    below.append(children)
                    below_low.append(np.stack([keys, ends]))
                self._ordered(pages, keys, ends)
                self._under_branches(pages, keys, ends, low[:, done : done + len(pages.ids) + 1])
                done += len(pages.ids)
                rows += len(keys)
            if kind == LEAF:
                return rows, has_buckets
            level, low = np.concatenate(below), np.concatenate(below_low, axis=1)
        raise BoltError(f"page {root}: its tree is deeper than {MAX_DEPTH} pages")

    def _ordered(self, pages: Pages, keys: Integers, ends: Integers) -> None:
        """Keys have a legal size and ascend within each page."""
        sizes = ends - keys
        wrong = (sizes == 0) | (sizes > MAX_KEY_SIZE)
        page = np.repeat(pages.ids, pages.counts)
        if wrong.any():
            raise BoltError(f"page {int(page[wrong][0])}: a key has {int(sizes[wrong][0])} bytes")
        wrong = ~self._ascending(keys, ends) & (page[:-1] == page[1:])
        if wrong.any():
            raise BoltError(f"page {int(page[1:][wrong][0])}: keys are not in ascending order")

    def _under_branches(self, pages: Pages, keys: Integers, ends: Integers, low: Integers) -> None:
        """Each page's keys lie between the key of the branch element that names it and that of the next."""
        if not low.shape[1]:
            return
        last = np.cumsum(pages.counts) - 1
        first = last - pages.counts + 1
        own, following = low[:, : len(pages.ids)], low[:, 1:]
        wrong = self._below(keys[first], ends[first], own[0], own[1])
        if wrong.any():
            raise BoltError(f"page {int(pages.ids[wrong][0])}: its first key is below its branch's")
        last = last[: following.shape[1]]
        wrong = ~self._below(keys[last], ends[last], following[0], following[1])
        if wrong.any():
            raise BoltError(
                f"page {int(pages.ids[: len(last)][wrong][0])}: its last key reaches into the next page"
            )

    def _ascending(self, keys: Integers, ends: Integers) -> NDArray[np.bool_]:
        """Whether each key but the last is below the one after it."""
        sizes = ends - keys
        if not len(keys) or int(sizes.max()) > WIDE_KEY:
            return self._below(keys[:-1], ends[:-1], keys[1:], ends[1:])
        words = self.tree.key_words(keys, ends, (int(sizes.max()) + 7) // 8)
        return _less(words[:, :-1], sizes[:-1], words[:, 1:], sizes[1:])

    def _below(
        self, keys: Integers, ends: Integers, others: Integers, other_ends: Integers
    ) -> NDArray[np.bool_]:
        """Whether each key is below its counterpart, bytewise, the shorter first."""
        if not len(keys):
            return np.zeros(0, np.bool_)
        sizes, other_sizes = ends - keys, other_ends - others
        widest = max(int(sizes.max()), int(other_sizes.max()))
        if widest > WIDE_KEY:
            buffer = self.tree.buffer
            spans = zip(keys.tolist(), ends.tolist(), others.tolist(), other_ends.tolist(), strict=True)
            return np.fromiter((buffer[a:b] < buffer[c:d] for a, b, c, d in spans), np.bool_, len(keys))
        words = (widest + 7) // 8
        ours = self.tree.key_words(keys, ends, words)
        return _less(ours, sizes, self.tree.key_words(others, other_ends, words), other_sizes)


def _less(
    ours: NDArray[np.uint64], sizes: Integers, theirs: NDArray[np.uint64], other_sizes: Integers
) -> NDArray[np.bool_]:
    less = sizes < other_sizes
    for a, b in zip(ours[::-1], theirs[::-1], strict=True):
        less = (a < b) | ((a == b) & less)
    return less


def _inline(bucket: Bucket) -> tuple[int, bool]:
    previous = b""
    rows = 0
    for flags, key, _ in bucket.elements():
        if flags & BUCKET_ELEMENT:
            raise BoltError("an inline page holds a bucket")
        if not 0 < len(key) <= MAX_KEY_SIZE or (rows and key <= previous):
            raise BoltError(f"inline page: key {rows} is out of order")
        previous = key
        rows += 1
    return rows, False


def _check_meta_pages(file: BoltFile) -> None:
    """Both meta pages are where they belong; whether a stale one holds is no matter.  Raises BoltError."""
    for page_id in (0, 1):
        own_id, flags, _, _ = PAGE_HEADER.unpack_from(file.buffer, page_id * file.meta.page_size)
        if own_id != page_id:
            raise BoltError(f"page {page_id} says that it is page {own_id}")
        if flags != META:
            raise BoltError(f"page {page_id} has flags {flags:#06x}: no meta page")


def _check_free_list(file: BoltFile, met: NDArray[np.bool_]) -> None:
    """With a synced free list every page is in use or free, and none is both.  Raises BoltError."""
    found = _free_pages(file)
    if found is None:
        return
    listed, free = found
    spoken_for = met.copy()
    spoken_for[:2] = True
    for what, ids in (
        ("is in use and on the free list", free),
        ("holds the free list and is in use", listed),
    ):
        both = spoken_for[ids]
        if both.any():
            raise BoltError(f"page {int(ids[both][0])} {what}")
        spoken_for[ids] = True
    if not spoken_for.all():
        raise BoltError(f"page {int(np.argmin(spoken_for))} is neither in use nor on the free list")


def _free_pages(file: BoltFile) -> tuple[Integers, Integers] | None:
    """Page ids that a synced free list takes, and those that it names, or None.  Raises BoltError."""
    page_id, page_size = file.meta.freelist, file.meta.page_size
    if page_id == NO_FREELIST:
        return None
    if not 2 <= page_id < file.meta.high_water:
        raise BoltError(f"free list page {page_id} lies outside the {file.meta.high_water} pages in use")
    start = page_id * page_size
    own_id, flags, count, overflow = PAGE_HEADER.unpack_from(file.buffer, start)
    if own_id != page_id or flags != FREELIST or page_id + overflow >= file.meta.high_water:
        raise BoltError(f"page {page_id} is not the free list that the meta page names")
    at = start + HEADER_SIZE
    if count == 0xFFFF:  # the count does not fit the header: it is the first entry
        count = int.from_bytes(file.buffer[at : at + 8], "little")
        at += 8
    if at + 8 * count > start + (overflow + 1) * page_size:
        raise BoltError(f"free list page {page_id} states {count} pages, more than it holds")
    ids = np.frombuffer(file.buffer, "<u8", count, at)
    wrong = (ids < 2) | (ids >= file.meta.high_water)
    if wrong.any():
        raise BoltError(f"the free list names page {int(ids[wrong][0])}, outside the pages in use")
    ordered = ids.astype(np.int64)
    if (np.diff(ordered) <= 0).any():
        raise BoltError(f"free list page {page_id} names a page twice or out of order")
    return np.arange(page_id, page_id + overflow + 1), ordered
