"""Reading a bbolt file: an ordered walk over a memory map that trusts no length.

etcd and its tools die of SIGBUS on a file shorter than its meta page says, and of a panic on a bad element;
here both are a BoltError that names the page.
"""

from __future__ import annotations

import mmap
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.bolt.layout import (
    BRANCH,
    BRANCH_ELEMENT,
    BUCKET_ELEMENT,
    BUCKET_HEADER,
    BUCKET_HEADER_SIZE,
    ELEMENT_SIZE,
    HEADER_SIZE,
    LEAF,
    LEAF_ELEMENT,
    MAX_DEPTH,
    MAX_PAGE_SIZE,
    META_SIZE,
    MIN_PAGE_SIZE,
    PAGE_HEADER,
    Meta,
    newest_meta,
)
from rootcellar.errors import BoltError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

Buffer = mmap.mmap | bytes


@dataclass(frozen=True, slots=True)
class Node:
    """One branch or leaf page, wherever its bytes lie.  `end` is where its last overflow page ends."""

    buffer: Buffer
    page_id: int
    start: int
    end: int
    is_leaf: bool
    count: int

    def leaf_element(self, index: int) -> tuple[int, int, int, int]:
        """(flags, key start, value start, value end) of element `index`, as offsets into `buffer`."""
        at = self.start + HEADER_SIZE + index * ELEMENT_SIZE
        flags, position, key_size, value_size = LEAF_ELEMENT.unpack_from(self.buffer, at)
        key = at + position
        value = key + key_size
        end = value + value_size
        if position < ELEMENT_SIZE or end > self.end:
            raise BoltError(f"page {self.page_id}: element {index} reaches outside its page")
        return flags, key, value, end

    def leaf_elements(self, first: int = 0) -> Iterator[tuple[int, int, int, int]]:
        """What `leaf_element` says of all elements from `first` on.

        Raises BoltError also when elements overlap: a page then holds no more than its own bytes.
        """
        room = self.end - self.start - HEADER_SIZE
        for index in range(first, self.count):
            flags, key, value, end = self.leaf_element(index)
            room -= ELEMENT_SIZE + end - key
            if room < 0:
                raise BoltError(f"page {self.page_id}: its elements overlap")
            yield flags, key, value, end

    def branch_elements(self) -> Iterator[tuple[bytes, int]]:
        """What `branch_element` says of all elements.  Raises BoltError as `leaf_elements` does."""
        room = self.end - self.start - HEADER_SIZE
        for index in range(self.count):
            key, child = self.branch_element(index)
            room -= ELEMENT_SIZE + len(key)
            if room < 0:
                raise BoltError(f"page {self.page_id}: its elements overlap")
            yield key, child

    def branch_element(self, index: int) -> tuple[bytes, int]:
        """(first key, child page id) of element `index`."""
        at = self.start + HEADER_SIZE + index * ELEMENT_SIZE
        position, key_size, child = BRANCH_ELEMENT.unpack_from(self.buffer, at)
        key = at + position
        if position < ELEMENT_SIZE or key + key_size > self.end:
            raise BoltError(f"page {self.page_id}: element {index} reaches outside its page")
        return self.buffer[key : key + key_size], child

    def key(self, index: int) -> bytes:
        """The key of element `index`, leaf or branch."""
        if not self.is_leaf:
            return self.branch_element(index)[0]
        _, key, value, _ = self.leaf_element(index)
        return self.buffer[key:value]

    def find(self, key: bytes) -> int:
        """Index of the first element whose key is not below `key` (`count` when there is none)."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low


class Bucket:
    """The rows of one bucket in key order.  Valid while its file is open."""

    def __init__(self, file: BoltFile, value: bytes) -> None:
        if len(value) < BUCKET_HEADER_SIZE:
            raise BoltError("bucket header is cut short")
        self._file = file
        self.root: int
        self.sequence: int
        self.root, self.sequence = BUCKET_HEADER.unpack_from(value)
        self._inline = value[BUCKET_HEADER_SIZE:] if self.root == 0 else b""

    @property
    def is_inline(self) -> bool:
        return self.root == 0

    def root_node(self) -> Node:
        """The bucket's topmost node.  Raises BoltError."""
        if self.root:
            return self._file.node(self.root)
        node = node_at(self._inline, 0, len(self._inline), 0, expected_id=None)
        if not node.is_leaf:
            raise BoltError("the page of an inline bucket is a branch")
        return node

    def elements(self, start: bytes = b"") -> Iterator[tuple[int, bytes, bytes]]:
        """(flags, key, value) from the first key not below `start`.  Raises BoltError."""
        for node in self.leaves(start):
            buffer = node.buffer
            first = node.find(start) if start else 0
            for flags, key, value, end in node.leaf_elements(first):
                yield flags, buffer[key:value], buffer[value:end]

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of the rows that are not nested buckets."""
        for flags, key, value in self.elements(start):
            if not flags & BUCKET_ELEMENT:
                yield key, value

    def buckets(self) -> Iterator[tuple[bytes, Bucket]]:
        """The nested buckets by name."""
        for flags, key, value in self.elements():
            if flags & BUCKET_ELEMENT:
                yield key, Bucket(self._file, value)

    def get(self, key: bytes) -> bytes | None:
        """The value under `key`, or None."""
        for found, value in self.items(key):
            return value if found == key else None
        return None

    def leaves(self, start: bytes = b"") -> Iterator[Node]:
        """Leaf nodes in key order, from the one that would hold `start`.  Raises BoltError.

        A damaged tree may hang together in a ring or share pages; a walk therefore never visits more pages
        than the file has.
        """
        budget = self._file.size
        node = self.root_node()
        path: list[tuple[Node, int]] = []
        bound = start
        while True:
            if node.is_leaf:
                yield node
                bound = b""
                while path and path[-1][1] == path[-1][0].count:
                    path.pop()
                if not path:
                    return
                parent, index = path[-1]
            else:
                if node.count == 0:
                    raise BoltError(f"page {node.page_id}: branch page without children")
                if len(path) == MAX_DEPTH:
                    raise BoltError(f"page {node.page_id}: the tree is deeper than {MAX_DEPTH} pages")
                parent, index = node, _child_for(node, bound)
                path.append((node, index))
            path[-1] = (parent, index + 1)
            node = self._file.node(parent.branch_element(index)[1])
            budget -= node.end - node.start
            if budget < 0:
                raise BoltError(f"page {node.page_id}: the tree refers to a page twice")

    def last(self) -> tuple[bytes, bytes] | None:
        """The greatest row, or None when the bucket is empty.  Raises BoltError."""
        node = self.root_node()
        for depth in range(MAX_DEPTH):
            if node.count == 0:
                if node.is_leaf and depth == 0:
                    return None
                raise BoltError(f"page {node.page_id} is empty")
            if node.is_leaf:
                _, key, value, end = node.leaf_element(node.count - 1)
                return node.buffer[key:value], node.buffer[value:end]
            node = self._file.node(node.branch_element(node.count - 1)[1])
        raise BoltError(f"page {node.page_id}: the tree is deeper than {MAX_DEPTH} pages")


def _child_for(node: Node, key: bytes) -> int:
    """Index of the child of a branch under which `key` belongs."""
    if not key:
        return 0
    index = node.find(key)
    if index < node.count and node.key(index) == key:
        return index
    return max(index - 1, 0)


def node_at(buffer: Buffer, start: int, limit: int, page_id: int, *, expected_id: int | None) -> Node:
    """The branch or leaf page in `buffer` from `start` to `limit`.  Raises BoltError."""
    if start + HEADER_SIZE > limit:
        raise BoltError(f"page {page_id} lies outside the file")
    found_id, flags, count, _ = PAGE_HEADER.unpack_from(buffer, start)
    if expected_id is not None and found_id != expected_id:
        raise BoltError(f"page {page_id} says that it is page {found_id}")
    if flags not in (BRANCH, LEAF):
        raise BoltError(f"page {page_id} has flags {flags:#06x}: neither branch nor leaf")
    if start + HEADER_SIZE + count * ELEMENT_SIZE > limit:
        raise BoltError(f"page {page_id} states {count} elements, more than it holds")
    return Node(buffer, page_id, start, limit, flags == LEAF, count)


class BoltFile(AbstractContextManager["BoltFile"]):
    """A bbolt file opened for reading.  Pages past the high-water mark (a snapshot's hash tail, say) do not
    count.
    """

    def __init__(self, path: Path) -> None:
        """Map `path`.  Raises BoltError (damaged meta pages, a file shorter than its meta page says),
        OSError.
        """
        self.path = path
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < META_SIZE:
                raise BoltError(f"{path.name} has {size} bytes: too short for a bbolt file")
            self.buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        try:
            self.meta = find_meta(self.buffer)
        except BoltError:
            self.buffer.close()
            raise
        needed = self.meta.high_water * self.meta.page_size
        if size < needed:
            self.buffer.close()
            raise BoltError(
                f"{path.name} is cut short: {size} bytes of {needed}",
                hint="the copy or the download was not complete; take it again",
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file.  NumPy views that still look at it keep the map alive until they are gone."""
        try:
            self.buffer.close()
        except BufferError:  # exported views: the map goes with the last of them
            return

    @property
    def size(self) -> int:
        """Bytes up to the high-water mark."""
        return self.meta.high_water * self.meta.page_size

    def node(self, page_id: int) -> Node:
        """The branch or leaf page `page_id`.  Raises BoltError."""
        meta = self.meta
        if not 2 <= page_id < meta.high_water:
            raise BoltError(f"page {page_id} lies outside the {meta.high_water} pages in use")
        start = page_id * meta.page_size
        overflow = int.from_bytes(self.buffer[start + 12 : start + 16], "little")
        if page_id + overflow >= meta.high_water:
            raise BoltError(f"page {page_id} states {overflow} overflow pages, more than the file has")
        return node_at(
            self.buffer, start, start + (overflow + 1) * meta.page_size, page_id, expected_id=page_id
        )

    def root(self) -> Bucket:
        """The root bucket, whose rows are the top-level buckets."""
        return Bucket(self, BUCKET_HEADER.pack(self.meta.root, 0))

    def bucket(self, name: bytes) -> Bucket | None:
        """The top-level bucket `name`, or None."""
        for flags, key, value in self.root().elements(name):
            if key != name:
                return None
            if not flags & BUCKET_ELEMENT:
                raise BoltError(f"{name!r} is a row, not a bucket")
            return Bucket(self, value)
        return None


def find_meta(buffer: Buffer) -> Meta:
    """The meta page in force.  When page 0 is damaged, page 1 is looked for at every possible page size."""
    candidates: list[Meta | BoltError] = [_try_meta(buffer, 0)]
    first = candidates[0]
    if isinstance(first, Meta):
        candidates.append(_try_meta(buffer, first.page_size))
        return newest_meta(candidates)
    size = MIN_PAGE_SIZE
    while size <= MAX_PAGE_SIZE and size + META_SIZE <= len(buffer):
        second = _try_meta(buffer, size)
        if isinstance(second, Meta) and second.page_size == size:
            return second
        size *= 2
    candidates.append(BoltError("not found at any page size"))
    return newest_meta(candidates)


def _try_meta(buffer: Buffer, at: int) -> Meta | BoltError:
    try:
        return Meta.parse(buffer[at : at + META_SIZE])
    except BoltError as error:
        return error
