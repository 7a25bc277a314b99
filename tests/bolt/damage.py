"""Ways to damage a bbolt file, as hypothesis strategies: what bit rot, torn writes and enemies do.

Bytes changed blindly mostly hit values, which nobody checks.  So most changes here are aimed at numbers that
a reader believes in: page headers, elements, meta pages with a checksum that is right.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hypothesis import strategies as st

from rootcellar.bolt.layout import BRANCH, BUCKET_ELEMENT, HEADER_SIZE, META_BODY, META_SIZE, fnv1a_64

_HEADER = {"id": (0, "<Q"), "flags": (8, "<H"), "count": (10, "<H"), "overflow": (12, "<I")}
_LEAF = {"flags": (0, "<I"), "position": (4, "<I"), "key size": (8, "<I"), "value size": (12, "<I")}
_BRANCH = {"position": (0, "<I"), "key size": (4, "<I"), "child": (8, "<Q")}
_BUCKET = {"root": (0, "<Q"), "sequence": (8, "<Q")}
_META = ("page size", "flags", "root", "sequence", "freelist", "high water", "txid")

_numbers = st.one_of(
    st.integers(0, 40),
    st.sampled_from([4095, 4096, 0xFFFF, 1 << 31, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)
_steps = st.integers(-3, 3)


class Change(NamedTuple):
    """`kind` of damage at a place chosen by `where`, modulo what is there, to `number` or by `step`."""

    kind: str
    where: int
    which: int
    number: int
    step: int


changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(
            ["header", "element", "element", "element", "bucket", "meta", "byte", "copy page", "cut", "zero"]
        ),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
        _numbers,
        _steps,
    ),
    min_size=1,
    max_size=4,
)


def damaged(data, page_size, made):
    """A copy of the file `data` with these changes."""
    data = bytearray(data)
    for change in made:
        data = _CHANGES[change.kind](data, page_size, change)
    return bytes(data)


def _put(data, at, form, change):
    """Put the number there, or move what is there a step."""
    size = struct.calcsize(form)
    if at + size > len(data):
        return
    (there,) = struct.unpack_from(form, data, at)
    value = there + change.step if change.step else change.number
    struct.pack_into(form, data, at, value % (1 << 8 * size))


def _page(data, page_size, where):
    return where % max(len(data) // page_size, 1) * page_size


def _header(data, page_size, change):
    offset, form = list(_HEADER.values())[change.which % len(_HEADER)]
    _put(data, _page(data, page_size, change.where) + offset, form, change)
    return data


def _element_of(data, page_size, change):
    """(offset of an element of some page, whether it is a branch's), or None."""
    start = _page(data, page_size, change.where)
    if start + HEADER_SIZE > len(data):
        return None
    flags, count = struct.unpack_from("<HH", data, start + 8)
    if not count:
        return None
    return start + HEADER_SIZE + 16 * (change.which % count), flags == BRANCH


def _element(data, page_size, change):
    if (found := _element_of(data, page_size, change)) is not None:
        at, is_branch = found
        fields = list((_BRANCH if is_branch else _LEAF).values())
        offset, form = fields[(change.which >> 8) % len(fields)]
        _put(data, at + offset, form, change)
    return data


def _bucket(data, page_size, change):
    """The header of a bucket's value, or a number in its inline page."""
    found = _element_of(data, page_size, change)
    if found is None or found[0] + 16 > len(data):
        return data
    flags, position, key_size, _ = struct.unpack_from("<IIII", data, found[0])
    value = found[0] + position + key_size
    if flags & BUCKET_ELEMENT and not found[1]:
        places = [*_BUCKET.values()]
        places += [(16 + offset, form) for offset, form in _HEADER.values()]
        places += [(32 + offset, form) for offset, form in _LEAF.values()]
        offset, form = places[(change.which >> 8) % len(places)]
        _put(data, value + offset, form, change)
    return data


def _meta(data, page_size, change):
    """A number of both meta pages, with the checksum made right again."""
    for start in (0, page_size):
        if start + META_SIZE > len(data):
            continue
        body = list(META_BODY.unpack_from(data, start + HEADER_SIZE))
        at = 2 + change.which % len(_META)
        size = 4 if at < 4 else 8
        value = body[at] + change.step if change.step else change.number
        body[at] = value % (1 << 8 * size)
        packed = META_BODY.pack(*body)
        data[start + HEADER_SIZE : start + META_SIZE] = packed + struct.pack("<Q", fnv1a_64(packed))
    return data


def _byte(data, _page_size, change):
    if data:
        data[change.where % len(data)] = change.number & 0xFF
    return data


def _copy_page(data, page_size, change):
    """One page over another; the copy says that it is the other, or not."""
    source, target = _page(data, page_size, change.where), _page(data, page_size, change.which)
    data[target : target + page_size] = data[source : source + page_size]
    if change.step >= 0 and target + 8 <= len(data):
        struct.pack_into("<Q", data, target, target // page_size)
    return data


def _cut(data, page_size, change):
    return data[: max(len(data) - change.number % (3 * page_size), 0)]


def _zero(data, page_size, change):
    start = _page(data, page_size, change.where)
    data[start : start + page_size] = bytes(len(data[start : start + page_size]))
    return data


_CHANGES = {
    "header": _header,
    "element": _element,
    "bucket": _bucket,
    "meta": _meta,
    "byte": _byte,
    "copy page": _copy_page,
    "cut": _cut,
    "zero": _zero,
}
