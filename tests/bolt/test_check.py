"""The structure proof finds what `bbolt check` finds, and the bounds that bbolt dies of."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given

from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.bolt.layout import (
    ELEMENT_SIZE,
    FREELIST,
    HEADER_SIZE,
    MAX_DEPTH,
    META_BODY,
    META_SIZE,
    PAGE_HEADER,
    fnv1a_64,
)
from rootcellar.errors import BoltError, RootcellarError
from tests.bolt.damage import changes, damaged
from tests.bolt.files import bucket, make

PAGE = 1024


class Image:
    """A file's bytes with its pages by what they are for."""

    def __init__(self, path):
        self.path = path
        self.data = bytearray(path.read_bytes())
        with BoltFile(path) as file:
            self.root, self.freelist, self.high_water = (
                file.meta.root,
                file.meta.freelist,
                file.meta.high_water,
            )
            key = file.bucket(b"key")
            self.key = key.root
            self.branches, self.leaves = [], [node.page_id for node in key.leaves()]
            node = key.root_node()
            while not node.is_leaf:
                self.branches.append(node.page_id)
                node = file.node(node.branch_element(0)[1])

    def at(self, page, offset=0):
        return page * PAGE + offset

    def put(self, form, at, *values):
        struct.pack_into(form, self.data, at, *values)

    def get(self, form, at):
        return struct.unpack_from(form, self.data, at)[0]

    def element(self, page, index):
        return self.at(page, HEADER_SIZE + index * ELEMENT_SIZE)

    def key_of(self, page, index):
        """Where the key of a leaf's element lies."""
        at = self.element(page, index)
        return at + self.get("<I", at + 4)

    def meta(self, field, value):
        """Change a number of both meta pages and make their checksums right."""
        for start in (0, PAGE):
            body = list(META_BODY.unpack_from(self.data, start + HEADER_SIZE))
            body[field] = value
            packed = META_BODY.pack(*body)
            self.data[start + HEADER_SIZE : start + META_SIZE] = packed + struct.pack("<Q", fnv1a_64(packed))

    def check(self):
        self.path.write_bytes(self.data)
        with BoltFile(self.path) as file:
            return check(file)


@pytest.fixture(scope="module")
def sound(boltcheck, tmp_path_factory):
    """With a synced free list, nested buckets, overflow pages, and rows of one length so that bytes swap."""
    return make(
        boltcheck,
        tmp_path_factory.mktemp("sound") / "db",
        bucket("key", 900, key_size=[20, 20], value_size=[30, 30], delete=0.2, transactions=5),
        bucket("nest", 20, buckets=[bucket("in", 90), bucket("big", 3, value_size=[3000, 3000])]),
        bucket("small", 3),
        page_size=PAGE,
    )


@pytest.fixture
def image(sound, tmp_path):
    path = tmp_path / "db"
    path.write_bytes(sound.read_bytes())
    image = Image(path)
    assert len(image.branches) >= 1
    assert len(image.leaves) > 10
    return image


def page_out_of_bounds(image):
    image.put("<Q", image.element(image.branches[-1], 1) + 8, image.high_water)
    return "lies outside"


def page_far_out_of_bounds(image):
    image.put("<Q", image.element(image.branches[-1], 1) + 8, (1 << 64) - 1)
    return "lies outside"


def child_is_a_meta_page(image):
    image.put("<Q", image.element(image.branches[-1], 1) + 8, 1)
    return "lies outside"


def page_named_twice(image):
    at = image.element(image.branches[-1], 1) + 8
    image.put("<Q", at, image.get("<Q", image.element(image.branches[-1], 2) + 8))
    return "referred to twice|first key is below|reaches into the next"


def tree_in_a_ring(image):
    image.put("<Q", image.element(image.branches[-1], 0) + 8, image.branches[0])
    return "referred to twice|leaves and branches|at one depth|keys|key"


def overflow_over_the_next_page(image):
    image.put("<I", image.at(image.leaves[3], 12), 1)
    return "referred to twice|neither in use|on the free list|overflow"


def overflow_beyond_the_file(image):
    image.put("<I", image.at(image.leaves[3], 12), 1 << 20)
    return "overflow pages, more than the file has"


def leaf_of_another_kind(image):
    image.put("<H", image.at(image.leaves[3], 8), FREELIST)
    return "neither branch nor leaf"


def leaf_of_two_kinds(image):
    image.put("<H", image.at(image.leaves[3], 8), 3)
    return "neither branch nor leaf"


def leaf_under_another_id(image):
    image.put("<Q", image.at(image.leaves[3]), image.leaves[3] + 1)
    return "says that it is page"


def leaf_that_is_empty(image):
    image.put("<H", image.at(image.leaves[3], 10), 0)
    return "is empty"


def branch_that_is_empty(image):
    image.put("<H", image.at(image.branches[-1], 10), 0)
    return "branch page without children|is empty"


def more_elements_than_fit(image):
    image.put("<H", image.at(image.leaves[3], 10), 0xFFFF)
    return "more elements than it holds"


