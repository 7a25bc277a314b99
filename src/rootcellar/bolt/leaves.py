"""Rows turned into leaf pages, many at a time.

`build` is pure and needs no file, so it can run in a worker process beside the one that writes: its pages
carry page id 0 until `append.py` knows where they go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rootcellar.bolt.layout import (
    ELEMENT_SIZE,
    HEADER_SIZE,
    LEAF,
    MAX_ELEMENTS,
    MAX_KEY_SIZE,
    MAX_VALUE_SIZE,
    PAGE_HEADER,
)
from rootcellar.errors import BoltError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_LEAF_PAGES = 4
"""A leaf grows to this many pages when that wastes less of them: 3 KB rows in single 4 KiB pages waste a
quarter.
"""


@dataclass(frozen=True, slots=True)
class Leaves:
    """Leaf pages ready but for their ids.

    `image` is their bytes, `pages[i]` how many pages leaf i takes; leaf i holds rows bounds[i] to bounds[i +
    1].
    """

    image: bytes | bytearray
    pages: NDArray[np.int64]
    first_keys: list[bytes]
    bounds: list[int]


def build(keys: Sequence[bytes], values: Sequence[bytes], page_size: int) -> Leaves:
    """Pack rows (ascending keys) into leaf pages.  Raises BoltError for a size bbolt does not allow.

    Memory: the image, plus some 100 bytes per row.
    """
    count = len(keys)
    key_sizes = np.fromiter(map(len, keys), np.int64, count)
    value_sizes = np.fromiter(map(len, values), np.int64, count)
    if count and not 0 < int(key_sizes.min()) <= int(key_sizes.max()) <= MAX_KEY_SIZE:
        raise BoltError(f"a key must have 1 to {MAX_KEY_SIZE} bytes")
    if count and int(value_sizes.max()) > MAX_VALUE_SIZE:
        raise BoltError(f"a value must not have more than {MAX_VALUE_SIZE} bytes")
    data_ends = np.cumsum(key_sizes + value_sizes)
    bounds = _leaf_bounds(data_ends, page_size)
    first = np.array(bounds[:-1], np.int64)
    rows = np.array(bounds[1:], np.int64) - first
    leaf_of_row = np.repeat(np.arange(len(rows)), rows)
    data_starts = data_ends - key_sizes - value_sizes
    in_leaf = np.arange(count) - first[leaf_of_row]
    in_data = data_starts - data_starts[first][leaf_of_row]
    elements = np.empty((count, 4), "<u4")
    elements[:, 0] = 0
    elements[:, 1] = ELEMENT_SIZE * (rows[leaf_of_row] - in_leaf) + in_data
    elements[:, 2] = key_sizes
    elements[:, 3] = value_sizes

    image = bytearray()
    pages = np.empty(len(rows), np.int64)
    parts: list[bytes] = [b""] * (2 * count)
    parts[0::2] = keys
    parts[1::2] = values
    for leaf in range(len(rows)):
        begin, end = bounds[leaf], bounds[leaf + 1]
        body = b"".join(parts[2 * begin : 2 * end])
        size = HEADER_SIZE + ELEMENT_SIZE * (end - begin) + len(body)
        taken = -(-size // page_size)
        pages[leaf] = taken
        image += PAGE_HEADER.pack(0, LEAF, end - begin, taken - 1)
        image += elements[begin:end].tobytes()
        image += body
        image += bytes(taken * page_size - size)
    return Leaves(image, pages, [keys[begin] for begin in bounds[:-1]], bounds)


def _leaf_bounds(data_ends: NDArray[np.int64], page_size: int) -> list[int]:
    """Row indexes at which leaves begin, and the number of rows at the end.

    `sizes[i]` is what rows 0..i need as elements and data.  A leaf takes what fits into one page; if that
    leaves more than an eighth of it empty, it grows page by page up to MAX_LEAF_PAGES while that helps.
    """
    sizes = data_ends + ELEMENT_SIZE * np.arange(1, len(data_ends) + 1)
    bounds = [0]
    begin = 0
    while begin < len(sizes):
        done = int(sizes[begin - 1]) if begin else 0
        best, least_waste = begin + 1, 1.0
        for pages in range(1, MAX_LEAF_PAGES + 1):
            room = pages * page_size - HEADER_SIZE
            end = int(np.searchsorted(sizes, done + room, "right"))
            if end <= begin:
                continue
            waste = 1 - (int(sizes[end - 1]) - done) / room
            if end == len(sizes) or waste < 0.125:
                best = end
                break
            if waste < least_waste:
                best, least_waste = end, waste
        begin = min(best, begin + MAX_ELEMENTS)
        bounds.append(begin)
    return bounds
