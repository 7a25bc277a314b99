"""The bytes of a bbolt file: page headers, meta pages, elements.

All integers are little-endian, as on every machine etcd is released for except s390x.  Page `id` begins at
`id * page_size`.  Only meta pages carry a checksum, so a reader has to distrust every other number it meets.
Source: bbolt 1.3.12, 1.4.3 and 1.5.0 (one layout).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from rootcellar.errors import BoltError

MAGIC = 0xED0CDAED
VERSION = 2
NO_FREELIST = 0xFFFF_FFFF_FFFF_FFFF
"""Free-list page id of a file whose free pages are found at open, as etcd always leaves it."""

BRANCH, LEAF, META, FREELIST = 0x01, 0x02, 0x04, 0x10
BUCKET_ELEMENT = 0x01

HEADER_SIZE = 16
ELEMENT_SIZE = 16
BUCKET_HEADER_SIZE = 16
MAX_KEY_SIZE = 32768
MAX_VALUE_SIZE = (1 << 31) - 2
MAX_ELEMENTS = 0xFFFF
MAX_TXID = (1 << 63) - 1
"""No number of commits gets there; a higher one was not counted."""
MAX_DEPTH = 64
"""No tree of 2**64 pages is deeper than this; a deeper walk has met a cycle."""

PAGE_HEADER = struct.Struct("<QHHI")
"""id, flags, element count, overflow (pages that follow and belong to this one)."""
LEAF_ELEMENT = struct.Struct("<IIII")
"""flags, position of the key from the start of this element, key size, value size."""
BRANCH_ELEMENT = struct.Struct("<IIQ")
"""position of the key from the start of this element, key size, child page id."""
BUCKET_HEADER = struct.Struct("<QQ")
"""root page id (0: the bucket's only page follows inline), sequence."""
META_BODY = struct.Struct("<IIIIQQQQQ")
"""magic, version, page size, flags, root page id, sequence, free-list page id, high-water mark, txid."""

META_SIZE = HEADER_SIZE + META_BODY.size + 8
MIN_PAGE_SIZE, MAX_PAGE_SIZE = 1024, 16 << 20


def fnv1a_64(data: bytes) -> int:
    """The checksum of a meta page's body."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFF_FFFF_FFFF_FFFF
    return value


@dataclass(frozen=True, slots=True)
class Meta:
    """One meta page: which page is the root, and how much of the file is in use (`high_water`, in pages)."""

    page_size: int
    root: int
    freelist: int
    high_water: int
    txid: int

    @classmethod
    def parse(cls, page: bytes) -> Meta:
        """Read the first META_SIZE bytes of a meta page.  Raises BoltError with what is wrong."""
        if len(page) < META_SIZE:
            raise BoltError("meta page is cut short")
        body = page[HEADER_SIZE : HEADER_SIZE + META_BODY.size]
        magic, version, page_size, _, root, _, freelist, high_water, txid = META_BODY.unpack(body)
        if magic != MAGIC:
            raise BoltError(f"meta page has magic {magic:#010x}, not {MAGIC:#010x}")
        if version != VERSION:
            raise BoltError(f"meta page has version {version}, not {VERSION}")
        (checksum,) = struct.unpack_from("<Q", page, HEADER_SIZE + META_BODY.size)
        if checksum != fnv1a_64(body):
            raise BoltError("meta page does not match its checksum")
        if not MIN_PAGE_SIZE <= page_size <= MAX_PAGE_SIZE or page_size & (page_size - 1):
            raise BoltError(f"meta page states a page size of {page_size} bytes")
        if not 2 <= root < high_water:
            raise BoltError(f"meta page states root page {root} of {high_water}")
        return cls(page_size, root, freelist, high_water, txid)

    def page(self, page_id: int) -> bytes:
        """The meta page as bytes, one page size long, to be written as page `page_id` (0 or 1)."""
        body = META_BODY.pack(
            MAGIC, VERSION, self.page_size, 0, self.root, 0, self.freelist, self.high_water, self.txid
        )
        header = PAGE_HEADER.pack(page_id, META, 0, 0)
        return (header + body + struct.pack("<Q", fnv1a_64(body))).ljust(self.page_size, b"\0")

    def next(self, *, root: int, high_water: int) -> Meta:
        """The meta of the next transaction.  Its free list is left to be found at open.  Raises BoltError."""
        if self.txid >= MAX_TXID:
            raise BoltError(f"transaction {self.txid} cannot be followed by another")
        return replace(self, root=root, high_water=high_water, freelist=NO_FREELIST, txid=self.txid + 1)


def newest_meta(candidates: list[Meta | BoltError]) -> Meta:
    """The valid meta with the higher txid; page 0 wins a tie.  Raises BoltError when both are damaged."""
    valid = [meta for meta in candidates if isinstance(meta, Meta)]
    if valid:
        return max(valid, key=lambda meta: meta.txid)
    reasons = "; ".join(f"page {index}: {error}" for index, error in enumerate(candidates))
    raise BoltError(
        f"both meta pages are damaged ({reasons})", hint="restore from another object: nothing names the root"
    )
