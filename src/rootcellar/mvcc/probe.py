"""What a snapshot holds, learnt while its bytes stream past: nothing is kept on disk and little in memory.

A snapshot stream is a bbolt file in page order, not in key order, so which leaf is the last one is known only
at the end.  Kept until then: for every page of the `key` bucket one number (the last revision of a leaf, the
last child of a branch: 8 bytes), and whole the pages that hold buckets and the few of the small ones.  Pages
that nothing refers to any more pass by as well; they are kept like the others and never looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rootcellar.bolt.file import Node, find_meta, node_at
from rootcellar.bolt.layout import (
    BRANCH,
    BUCKET_ELEMENT,
    BUCKET_HEADER,
    BUCKET_HEADER_SIZE,
    ELEMENT_SIZE,
    HEADER_SIZE,
    LEAF,
    MAX_DEPTH,
    META_SIZE,
    Meta,
)
from rootcellar.errors import BoltError, RecordError
from rootcellar.mvcc.meta import FINISHED_COMPACTION, SCHEDULED_COMPACTION, decode_u64, decode_version
from rootcellar.mvcc.revision import (
    FIRST,
    KEY_BUCKET,
    NEVER_COMPACTED,
    Revision,
    decode_revision_value,
    decode_row_key,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 20
KEPT_BYTES = 24 << 20
"""How much is kept of the small buckets' pages, current and left behind, and as much of pages that hold
buckets. Beyond it the answer is `None`s.
"""

_ENCRYPTED = re.compile(rb"k8s:enc:")  # twice as fast as bytes.find
_VALUE = b"\x2a"  # the tag before a value and its length
_OVERLAP = 64
_UNKNOWN = np.iinfo(np.int64).min
_MAX_REVISION = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What the stream said.  `None` where the small buckets were too large to keep (never so for a real
    etcd).
    """

    size: int
    revision: Revision
    compact_revision: Revision | None
    auth_revision: int | None
    cluster_version: str | None
    storage_version: str | None
    is_kubernetes: bool
    encrypted_at_rest: bool


