"""What of S3 needs no server: cutting parts, putting listings in order, options."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import StoreError, UnsupportedError, UsageError
from rootcellar.stores.s3.listing import Page, walk
from rootcellar.stores.s3.options import MIB, S3Options
from rootcellar.stores.s3.parts import MOST_PARTS, cut, part_size

# parts


def test_five_tebibytes_fit_in_ten_thousand_parts():
    total, number = 0, 0
    while total < 5 << 40:
        number += 1
        total += part_size(number, 8 * MIB)
    assert number <= MOST_PARTS
    assert part_size(1000, 8 * MIB) == 8 * MIB
    assert part_size(1001, 8 * MIB) == 16 * MIB
    assert max(part_size(number, 64 * MIB) for number in range(1, MOST_PARTS + 1)) == 5 << 30


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(1, 20))
def test_parts_are_the_stream_cut_at_their_sizes(chunks, size):
    parts = [(bytes(part), last) for part, last in cut(iter(chunks), size)]
    assert b"".join(part for part, _ in parts) == b"".join(chunks)
    assert [last for _, last in parts] == [False] * (len(parts) - 1) + [True]
    assert {len(part) for part, last in parts if not last} <= {size}
    assert len(parts[-1][0]) <= size
    assert parts[-1][0] or len(parts) == 1


def test_more_than_ten_thousand_parts_are_refused(monkeypatch):
    monkeypatch.setattr("rootcellar.stores.s3.parts._STEP", MOST_PARTS + 1)
    with pytest.raises(StoreError, match="more than 10,000 parts"):
        for _ in cut(itertools.repeat(b"x" * 10, 1001), 1):
            pass


# listing, against stores of either order


def directory_pages(keys, order, rng):
    """A store's listing of one directory, in pages of random length; `order` is its order of names."""

    def pages(prefix, start_after):
        names = set()
        for key in keys:
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition("/")
                names.add(prefix + head + slash)
        ordered = [name for name in sorted(names, key=order) if order(name) > order(start_after)]
        while ordered:
            size = rng.randint(1, 3)
            page, ordered = ordered[:size], ordered[size:]
            objects = [(name, name) for name in page if not name.endswith("/")]
            yield Page(objects, [name for name in page if name.endswith("/")])
        yield Page([], [])

    return pages


def by_bytes(name):
    return name.encode()


def by_segments(name):
    """As servers do that keep objects in directories: a directory comes where its name does."""
    return name.removesuffix("/").encode(), name.endswith("/")


key_text = st.lists(st.text("ab-.!0é", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize("order", [by_bytes, by_segments])
@given(keys=st.sets(key_text, max_size=15), after=st.text("ab-.!0é/", max_size=6), seed=st.integers(0, 99))
def test_either_order_becomes_the_order_of_bytes(order, keys, after, seed):
    pages = directory_pages(keys, order, random.Random(seed))
    expected = [key for key in sorted(keys, key=str.encode) if key.encode() > after.encode()]
    assert [key for key, _ in walk(pages, "", after)] == expected
    for prefix in ("a", "a/", "a-", "b/a"):
        found = [key for key, _ in walk(pages, prefix, after)]
        assert found == [key for key in expected if key.startswith(prefix)]


def test_a_store_that_lists_in_no_order_is_refused():
    def pages(prefix, start_after):
        yield Page([("b", 1)], [])
        yield Page([("a", 1)], [])

    with pytest.raises(UnsupportedError, match="does not list its keys in order"):
        list(walk(pages, ""))


# options


@pytest.mark.parametrize(
    "wrong",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"prefix": "/a"},
        {"prefix": "a//b"},
        {"addressing": "both"},
        {"checksum": "always"},
        {"part_size": 5 * MIB - 1},
        {"part_size": 6 << 30},
        {"endpoint": "s3.example.org"},
        {"endpoint": "ftp://s3.example.org"},
        {"endpoint": "https://AKIA:secret@s3.example.org"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(UsageError) as caught:
        S3Options(**{"bucket": "b", **wrong})
    assert "secret" not in str(caught.value)
