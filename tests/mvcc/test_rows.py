"""The rows of the `key` bucket as arrays say what the rows say one by one."""

from __future__ import annotations

import random

import pytest

from rootcellar.bolt.file import BoltFile
from rootcellar.errors import RecordError
from rootcellar.mvcc.record import KeyValue, decode_key, encode
from rootcellar.mvcc.revision import KEY_BUCKET, decode_row_key, encode_row_key
from rootcellar.mvcc.rows import KeyRows
from tests.mvcc.databases import write_database


def history(count, seed, *, key_size=20):
    """Rows with gaps in main, several subs, tombstones, and keys of all lengths."""
    chance = random.Random(seed)
    rows, main, sub = {}, 1, 0
    for _ in range(count):
        if chance.random() < 0.7:
            main, sub = main + chance.choice([1, 1, 1, 1 << chance.randrange(30)]), 0
        else:
            sub += 1
        key = chance.randbytes(chance.choice([1, key_size, 127, 128, 300]))
        gone = chance.random() < 0.2
        record = KeyValue(key) if gone else KeyValue(key, 1, main, 1, chance.randbytes(chance.randint(0, 90)))
        rows[encode_row_key(main, sub, tombstone=gone)] = encode(record)
    return rows


@pytest.mark.parametrize("count", [0, 1, 5, 400, 9000])
def test_every_row_is_there_with_its_revision_and_its_key(tmp_path, count):
    rows = history(count, count)
    path = write_database(tmp_path / "db", {KEY_BUCKET: rows})
    found = []
    with BoltFile(path) as file:
        for batch in KeyRows(file):
            columns = (
                batch.mains.tolist(),
                batch.subs.tolist(),
                batch.is_tombstone.tolist(),
                batch.user_keys(),
            )
            found += zip(*columns, strict=True)
    assert found == [(*decode_row_key(key), decode_key(value)) for key, value in sorted(rows.items())]


def test_a_file_without_the_bucket_has_no_rows(tmp_path):
    with BoltFile(write_database(tmp_path / "db", {b"meta": {}})) as file:
        assert list(KeyRows(file)) == []
        assert not KeyRows(file).any_key_begins(b"/registry/")


@pytest.mark.parametrize("size", [10, 11, 100, 117, 118, 5000, 20_000])
@pytest.mark.parametrize("amid", [0, 300])
def test_a_key_of_kubernetes_is_found_whatever_its_length(tmp_path, size, amid):
    rows = history(amid, 1)
    key = b"/registry/".ljust(size, b"x")
    path = write_database(tmp_path / "db", {KEY_BUCKET: rows})
    with BoltFile(path) as file:
        assert not KeyRows(file).any_key_begins(b"/registry/")
    rows[encode_row_key(1 << 40)] = encode(KeyValue(key, 1, 1, 1, b"v"))
    path = write_database(tmp_path / "with", {KEY_BUCKET: rows})
    with BoltFile(path) as file:
        assert KeyRows(file).any_key_begins(b"/registry/")


@pytest.mark.parametrize("key", [b"x/registry/", b"/registr", b"/registry", b"/regi"])
def test_a_key_that_only_looks_like_one_is_not(tmp_path, key):
    rows = {encode_row_key(2): encode(KeyValue(key, 1, 1, 1, b"/registry/"))}
    with BoltFile(write_database(tmp_path / "db", {KEY_BUCKET: rows})) as file:
        assert not KeyRows(file).any_key_begins(b"/registry/")


@pytest.mark.parametrize(
    "key",
    [
        b"k",
        encode_row_key(3)[:-1],
        encode_row_key(3) + b"x",
        encode_row_key(3) + b"tt",
        encode_row_key(3).replace(b"_", b"."),
        b"\xff" + encode_row_key(3)[1:],
        encode_row_key(3)[:9] + b"\xff" * 8,
        b"x" * 3000,
    ],
)
@pytest.mark.parametrize("amid", [0, 300])
def test_a_row_that_etcd_would_panic_on_is_refused(tmp_path, key, amid):
    rows = {**history(amid, 2), key: b""}
    with (
        BoltFile(write_database(tmp_path / "db", {KEY_BUCKET: rows})) as file,
        pytest.raises(RecordError, match="is no revision") as caught,
    ):
        list(KeyRows(file))
    assert key[:16].hex() in caught.value.message
