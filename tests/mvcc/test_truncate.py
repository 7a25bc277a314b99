"""A file goes back to an earlier revision, as far as its own compaction lets it."""

from __future__ import annotations

import pytest

from rootcellar.bolt.append import Transaction
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import NothingToRestoreError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.meta import StoreMeta, encode_compaction
from rootcellar.mvcc.revision import KEY_BUCKET, decode_row_key
from rootcellar.mvcc.truncate import truncate_after
from tests.mvcc.databases import write_database
from tests.mvcc.test_supersede import empty_leaf, history, rows_of


def truncated(path, revision):
    with Transaction(path) as transaction:
        done = truncate_after(transaction, revision)
        transaction.commit(both_metas=True)
    return done


@pytest.mark.parametrize("count", [0, 2, 6, 60, 900])
@pytest.mark.parametrize("revision", [1, 2, 5, 33, 60, 61, 62, 899, 901, 5000])
def test_everything_later_goes_and_nothing_else(tmp_path, count, revision):
    rows = history(count)
    path = write_database(tmp_path / "db", {KEY_BUCKET: rows, b"lease": {b"a": b"b"}})
    before = None
    if revision <= count + 1:
        with BoltFile(path) as file:
            before = hash_kv(file, revision)

    removed = truncated(path, revision).rows

    expected = {key: value for key, value in rows.items() if decode_row_key(key).main <= revision}
    assert rows_of(path) == expected
    assert removed == len(rows) - len(expected)
    with BoltFile(path) as file:
        assert file.bucket(b"lease").get(b"a") == b"b"
        if before is not None:
            assert hash_kv(file) == before


def test_nothing_lies_below_the_compaction(tmp_path):
    meta = {b"finishedCompactRev": encode_compaction(40)}
    path = write_database(tmp_path / "db", {KEY_BUCKET: history(60), b"meta": meta})
    before = path.read_bytes()

    with pytest.raises(
        NothingToRestoreError, match=r"revision 39 was compacted away .*compacted at 40"
    ) as caught:
        truncated(path, 39)

    assert "an older full" in caught.value.hint
    assert path.read_bytes() == before
    truncated(path, 40)
    with BoltFile(path) as file:
        assert StoreMeta.read(file).revision == 40


def test_an_empty_bucket_on_a_page_of_its_own_is_left_alone(tmp_path):
    path = empty_leaf(tmp_path / "db")
    assert truncated(path, 1) == (0, set())
    assert rows_of(path) == {}