def keys_out_of_order(image):
    one, other = image.key_of(image.leaves[3], 1), image.key_of(image.leaves[3], 2)
    image.data[one : one + 20], image.data[other : other + 20] = (
        image.data[other : other + 20],
        image.data[one : one + 20],
    )
    return "not in ascending order"


def the_same_key_twice(image):
    one, other = image.key_of(image.leaves[3], 1), image.key_of(image.leaves[3], 2)
    image.data[one : one + 20] = image.data[other : other + 20]
    return "not in ascending order"


def a_key_below_its_branch(image):
    at = image.key_of(image.leaves[3], 0)
    image.data[at : at + 20] = bytes(20)
    return "its first key is below its branch's"


def a_key_that_belongs_to_the_next_leaf(image):
    count = image.get("<H", image.at(image.leaves[3], 10))
    at = image.key_of(image.leaves[3], count - 1)
    image.data[at : at + 20] = b"\xff" * 20
    return "reaches into the next page"


def a_key_without_bytes(image):
    image.put("<I", image.element(image.leaves[3], 0) + 8, 0)
    return "a key has 0 bytes"


def a_value_beyond_its_page(image):
    image.put("<I", image.element(image.leaves[3], 5) + 12, 5000)
    return "reaches outside its page"


def a_key_beyond_its_page(image):
    image.put("<I", image.element(image.leaves[3], 5) + 4, 0xFFFFFF00)
    return "reaches outside its page"


def a_key_inside_the_elements(image):
    image.put("<I", image.element(image.leaves[3], 5) + 4, 8)
    return "reaches outside its page"


def a_key_beyond_its_branch(image):
    image.put("<I", image.element(image.branches[-1], 1) + 4, 4000)
    return "reaches outside its page"


def elements_that_overlap(image):
    last = image.get("<H", image.at(image.leaves[3], 10)) - 1
    for index in range(last):
        end = image.at(image.leaves[3] + 1) - image.key_of(image.leaves[3], index) - 20
        image.put("<I", image.element(image.leaves[3], index) + 12, end)
    return "its elements overlap"


def a_free_page_in_use(image):
    image.put("<Q", image.at(image.freelist, HEADER_SIZE), 2)
    image.put("<Q", image.at(image.freelist, HEADER_SIZE), min(image.leaves))
    return "in use and on the free list|twice or out of order"


def a_page_free_twice(image):
    image.put(
        "<Q",
        image.at(image.freelist, HEADER_SIZE),
        image.get("<Q", image.at(image.freelist, HEADER_SIZE + 8)),
    )
    return "twice or out of order"


def a_page_forgotten_by_the_free_list(image):
    count = image.get("<H", image.at(image.freelist, 10))
    assert count > 1
    image.put("<H", image.at(image.freelist, 10), count - 1)
    return "neither in use nor on the free list"


def a_free_page_out_of_bounds(image):
    count = image.get("<H", image.at(image.freelist, 10))
    image.put("<Q", image.at(image.freelist, HEADER_SIZE + 8 * (count - 1)), image.high_water + 9)
    return "outside the pages in use"


def a_free_list_longer_than_its_page(image):
    image.put("<H", image.at(image.freelist, 10), 0xFFFE)
    return "more than it holds"


def a_free_list_of_boundless_length(image):
    image.put("<H", image.at(image.freelist, 10), 0xFFFF)
    image.put("<Q", image.at(image.freelist, HEADER_SIZE), (1 << 63) - 1)
    return "more than it holds"


def a_free_list_that_is_a_leaf(image):
    image.meta(6, image.leaves[3])
    return "not the free list"


def a_free_list_nowhere(image):
    image.meta(6, image.high_water + 1)
    return "free list page .* lies outside"


def a_root_that_is_a_branch_of_nothing(image):
    image.put("<H", image.at(image.root, 8), 1)
    return "page"


def a_row_in_the_root(image):
    at = image.element(image.root, 0)
    image.put("<I", at, 0)
    return "lies in the root as a row"


def a_bucket_with_the_root_of_another(image):
    at = image.element(image.root, 1)
    value = at + image.get("<I", at + 4) + image.get("<I", at + 8)
    image.put("<Q", value, image.key)
    return "referred to twice"


def a_bucket_that_is_its_own_parent(image):
    at = image.element(image.root, 0)
    value = at + image.get("<I", at + 4) + image.get("<I", at + 8)
    image.put("<Q", value, image.root)
    return "referred to twice"


def a_bucket_with_a_root_beyond_all_numbers(image):
    at = image.element(image.root, 0)
    value = at + image.get("<I", at + 4) + image.get("<I", at + 8)
    image.put("<Q", value, (1 << 64) - 1)
    return "lies outside"


def a_meta_page_under_another_id(image):
    image.put("<Q", PAGE, 0)
    return "page 1 says that it is page 0"


def a_meta_page_that_is_no_meta_page(image):
    image.put("<H", 8, 2)
    return "page 0 has flags 0x0002: no meta page"


