"""A bucket's tree as arrays: thousands of pages checked and read per NumPy call.

The walk of `file.py` costs a Python step per element.  Proofs and hashes look at every element of files of
many gigabytes, so here the tree is taken level by level: one array of page ids per level, one array per field
of all their elements.  Every number is held against its bounds before it is used as an address; what is wrong
is a BoltError that names the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rootcellar.bolt import leaves
from rootcellar.bolt.layout import BRANCH, ELEMENT_SIZE, HEADER_SIZE, LEAF, MAX_DEPTH
from rootcellar.errors import BoltError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rootcellar.bolt.file import BoltFile, Buffer

    Integers = NDArray[np.int64]

PAGE_BATCH = 4096
BATCH_ELEMENTS = 1 << 16
"""Elements looked at in one go: some ten arrays of this length are alive at once (a few MiB)."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Headers of some branch or leaf pages: ids, first byte, end of the last overflow page, element count."""

    ids: Integers
    starts: Integers
    ends: Integers
    counts: Integers
    is_leaf: NDArray[np.bool_]

    def __getitem__(self, index: slice | NDArray[np.bool_] | Integers) -> Pages:
        return Pages(
            self.ids[index], self.starts[index], self.ends[index], self.counts[index], self.is_leaf[index]
        )


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of some leaf pages, in key order.  Offsets are bytes of the file.

    `page` is each element's index into `pages`; `first` is the index of each page's first element.
    """

    pages: Pages
    page: Integers
    first: Integers
    flags: NDArray[np.uint32]
    keys: Integers
    values: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.keys)


class Tree:
    """The pages of one file as arrays."""

    def __init__(self, buffer: Buffer, page_size: int, high_water: int) -> None:
        """`buffer` holds at least `high_water` pages."""
        self.buffer = buffer
        self.page_size = page_size
        self.high_water = high_water
        self.size = high_water * page_size
        self._u16 = np.frombuffer(buffer, "<u2", self.size // 2)
        self._u32 = np.frombuffer(buffer, "<u4", self.size // 4)
        self._u64 = np.frombuffer(buffer, "<u8", self.size // 8)
        self._any_u64 = np.ndarray((self.size - 7,), ">u8", buffer, 0, (1,))

    @classmethod
    def of_file(cls, file: BoltFile) -> Tree:
        """The pages of an open file."""
        return cls(file.buffer, file.meta.page_size, file.meta.high_water)

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[bytes, bytes]]) -> tuple[Tree, Integers]:
        """A tree of its own for the few rows of an inline bucket, and the ids of its leaf pages."""
        page_size = 4096
        run = leaves.build([key for key, _ in rows], [value for _, value in rows], page_size)
        starts = np.cumsum(run.pages) - run.pages + 2
        image = bytearray(2 * page_size) + run.image
        np.frombuffer(image, "<u8")[starts * (page_size // 8)] = starts
        return cls(bytes(image), page_size, len(image) // page_size), starts

    def pages(self, ids: Integers) -> Pages:
        """Read and check the headers of `ids`.  Raises BoltError."""
        outside = (ids < 2) | (ids >= self.high_water)
        if outside.any():
            raise BoltError(f"page {int(ids[outside][0])} lies outside the {self.high_water} pages in use")
        starts = ids * self.page_size
        wrong = self._u64[starts >> 3] != ids.astype(np.uint64)
        if wrong.any():
            at = int(ids[wrong][0])
            raise BoltError(f"page {at} says that it is page {int(self._u64[at * self.page_size >> 3])}")
        flags = self._u16[(starts + 8) >> 1]
        wrong = (flags != LEAF) & (flags != BRANCH)
        if wrong.any():
            raise BoltError(
                f"page {int(ids[wrong][0])} has flags {int(flags[wrong][0]):#06x}: neither branch nor leaf"
            )
        counts = self._u16[(starts + 10) >> 1].astype(np.int64)
        overflow = self._u32[(starts + 12) >> 2].astype(np.int64)
        wrong = ids + overflow >= self.high_water
        if wrong.any():
            raise BoltError(
                f"page {int(ids[wrong][0])} states {int(overflow[wrong][0])} overflow pages, "
                "more than the file has"
            )
        ends = starts + (overflow + 1) * self.page_size
        wrong = starts + HEADER_SIZE + counts * ELEMENT_SIZE > ends
        if wrong.any():
            raise BoltError(f"page {int(ids[wrong][0])} states more elements than it holds")
        return Pages(ids, starts, ends, counts, flags == LEAF)

    def children(self, branches: Pages) -> tuple[Integers, Integers, Integers]:
        """Child page ids of some branch pages in order, and where each one's key begins and ends."""
        if (branches.counts == 0).any():
            empty = int(branches.ids[branches.counts == 0][0])
            raise BoltError(f"page {empty}: branch page without children")
        page, at = _element_offsets(branches)
        keys = at + self._u32[at >> 2]
        ends = keys + self._u32[(at + 4) >> 2]
        _within(branches, page, at, keys, ends)
        ids = self._u64[(at + 8) >> 3]
        outside = ids >= self.high_water
        if outside.any():
            raise BoltError(f"page {int(ids[outside][0])} lies outside the {self.high_water} pages in use")
        return ids.astype(np.int64), keys, ends

    def elements(self, pages: Pages) -> Elements:
        """Elements of some leaf pages, in order.  Raises BoltError, also when elements overlap: a page then
        holds no more than its own bytes.
        """
        page, at = _element_offsets(pages)
        keys = at + self._u32[(at + 4) >> 2]
        values = keys + self._u32[(at + 8) >> 2]
        ends = values + self._u32[(at + 12) >> 2]
        _within(pages, page, at, keys, ends)
        first = np.cumsum(pages.counts) - pages.counts
        sums = np.concatenate([[0], np.cumsum(ends - keys)])
        used = sums[first + pages.counts] - sums[first] + HEADER_SIZE + ELEMENT_SIZE * pages.counts
        wrong = used > pages.ends - pages.starts
        if wrong.any():
            raise BoltError(f"page {int(pages.ids[wrong][0])}: its elements overlap")
        return Elements(pages, page, first, self._u32[at >> 2], keys, values, ends)

    def top(self, root: int) -> Integers:
        """The first level of the tree below page `root`.  Raises BoltError."""
        if not 2 <= root < self.high_water:
            raise BoltError(f"page {root} lies outside the {self.high_water} pages in use")
        return np.array([root], np.int64)

    def leaf_ids(self, root: int) -> Integers:
        """Ids of the leaf pages below `root`, in key order: 8 bytes of memory each.  Raises BoltError."""
        level = self.top(root)
        for _ in range(MAX_DEPTH):
            if self.kind(level) == LEAF:
                return level
            level = np.concatenate([self.children(pages)[0] for pages in self.page_batches(level)])
        raise BoltError(f"page {root}: its tree is deeper than {MAX_DEPTH} pages")

    def kind(self, level: Integers) -> int:
        """LEAF or BRANCH: what the pages of one level of a tree are, all of them.  Raises BoltError.

        No level names more pages than the file has, unless the tree refers to a page twice: this bounds every
        walk.
        """
        if len(level) > self.high_water:
            raise BoltError(f"page {int(level[0])} and those beside it refer to a page twice")
        leaves, children = 0, 0
        for pages in self.page_batches(level):
            leaves += int(pages.is_leaf.sum())
            children += int(pages.counts[~pages.is_leaf].sum())
        if leaves == len(level):
            return LEAF
        if leaves:
            raise BoltError(f"page {int(level[0])} and those beside it are leaves and branches at one depth")
        if children > self.high_water:
            raise BoltError(f"page {int(level[0])} and those beside it refer to a page twice")
        return BRANCH

    def page_batches(self, ids: Integers) -> Iterator[Pages]:
        """`ids` in order, in parts that have at most BATCH_ELEMENTS elements (or are one page)."""
        for at in range(0, len(ids), PAGE_BATCH):
            pages = self.pages(ids[at : at + PAGE_BATCH])
            begin, done = 0, 0
            ends = np.cumsum(pages.counts)
            while begin < len(pages.ids):
                end = max(int(np.searchsorted(ends, done + BATCH_ELEMENTS, "right")), begin + 1)
                yield pages[begin:end]
                done, begin = int(ends[end - 1]), end

    def batches(self, leaf_ids: Integers) -> Iterator[Elements]:
        """The elements of `leaf_ids` in order, at most BATCH_ELEMENTS (or one page) at a time."""
        for pages in self.page_batches(leaf_ids):
            yield self.elements(pages)

    def key_words(self, keys: Integers, ends: Integers, words: int) -> NDArray[np.uint64]:
        """The first `words` * 8 bytes of each key as big-endian numbers, zero-padded: a (words, n) array.

        Comparing these arrays, then the lengths, is comparing the keys, where no key is longer.
        """
        out = np.empty((words, len(keys)), np.uint64)
        sizes = ends - keys
        shortest = int(sizes.min()) if len(sizes) else 0
        inside = not len(keys) or int(keys.max()) + 8 * words <= self.size
        for word in range(words):
            at = keys + 8 * word
            if inside:
                value = self._any_u64[at].astype(np.uint64)
            else:  # near the end of the file: read the last eight bytes and shift what is wanted to the front
                beyond = np.clip(at - (self.size - 8), 0, 8)
                value = self._any_u64[np.minimum(at, self.size - 8)].astype(np.uint64)
                value = np.where(beyond < 8, value << (8 * np.minimum(beyond, 7)).astype(np.uint64), 0)
            if shortest < 8 * (word + 1):
                missing = np.clip(8 * (word + 1) - sizes, 0, 8)
                bits = (8 * np.minimum(missing, 7)).astype(np.uint64)
                value = value >> bits << bits
                if shortest <= 8 * word:
                    value[missing == 8] = 0
            out[word] = value
        return out


