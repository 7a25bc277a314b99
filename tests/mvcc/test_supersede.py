"""Rows at or below a compaction leave the file for the keys that newer rows supersede, and for no others."""

from __future__ import annotations

import random

import pytest

from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.bolt.layout import LEAF, PAGE_HEADER
from rootcellar.errors import RecordError
from rootcellar.mvcc.record import KeyValue, decode_key, encode
from rootcellar.mvcc.revision import KEY_BUCKET, decode_row_key, encode_row_key
from rootcellar.mvcc.supersede import drop_rows
from tests.mvcc.databases import PAGE, write_database


def history(count, keys=12):
    chance = random.Random(count)
    rows = {}
    for revision in range(2, count + 2):
        key = b"key-%d" % chance.randrange(keys)
        gone = chance.random() < 0.2
        size = chance.choice([0, 10, 600, 9000])
        record = KeyValue(key) if gone else KeyValue(key, 2, revision, 1, chance.randbytes(size))
        rows[encode_row_key(revision, tombstone=gone)] = encode(record)
    return rows


def rows_of(path):
    with BoltFile(path) as file:
        check(file)
        bucket = file.bucket(KEY_BUCKET)
        return dict(bucket.items()) if bucket else None


def dropped(path, touched, compacted):
    with Transaction(path) as transaction:
        count = drop_rows(transaction, touched, compacted)
        transaction.commit(both_metas=True)
    return count


@pytest.mark.parametrize("count", [0, 2, 6, 60, 900])
@pytest.mark.parametrize("compacted", [0, 1, 2, 30, 59, 60, 61, 500, 10_000])
@pytest.mark.parametrize("touched", [set(), {b"key-1", b"key-2"}, {b"key-%d" % n for n in range(12)}])
def test_what_leaves_is_what_lies_below_and_was_touched(tmp_path, count, compacted, touched):
    rows = history(count)
    path = write_database(tmp_path / "db", {KEY_BUCKET: rows, b"meta": {b"a": b"b"}})

    gone = dropped(path, touched, compacted)

    expected = {
        key: value
        for key, value in rows.items()
        if decode_row_key(key).main > compacted or decode_key(value) not in touched
    }
    assert rows_of(path) == expected
    assert gone == len(rows) - len(expected)
    with BoltFile(path) as file:
        assert file.bucket(b"meta").get(b"a") == b"b"


def test_rows_can_be_appended_behind_what_is_left(tmp_path):
    """In the same transaction, also where the last leaf has lost its last rows."""
    rows = history(300)
    path = write_database(tmp_path / "db", {KEY_BUCKET: rows})
    last = max(rows)
    with Transaction(path) as transaction:
        drop_rows(transaction, {b"key-%d" % n for n in range(11)}, 301)
        edge = transaction.edge(KEY_BUCKET)
        edge.append([encode_row_key(302)], [b"\x0a\x01k"])
        transaction.commit(both_metas=True)
    left = rows_of(path)
    assert max(left) == encode_row_key(302) > last
    assert all(decode_key(value) in (b"key-11", b"k") for value in left.values())


def test_a_file_without_the_bucket_is_left_alone(tmp_path):
    path = write_database(tmp_path / "db", {b"meta": {}})
    assert dropped(path, {b"k"}, 5) == 0
    assert rows_of(path) is None


def empty_leaf(path):
    """Give the `key` bucket a page of its own without rows, which is legal."""
    write_database(path, {KEY_BUCKET: history(300)})
    with BoltFile(path) as file:
        root = file.bucket(KEY_BUCKET).root
    data = bytearray(path.read_bytes())
    data[root * PAGE : root * PAGE + 16] = PAGE_HEADER.pack(root, LEAF, 0, 0)
    path.write_bytes(data)
    return path


def test_an_empty_bucket_on_a_page_of_its_own_is_left_alone(tmp_path):
    path = empty_leaf(tmp_path / "db")
    assert dropped(path, {b"k"}, 5) == 0
    assert rows_of(path) == {}


def test_a_row_without_a_key_is_an_error(tmp_path):
    path = write_database(tmp_path / "db", {KEY_BUCKET: {**history(5), encode_row_key(9): b"\xff"}})
    with Transaction(path) as transaction, pytest.raises(RecordError):
        drop_rows(transaction, {b"k"}, 10)