def a_bucket_header_cut_short(image):
    at = image.element(image.root, 2)
    image.put("<I", at + 12, 15)
    return "bucket header is cut short"


DAMAGES = [
    page_out_of_bounds,
    page_far_out_of_bounds,
    child_is_a_meta_page,
    page_named_twice,
    tree_in_a_ring,
    overflow_over_the_next_page,
    overflow_beyond_the_file,
    leaf_of_another_kind,
    leaf_of_two_kinds,
    leaf_under_another_id,
    leaf_that_is_empty,
    branch_that_is_empty,
    more_elements_than_fit,
    keys_out_of_order,
    the_same_key_twice,
    a_key_below_its_branch,
    a_key_that_belongs_to_the_next_leaf,
    a_key_without_bytes,
    a_value_beyond_its_page,
    a_key_beyond_its_page,
    a_key_inside_the_elements,
    a_key_beyond_its_branch,
    elements_that_overlap,
    a_free_page_in_use,
    a_page_free_twice,
    a_page_forgotten_by_the_free_list,
    a_free_page_out_of_bounds,
    a_free_list_longer_than_its_page,
    a_free_list_of_boundless_length,
    a_free_list_that_is_a_leaf,
    a_free_list_nowhere,
    a_root_that_is_a_branch_of_nothing,
    a_row_in_the_root,
    a_bucket_with_the_root_of_another,
    a_bucket_that_is_its_own_parent,
    a_bucket_with_a_root_beyond_all_numbers,
    a_bucket_header_cut_short,
    a_meta_page_under_another_id,
    a_meta_page_that_is_no_meta_page,
]


def test_a_sound_file_is_described(sound):
    with BoltFile(sound) as file:
        structure = check(file)
        names = [name for name, _ in file.root().buckets()]
        rows = {name: len(list(file.bucket(name).items())) for name in (b"key", b"small")}
    assert list(structure.rows) == names
    assert {name: structure.rows[name] for name in rows} == rows
    assert structure.rows[b"nest"] == 20 + 90 + 3
    assert structure.pages_in_use <= structure.pages


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_is_found_and_named(image, damage):
    pattern = damage(image)

    with pytest.raises(BoltError, match=pattern):
        image.check()


def test_buckets_nested_as_deep_as_one_likes_are_checked(boltcheck, tmp_path):
    spec = json.dumps(bucket("a", 1))
    for _ in range(1500):
        spec = f'{{"name": "a", "buckets": [{spec}]}}'
    path = tmp_path / "db"
    done = boltcheck("make", path, f'{{"page_size": {PAGE}, "buckets": [{spec}]}}')
    assert done.returncode == 0, done.stderr
    with BoltFile(path) as file:
        assert check(file).rows == {b"a": 1}


def test_a_tree_without_end_is_given_up(boltcheck, tmp_path):
    """One branch below the other, each with a page of its own, as no number of rows makes them."""
    path = make(boltcheck, tmp_path / "db", bucket("key", 1), page_size=PAGE)
    image = bytearray(path.read_bytes())
    with BoltFile(path) as file:
        high_water, root = file.meta.high_water, file.meta.root
    del image[high_water * PAGE :]
    depth = MAX_DEPTH + 1
    for level in range(depth):
        page_id = high_water + level
        element = struct.pack("<IIQ", ELEMENT_SIZE, 1, page_id + 1) + b"k"
        image += (PAGE_HEADER.pack(page_id, 1, 1, 0) + element).ljust(PAGE, b"\0")
    image += PAGE_HEADER.pack(high_water + depth, 2, 0, 0).ljust(PAGE, b"\0")
    at = root * PAGE + HEADER_SIZE
    position, key_size = struct.unpack_from("<II", image, at + 4)
    struct.pack_into("<Q", image, at + position + key_size, high_water)
    for start in (0, PAGE):
        body = list(META_BODY.unpack_from(image, start + HEADER_SIZE))
        body[6], body[7] = (1 << 64) - 1, high_water + depth + 1
        packed = META_BODY.pack(*body)
        image[start + HEADER_SIZE : start + META_SIZE] = packed + struct.pack("<Q", fnv1a_64(packed))
    path.write_bytes(image)
    with BoltFile(path) as file:
        for reading in (
            check,
            lambda file: list(file.bucket(b"key").items()),
            lambda file: file.bucket(b"key").last(),
        ):
            with pytest.raises(BoltError, match="deeper than 64 pages"):
                reading(file)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


@given(made=changes)
def test_what_is_sound_to_us_is_sound_to_bbolt(boltcheck, sound, directory, made):
    path = directory / "db"
    path.write_bytes(damaged(sound.read_bytes(), PAGE, made))
    try:
        with BoltFile(path) as file:
            check(file)
            high_water = file.meta.high_water
    except RootcellarError:
        return
    # bbolt is asked to read what is there, not to map a terabyte of holes.
    if high_water * PAGE < 1 << 24:
        done = boltcheck("check", path)
        assert done.returncode == 0, done.stdout + done.stderr
