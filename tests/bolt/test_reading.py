"""Files that bbolt wrote, read by us: every row of every shape of file, and rows sought anywhere."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left

import pytest

from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.bolt.layout import HEADER_SIZE, META_SIZE
from rootcellar.errors import BoltError
from tests.bolt.files import bbolt_dump, bucket, dump, make

ETCD_LIKE = {"unsynced": True, "hashmap": True}
REVISIONS = {"sequential": True, "key_size": [17, 18], "fill": 0.9}

SHAPES = {
    "empty": [],
    "one key": [bucket("only", 1)],
    "inline, empty and not": [bucket("inline", 5), bucket("empty", 0), bucket("paged", 200, sequence=7)],
    "deep": [bucket("deep", 6000, key_size=[200, 400])],
    "many buckets": [bucket(f"bucket-{number:03}", number % 40) for number in range(300)],
    "overflow": [bucket("big", 40, big_every=7, big_size=3_000_000)],
    "longest keys": [bucket("long", 60, key_size=[32_700, 32_768])],
    "nested": [
        bucket("outer", 300, buckets=[bucket("middle", 3, buckets=[bucket("inner", 500), bucket("none", 0)])])
    ],
    "thinned": [bucket("thin", 8000, delete=0.9), bucket("gone", 3000, delete=1.0)],
    "thinned deep": [bucket("thin", 6000, key_size=[200, 400], transactions=40, delete=0.97)],
    "like etcd": [
        bucket("key", 5000, **REVISIONS, value_size=[0, 300], transactions=30, delete=0.5),
        bucket("lease", 2000, key_size=[8, 8]),
        bucket("meta", 4),
    ],
}


@pytest.mark.parametrize(
    ("page_size", "options"),
    [
        pytest.param(1024, ETCD_LIKE, id="1K-etcd"),
        pytest.param(4096, {}, id="4K-synced"),
        pytest.param(4096, {"hashmap": True}, id="4K-hashmap"),
        pytest.param(4096, ETCD_LIKE, id="4K-etcd"),
        pytest.param(16384, {}, id="16K-synced"),
        pytest.param(65536, ETCD_LIKE, id="64K-etcd"),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_of_a_file_of_bbolts_is_read(boltcheck, tmp_path, shape, options, page_size):
    path = make(boltcheck, tmp_path / "db", *SHAPES[shape], page_size=page_size, **options)

    assert dump(path) == bbolt_dump(boltcheck, path)
    with BoltFile(path) as file:
        structure = check(file)
    assert sum(structure.rows.values()) == sum(each["rows"] for each in dump(path)["buckets"])


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_lived_through_many_changes_is_read_and_has_leaves_at_one_depth(
    boltcheck, tmp_path, seed
):
    """`check` walks trees level by level, so it relies on a depth that bbolt keeps uniform."""
    path = make(boltcheck, tmp_path / "db", bucket("key", 3000, key_size=[1, 90]), seed=seed, page_size=1024)
    for part, commits in ((0.9, 120), (0.2, 40), (0.7, 60)):
        spec = f'{{"seed": {seed}, "commits": {commits}, "operations": 60, "bucket": "key", "delete": {part},'
        done = boltcheck("commits", path, spec + '"key_size": [1, 200], "value_size": [0, 700]}')
        assert done.returncode == 0, done.stderr
        assert dump(path) == bbolt_dump(boltcheck, path)
        with BoltFile(path) as file:
            check(file)


@pytest.fixture(scope="module")
def readable(boltcheck, tmp_path_factory):
    path = tmp_path_factory.mktemp("readable") / "db"
    return make(boltcheck, path, bucket("key", 4000, key_size=[1, 60]), bucket("few", 7), page_size=1024)


@pytest.mark.parametrize("name", [b"key", b"few"])
def test_seeking_finds_what_a_sorted_list_would(readable, name):
    chance = random.Random(3)
    with BoltFile(readable) as file:
        rows = list(file.bucket(name).items())
        keys = [key for key, _ in rows]
        wanted = [b"", b"\xff" * 70, *keys[:3], *keys[-3:], keys[0][:-1], keys[-1] + b"\0"]
        wanted += [chance.choice(keys) for _ in range(200)]
        wanted += [chance.randbytes(chance.randint(1, 20)) for _ in range(200)]
        wanted += [chance.choice(keys)[:-1] or b"\0" for _ in range(50)]
        for start in wanted:
            at = bisect_left(keys, start)
            assert list(file.bucket(name).items(start))[:50] == rows[at : at + 50]
            assert file.bucket(name).get(start) == dict(rows).get(start)
        assert file.bucket(name).last() == rows[-1]
        assert file.bucket(b"none") is None


@pytest.mark.parametrize("page_size", [1024, 4096, 16384, 65536])
@pytest.mark.parametrize("page", [0, 1])
def test_when_one_meta_page_is_damaged_the_other_holds(boltcheck, tmp_path, page_size, page):
    path = make(boltcheck, tmp_path / "db", bucket("a", 20), page_size=page_size)
    whole = dump(path)
    data = bytearray(path.read_bytes())
    data[page * page_size + HEADER_SIZE + 20] ^= 1
    path.write_bytes(data)

    found = dump(path)

    assert found["page_size"] == page_size
    if whole["txid"] % 2 == page:  # what the last transaction did is lost with its page
        assert found["txid"] == whole["txid"] - 1
    else:
        assert found == whole
    assert bbolt_dump(boltcheck, path)["txid"] == found["txid"]


@pytest.mark.parametrize(
    ("offset", "what"),
    [(0, "magic"), (4, "version"), (8, "checksum"), (63, "checksum")],
)
def test_when_both_meta_pages_are_damaged_each_is_told(boltcheck, tmp_path, offset, what):
    path = make(boltcheck, tmp_path / "db", bucket("a", 20), page_size=4096)
    data = bytearray(path.read_bytes())
    for page in (0, 1):
        data[page * 4096 + HEADER_SIZE + offset] ^= 1
    path.write_bytes(data)

    with pytest.raises(BoltError, match=f"both meta pages are damaged .*{what}") as caught:
        BoltFile(path)
    assert caught.value.hint


@pytest.mark.parametrize("size", [0, 1, 79, META_SIZE, 4095])
def test_what_is_too_short_for_a_bbolt_file_is_told(tmp_path, size):
    path = tmp_path / "db"
    path.write_bytes(bytes(size))
    with pytest.raises(BoltError, match=r"too short for a bbolt file|both meta pages are damaged"):
        BoltFile(path)


def test_a_file_cut_behind_its_meta_pages_is_told(readable, tmp_path):
    data = readable.read_bytes()
    (high_water,) = struct.unpack_from("<Q", data, HEADER_SIZE + 40)
    path = tmp_path / "db"
    path.write_bytes(data[: high_water * 1024 - 1])
    with pytest.raises(BoltError, match="db is cut short") as caught:
        BoltFile(path)
    assert "take it again" in caught.value.hint


def test_what_lies_behind_the_high_water_mark_does_not_count(readable, tmp_path):
    path = tmp_path / "db"
    path.write_bytes(readable.read_bytes() + b"x" * 33)
    assert dump(path) == dump(readable)
