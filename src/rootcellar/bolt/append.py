"""Appending to a bbolt file and committing, without bbolt.

bbolt is copy-on-write: a transaction writes new pages past what the current meta page describes, then one
meta page.  So rows greater than all others in a bucket become a run of leaf pages behind its right edge, new
branch pages up that edge, and a new root page; nothing that is there is touched.  Pages left behind are found
free at etcd's next open, because no free list is written.

Order of writes in `commit`: pages, fsync, the meta page of the next transaction, fsync.  A crash before the
meta page is whole leaves the previous transaction in force, since the other meta page still describes it.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from rootcellar.bolt import leaves
from rootcellar.bolt.file import BoltFile, Bucket
from rootcellar.bolt.layout import (
    BRANCH,
    BRANCH_ELEMENT,
    BUCKET_ELEMENT,
    BUCKET_HEADER,
    ELEMENT_SIZE,
    HEADER_SIZE,
    LEAF,
    LEAF_ELEMENT,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_VALUE_SIZE,
    PAGE_HEADER,
    Meta,
)
from rootcellar.errors import BoltError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rootcellar.bolt.leaves import Leaves

OPEN_PAGES = 64
"""Rows are gathered up to this many pages before leaves are cut from them."""

Child = tuple[bytes, int]
"""First key below a page, and the page's id."""