class PageUse:
    """Which pages a walk has met.  Memory: 5 bytes per page of the file."""

    def __init__(self, high_water: int, page_size: int) -> None:
        self._page_size = page_size
        self._begun = np.zeros(high_water, np.bool_)
        self._edges = np.zeros(high_water + 1, np.int32)

    def add(self, pages: Pages) -> None:
        """Count each page and its overflow pages.  Raises BoltError for one met before, so that every walk
        ends.
        """
        ids = np.sort(pages.ids)
        again = self._begun[ids]
        again[1:] |= ids[1:] == ids[:-1]
        if again.any():
            raise BoltError(f"page {int(ids[again][0])} is referred to twice")
        self._begun[ids] = True
        np.add.at(self._edges, pages.ids, 1)
        np.add.at(self._edges, pages.ends // self._page_size, -1)

    def met(self) -> NDArray[np.bool_]:
        """For each page, whether it is in use.  Raises BoltError when one belongs to two."""
        times = np.cumsum(self._edges[:-1])
        twice = np.flatnonzero(times > 1)
        if len(twice):
            raise BoltError(f"page {int(twice[0])} is referred to twice")
        return times > 0


def _element_offsets(pages: Pages) -> tuple[Integers, Integers]:
    """(index of the page, offset of the element) for every element of `pages`."""
    page = np.repeat(np.arange(len(pages.ids)), pages.counts)
    first = np.cumsum(pages.counts) - pages.counts
    ordinal = np.arange(len(page)) - first[page]
    return page, pages.starts[page] + HEADER_SIZE + ordinal * ELEMENT_SIZE


def _within(pages: Pages, page: Integers, at: Integers, keys: Integers, ends: Integers) -> None:
    wrong = (keys < at + ELEMENT_SIZE) | (ends > pages.ends[page])
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise BoltError(f"page {int(pages.ids[page[index]])}: an element reaches outside its page")