class SnapshotProbe:
    """Feed it the database bytes of a snapshot in order (any chunk sizes; the hash tail may follow)."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._wanted = BLOCK + _OVERLAP
        self._base = 0  # file offset of the first byte of the block at hand
        self._meta: Meta | None = None
        self._edges = np.full(1 << 12, _UNKNOWN, np.int64)
        self._kept: dict[int, bytes] = {}
        self._kept_bytes = {False: 0, True: 0}  # of small buckets, of pages that hold buckets
        self._headers_due: dict[int, list[int]] = {}
        self._keys_due: dict[int, list[int]] = {}
        self._open: list[tuple[int, int, bytearray]] = []
        self._is_kubernetes = False
        self._encrypted = False
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes.  Raises BoltError when the first ones are no bbolt file."""
        self._pending.append(chunk)
        self._pending_size += len(chunk)
        self._size += len(chunk)
        if self._pending_size >= self._wanted:
            self._drain(final=False)

    def result(self) -> SnapshotFacts:
        """The facts, once everything was fed.  Raises BoltError, RecordError when they cannot be found."""
        self._drain(final=True)
        assert self._meta is not None  # noqa: S101  # _drain has raised otherwise
        size = self._meta.high_water * self._meta.page_size
        if self._size < size:
            raise BoltError(f"the stream is cut short: {self._size} bytes of {size}")
        buckets = self._rows(self._meta.root)
        if buckets is None:
            raise BoltError(
                "the root page did not pass by", hint="take the snapshot again; if this repeats, report it"
            )
        meta = self._small(buckets, b"meta")
        auth = self._small(buckets, b"auth")
        cluster = self._small(buckets, b"cluster")
        compactions = [NEVER_COMPACTED]
        if meta is not None:
            found = (meta.get(name) for name in (FINISHED_COMPACTION, SCHEDULED_COMPACTION))
            compactions += [decode_revision_value(value) for value in found if value is not None]
        return SnapshotFacts(
            size=size,
            revision=max(self._last_revision(buckets), *compactions),
            compact_revision=None if meta is None else max(compactions),
            auth_revision=None if auth is None else decode_u64(auth.get(b"authRevision")),
            cluster_version=decode_version((cluster or {}).get(b"clusterVersion")),
            storage_version=decode_version((meta or {}).get(b"storageVersion")),
            is_kubernetes=self._is_kubernetes,
            encrypted_at_rest=self._encrypted,
        )

    # --- while it streams -----------------------------------------------------------------------------------

    def _drain(self, *, final: bool) -> None:
        block = b"".join(self._pending)
        self._pending = [block]
        if self._meta is None:
            meta = find_meta(block)
            if not final and meta.page_size + META_SIZE > len(block):  # the other one may be the newer
                self._wanted = meta.page_size + META_SIZE
                return
            self._meta = meta
            self._wanted = max(BLOCK, meta.page_size) + _OVERLAP
        usable = len(block) if final else len(block) - _OVERLAP
        usable -= usable % self._meta.page_size
        if usable > 0:
            self._look(block, usable, self._meta.page_size)
            self._base += usable
            self._pending = [block[usable:]]
        self._pending_size = len(self._pending[0])

    def _look(self, block: bytes, usable: int, page_size: int) -> None:
        """Take what is wanted from `block`, of which `usable` bytes are new and the rest comes again."""
        self._continue_open(block, usable)
        starts = np.arange(0, usable, page_size)
        ids = starts // page_size + self._base // page_size
        words = _Words(block)
        flags, counts = words.u16[(starts + 8) >> 1], words.u16[(starts + 10) >> 1].astype(np.int64)
        own = (words.u64[starts >> 3] == ids.astype(np.uint64)) & (ids >= 2)
        own &= ((flags == BRANCH) & (counts > 0)) | (flags == LEAF)
        if int(ids[-1]) >= len(self._edges):
            room = max(2 * len(self._edges), int(ids[-1]) + 1)
            self._edges = np.concatenate([self._edges, np.full(room - len(self._edges), _UNKNOWN, np.int64)])
        starts, ids, counts, leaf = starts[own], ids[own], counts[own], flags[own] == LEAF
        of_keys = self._of_key_bucket(words, starts, leaf) & (counts > 0)
        if not self._is_kubernetes:
            self._is_kubernetes = _names_kubernetes(block, words, starts[of_keys & leaf][:64])
        if self._is_kubernetes and not self._encrypted:
            self._encrypted = _holds_encrypted(block)
        for start, page_id in zip(starts[~of_keys].tolist(), ids[~of_keys].tolist(), strict=True):
            self._keep(block, start, usable, page_id)
        last = starts + HEADER_SIZE + (counts - 1) * ELEMENT_SIZE
        branches = of_keys & ~leaf & (last + ELEMENT_SIZE <= len(block))
        children = np.minimum(words.u64[(last[branches] + 8) >> 3], np.uint64(1 << 62)).astype(np.int64)
        self._edges[ids[branches]] = -1 - children
        self._last_keys(words, last[of_keys & leaf], ids[of_keys & leaf])
        self._resolve(block, usable)

    def _of_key_bucket(
        self, words: _Words, starts: NDArray[np.int64], leaf: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which of these pages have a first key that looks like a revision."""
        at = (starts + HEADER_SIZE) >> 2
        position = np.where(leaf, words.u32[at + 1], words.u32[at]).astype(np.int64)
        size = np.where(leaf, words.u32[at + 2], words.u32[at + 1])
        separator = starts + HEADER_SIZE + position + 8
        beyond = separator >= len(words.u8)
        looks = words.u8[np.where(beyond, 0, separator)] == ord("_")
        found: NDArray[np.bool_] = ((size == 17) | (size == 18)) & (looks | beyond)
        return found

    def _last_keys(self, words: _Words, last: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        """Take the last revision of leaf pages, or note where it will pass by."""
        here = last + ELEMENT_SIZE <= len(words.u8)
        for offset, page_id in zip(last[~here].tolist(), ids[~here].tolist(), strict=True):
            self._headers_due.setdefault(self._base + offset, []).append(page_id)
        last, ids = last[here], ids[here]
        keys = last + words.u32[(last + 4) >> 2].astype(np.int64)
        here = keys + 8 <= len(words.u8)
        for offset, page_id in zip(keys[~here].tolist(), ids[~here].tolist(), strict=True):
            self._keys_due.setdefault(self._base + offset, []).append(page_id)
        self._edges[ids[here]] = words.any_u64[keys[here]].astype(np.int64) & _MAX_REVISION

    def _keep(self, block: bytes, start: int, usable: int, page_id: int) -> None:
        """Keep one page of the small buckets, as far as it is here."""
        assert self._meta is not None  # noqa: S101  # _drain has parsed it
        overflow = int.from_bytes(block[start + 12 : start + 16], "little")
        length = (overflow + 1) * self._meta.page_size
        element_flags = int.from_bytes(block[start + HEADER_SIZE : start + HEADER_SIZE + 4], "little")
        is_leaf = block[start + 8] == LEAF
        holds_buckets = is_leaf and bool(element_flags & BUCKET_ELEMENT)
        if self._kept_bytes[holds_buckets] + length > KEPT_BYTES:
            return
        self._kept_bytes[holds_buckets] += length
        if start + length <= usable:
            self._kept[page_id] = block[start : start + length]
        else:
            self._open.append((page_id, length, bytearray(block[start:usable])))

    def _continue_open(self, block: bytes, usable: int) -> None:
        """Pages of the small buckets that began in an earlier block."""
        still = []
        for page_id, length, data in self._open:
            data.extend(block[: min(length - len(data), usable)])
            if len(data) == length:
                self._kept[page_id] = bytes(data)
            else:
                still.append((page_id, length, data))
        self._open = still

    def _resolve(self, block: bytes, usable: int) -> None:
        """Last elements, then their keys, as far as they lie in this block."""
        end = self._base + usable
        for offset in [offset for offset in self._headers_due if offset < end]:
            at = offset - self._base
            position = int.from_bytes(block[at + 4 : at + 8], "little")
            self._keys_due.setdefault(offset + position, []).extend(self._headers_due.pop(offset))
        for offset in [offset for offset in self._keys_due if offset < end]:
            at = offset - self._base
            revision = int.from_bytes(block[at : at + 8], "big") & _MAX_REVISION
            for page_id in self._keys_due.pop(offset):
                self._edges[page_id] = revision

    # --- at the end -----------------------------------------------------------------------------------------

    def _rows(self, page_id: int) -> dict[bytes, bytes] | None:
        """The rows of the tree below a page; None when one of its pages was not kept.  Raises BoltError."""
        rows: dict[bytes, bytes] = {}
        seen: set[int] = set()
        waiting = [page_id]
        while waiting:
            page_id = waiting.pop()
            data = self._kept.get(page_id)
            if data is None:
                return None
            if page_id in seen:
                raise BoltError(f"page {page_id} is referred to twice")
            seen.add(page_id)
            node = node_at(data, 0, len(data), page_id, expected_id=page_id)
            if node.is_leaf:
                rows.update(_leaf_rows(node))
            else:
                waiting += [child for _, child in node.branch_elements()]
        return rows

    def _small(self, buckets: dict[bytes, bytes], name: bytes) -> dict[bytes, bytes] | None:
        value = buckets.get(name)
        if value is None:
            return {}
        root = _root_of(value)
        return self._rows(root) if root else _inline_rows(value)

    def _last_revision(self, buckets: dict[bytes, bytes]) -> Revision:
        value = buckets.get(KEY_BUCKET)
        if value is None:
            return FIRST
        page_id = _root_of(value)
        if not page_id:
            return max((decode_row_key(key).main for key in _inline_rows(value)), default=FIRST)
        for _ in range(MAX_DEPTH):
            edge = int(self._edges[page_id]) if page_id < len(self._edges) else _UNKNOWN
            if edge == _UNKNOWN:
                if self._rows(page_id) == {}:
                    return FIRST
                raise RecordError(f"page {page_id}, at the right edge of the key bucket, did not pass by")
            if edge >= 0:
                return Revision(edge)
            page_id = -1 - edge
        raise BoltError(f"the key bucket's tree is deeper than {MAX_DEPTH} pages")


class _Words:
    """A block as numbers of several sizes.  `any_u64[i]` is the big-endian one that begins at byte i."""

    def __init__(self, block: bytes) -> None:
        padded = block if len(block) % 8 == 0 else block + bytes(8 - len(block) % 8)
        self.u8 = np.frombuffer(block, np.uint8)
        self.u16 = np.frombuffer(padded, "<u2")
        self.u32 = np.frombuffer(padded, "<u4")
        self.u64 = np.frombuffer(padded, "<u8")
        self.any_u64: NDArray[np.uint64] = np.ndarray((max(len(block) - 7, 0),), ">u8", block, 0, (1,))


def _names_kubernetes(block: bytes, words: _Words, leaves: NDArray[np.int64]) -> bool:
    """Whether the first row of one of these leaf pages is about a key of Kubernetes."""
    for start in leaves.tolist():
        at = (start + HEADER_SIZE) >> 2
        value = start + HEADER_SIZE + int(words.u32[at + 1]) + int(words.u32[at + 2])
        if block.startswith(b"/registry/", value + 2):  # behind tag and length
            return True
    return False


def _holds_encrypted(block: bytes) -> bool:
    """Whether the value of some row begins as Kubernetes begins what it encrypts."""
    starts = (found.start() for found in _ENCRYPTED.finditer(block))
    return any(_VALUE in block[max(start - 6, 0) : start] for start in starts)


def _root_of(value: bytes) -> int:
    """The root page of a bucket, 0 for an inline one.  Raises BoltError."""
    if len(value) < BUCKET_HEADER_SIZE:
        raise BoltError("bucket header is cut short")
    root: int = BUCKET_HEADER.unpack_from(value)[0]
    return root


def _inline_rows(value: bytes) -> dict[bytes, bytes]:
    node = node_at(value, BUCKET_HEADER_SIZE, len(value), 0, expected_id=None)
    if not node.is_leaf:
        raise BoltError("the page of an inline bucket is a branch")
    return _leaf_rows(node)


def _leaf_rows(node: Node) -> dict[bytes, bytes]:
    return {node.buffer[key:value]: node.buffer[value:end] for _, key, value, end in node.leaf_elements()}