class Transaction(AbstractContextManager["Transaction"]):
    """One read-write transaction on one file.  Nothing is visible before `commit`; leaving without it drops
    all.
    """

    def __init__(self, path: Path) -> None:
        """Open `path`.  Raises BoltError when it cannot be read as a bbolt file, OSError."""
        self.path = path
        with ExitStack() as opened:
            self._reader = opened.enter_context(BoltFile(path))
            self._file: BinaryIO = opened.enter_context(path.open("r+b", buffering=0))
            self._buckets = dict(_bucket_values(self._reader))
            opened.pop_all()
        self.meta: Meta = self._reader.meta
        self.high_water = self.meta.high_water
        self._file.seek(self.high_water * self.meta.page_size)
        self._edges: dict[bytes, RightEdge] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._reader.close()

    @property
    def reader(self) -> BoltFile:
        """The file as it was when the transaction began."""
        return self._reader

    def write_pages(self, image: bytes | bytearray) -> int:
        """Append whole pages; the id of the first one.  Raises OSError."""
        page_id = self.high_water
        view = memoryview(image)
        while view:
            view = view[self._file.write(view) :]
        self.high_water += len(image) // self.meta.page_size
        return page_id

    def edge(self, name: bytes) -> RightEdge:
        """The right edge of top-level bucket `name`, which is created when missing."""
        if name not in self._edges:
            self._edges[name] = RightEdge(self, self._buckets.get(name))
        return self._edges[name]

    def replace(self, name: bytes, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Make `rows` the whole content of top-level bucket `name`.  Sorted here; held in memory."""
        ordered = sorted(rows)
        edge = RightEdge(self, None)
        edge.append([key for key, _ in ordered], [value for _, value in ordered])
        self._edges[name] = edge

    def adopt(self, name: bytes, children: Iterable[Child]) -> RightEdge:
        """Give bucket `name` a new tree over leaf pages that are in the file already, in key order.

        Raises BoltError.
        """
        edge = RightEdge(self, None)
        edge.adopt(children)
        self._edges[name] = edge
        return edge

    def overwrite_leaf(self, page_id: int, pages: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Put `rows`, fewer than before, into a leaf page that takes `pages` pages, where it lies.

        The only write that is not copy-on-write: commit with `both_metas`, as the old state is gone.
        """
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        page_size = self.meta.page_size
        image = _leaf_page(page_id, keys, values, flags=0, page_size=page_size)
        if len(image) > pages * page_size:
            raise BoltError(f"page {page_id}: {len(rows)} rows do not fit where more were")
        header = PAGE_HEADER.pack(page_id, LEAF, len(rows), pages - 1)
        image = (header + image[HEADER_SIZE:]).ljust(pages * page_size, b"\0")
        os.pwrite(self._file.fileno(), image, page_id * page_size)

    def drop(self, name: bytes) -> None:
        """Remove top-level bucket `name`, if it is there."""
        self._buckets.pop(name, None)
        self._edges.pop(name, None)

    def commit(self, *, both_metas: bool = False) -> Meta:
        """Make the transaction durable.  Raises OSError.

        `both_metas` also rewrites the other meta page to describe the new root (one txid lower), as a
        snapshot does: for a file nobody may fall back from, because pages of the old state were changed in
        place.
        """
        for name, edge in self._edges.items():
            self._buckets[name] = edge.finish()
        root = self._write_root()
        meta = self.meta.next(root=root, high_water=self.high_water)
        os.fsync(self._file.fileno())
        # A crash here leaves unreferenced pages past the old high-water mark: the old state, unharmed.
        self._write_meta(meta, meta.txid % 2)
        os.fsync(self._file.fileno())
        if both_metas:
            older = Meta(meta.page_size, meta.root, meta.freelist, meta.high_water, meta.txid - 1)
            self._write_meta(older, older.txid % 2)
            os.fsync(self._file.fileno())
        self.meta = meta
        self._edges.clear()
        return meta

    def _write_meta(self, meta: Meta, page_id: int) -> None:
        os.pwrite(self._file.fileno(), meta.page(page_id), page_id * meta.page_size)

    def _write_root(self) -> int:
        names = sorted(self._buckets)
        values = [self._buckets[name] for name in names]
        page = _leaf_page(self.high_water, names, values, flags=BUCKET_ELEMENT, page_size=self.meta.page_size)
        return self.write_pages(page)


class RightEdge:
    """The last page of each level of one bucket's tree, open for appending.

    Memory: one page per level, plus the rows of at most OPEN_PAGES pages.
    """

    def __init__(self, transaction: Transaction, value: bytes | None) -> None:
        self._transaction = transaction
        self._page_size = transaction.meta.page_size
        self._levels: list[_OpenBranch] = []
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._open_size = HEADER_SIZE
        self._last_key = b""
        if value is not None:
            self._load(Bucket(transaction.reader, value))

    def append(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Append rows in order.  Raises BoltError unless they ascend and follow all rows before."""
        for key, value in zip(keys, values, strict=True):
            self._check_order(key)
            self._last_key = key
            self._keys.append(key)
            self._values.append(value)
            self._open_size += ELEMENT_SIZE + len(key) + len(value)
            if self._open_size > OPEN_PAGES * self._page_size:
                self._flush_rows(keep_last_leaf=True)

    def append_leaves(self, run: Leaves, last_key: bytes) -> None:
        """Append pages made by `leaves.build` for this page size, whose last row has `last_key`."""
        if not run.first_keys:
            return
        self._check_order(run.first_keys[0])
        self._flush_rows()
        self._write_leaves(run, len(run.first_keys))
        self._last_key = last_key

    def adopt(self, children: Iterable[Child]) -> None:
        """Append leaf pages that are in the file already.  Raises BoltError unless they ascend."""
        last: int | None = None
        for child in children:
            self._check_order(child[0])
            self._push(0, child)
            self._last_key, last = child
        if last is not None:
            node = self._transaction.reader.node(last)
            self._last_key = max(self._last_key, node.key(node.count - 1) if node.count else b"")

    def finish(self) -> bytes:
        """Write what is open; the bucket's value for the root page."""
        if (
            not self._levels and self._open_size <= self._page_size // 4
        ):  # bbolt's own rule for inline buckets
            inline = _leaf_page(0, self._keys, self._values, flags=0, page_size=1)
            return BUCKET_HEADER.pack(0, 0) + inline
        self._flush_rows()
        level = 0
        while level < len(self._levels):
            children = self._levels[level].children
            if level == len(self._levels) - 1 and len(children) == 1:
                return BUCKET_HEADER.pack(children[0][1], 0)
            self._close_branch(level)
            level += 1
        raise BoltError("the tree has no root")

    def _check_order(self, key: bytes) -> None:
        if key <= self._last_key:
            raise BoltError(
                f"row {key.hex()} does not follow {self._last_key.hex()}: only appending is possible"
            )

    def _load(self, bucket: Bucket) -> None:
        """Open the right edge of an existing bucket: its branches, and its last leaf if that has room."""
        node = bucket.root_node()
        path: list[_OpenBranch] = []
        while not node.is_leaf:
            if len(path) == MAX_DEPTH or node.count == 0:
                raise BoltError(f"page {node.page_id}: the tree has no right edge")
            path.append(_OpenBranch(list(node.branch_elements())))
            # The last child comes back, under its new page id, when the level below it is closed.
            page_id = path[-1].pop()
            node = self._transaction.reader.node(page_id)
        self._levels = path[::-1]
        rows = list(node.leaf_elements())
        if any(flags & BUCKET_ELEMENT for flags, *_ in rows):
            raise BoltError("a bucket that holds buckets cannot be appended to")
        keys = [node.buffer[key:value] for _, key, value, _ in rows]
        self._last_key = keys[-1] if keys else b""
        used = sum(ELEMENT_SIZE + end - key for _, key, _, end in rows)
        if bucket.is_inline or HEADER_SIZE + used < self._page_size:
            # The leaf is written again with the rows that follow, so that many small commits still fill
            # pages.
            self._keys = keys
            self._values = [node.buffer[value:end] for _, _, value, end in rows]
            self._open_size += used
        else:
            self._push(0, (keys[0], node.page_id))

    def _flush_rows(self, *, keep_last_leaf: bool = False) -> None:
        if not self._keys:
            return
        run = leaves.build(self._keys, self._values, self._page_size)
        whole = len(run.first_keys)
        if keep_last_leaf and whole > 1:
            whole -= 1
        kept = run.bounds[whole]
        self._keys, self._values = self._keys[kept:], self._values[kept:]
        sizes = (ELEMENT_SIZE + len(k) + len(v) for k, v in zip(self._keys, self._values, strict=True))
        self._open_size = HEADER_SIZE + sum(sizes)
        self._write_leaves(run, whole)

    def _write_leaves(self, run: Leaves, count: int) -> None:
        """Write the first `count` leaves of `run` and name them in the branch above."""
        ends = np.cumsum(run.pages[:count])
        starts = ends - run.pages[:count]
        image = bytearray(memoryview(run.image)[: int(ends[-1]) * self._page_size])
        ids = self._transaction.high_water + starts
        np.frombuffer(image, "<u8")[starts * (self._page_size // 8)] = ids
        self._transaction.write_pages(image)
        for child in zip(run.first_keys[:count], ids.tolist(), strict=True):
            self._push(0, child)

    def _push(self, level: int, child: Child) -> None:
        if level == len(self._levels):
            self._levels.append(_OpenBranch([]))
        if not self._levels[level].has_room(child, self._page_size):
            self._close_branch(level)
        self._levels[level].push(child)

    def _close_branch(self, level: int) -> None:
        children = self._levels[level].children
        if children:
            page = _branch_page(self._transaction.high_water, children, self._page_size)
            page_id = self._transaction.write_pages(page)
            self._levels[level] = _OpenBranch([])
            self._push(level + 1, (children[0][0], page_id))


class _OpenBranch:
    """The children of a branch page that is not written yet."""

    def __init__(self, children: list[Child]) -> None:
        self.children = children
        self._size = HEADER_SIZE + sum(ELEMENT_SIZE + len(key) for key, _ in children)

    def has_room(self, child: Child, page_size: int) -> bool:
        return len(self.children) < 2 or self._size + ELEMENT_SIZE + len(child[0]) <= page_size

    def push(self, child: Child) -> None:
        self.children.append(child)
        self._size += ELEMENT_SIZE + len(child[0])

    def pop(self) -> int:
        """Remove the last child; its page id."""
        key, page_id = self.children.pop()
        self._size -= ELEMENT_SIZE + len(key)
        return page_id


def _bucket_values(reader: BoltFile) -> Iterable[tuple[bytes, bytes]]:
    for flags, name, value in reader.root().elements():
        if not flags & BUCKET_ELEMENT:
            raise BoltError(f"{name!r} lies in the root as a row, not as a bucket")
        yield name, value


def _leaf_page(
    page_id: int, keys: Sequence[bytes], values: Sequence[bytes], *, flags: int, page_size: int
) -> bytes:
    """One leaf page, with overflow as needed: the root, or (page size 1: not padded) an inline page."""
    if len(keys) > MAX_ELEMENTS or sum(map(len, values)) > MAX_VALUE_SIZE:
        raise BoltError(f"page {page_id}: {len(keys)} rows do not fit into one page")
    elements, data = bytearray(), bytearray()
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        position = ELEMENT_SIZE * (len(keys) - index) + len(data)
        elements += LEAF_ELEMENT.pack(flags, position, len(key), len(value))
        data += key + value
    size = HEADER_SIZE + len(elements) + len(data)
    pages = -(-size // page_size)
    header = PAGE_HEADER.pack(page_id, LEAF, len(keys), pages - 1 if page_size > 1 else 0)
    return (header + elements + data).ljust(pages * page_size, b"\0")


def _branch_page(page_id: int, children: Sequence[Child], page_size: int) -> bytes:
    elements, data = bytearray(), bytearray()
    for index, (key, child) in enumerate(children):
        elements += BRANCH_ELEMENT.pack(ELEMENT_SIZE * (len(children) - index) + len(data), len(key), child)
        data += key
    size = HEADER_SIZE + len(elements) + len(data)
    pages = -(-size // page_size)
    header = PAGE_HEADER.pack(page_id, BRANCH, len(children), pages - 1)
    return (header + elements + data).ljust(pages * page_size, b"\0")
