"""What a probe learns from a passing stream is what a reader finds in the file."""

from __future__ import annotations

import json
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.bolt.append import Transaction
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import BoltError, RecordError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.meta import Lease, StoreMeta, encode_compaction, encode_lease, encode_u64
from rootcellar.mvcc.probe import KEPT_BYTES, SnapshotProbe
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import KEY_BUCKET, encode_row_key
from rootcellar.mvcc.rows import KeyRows
from tests.bolt.files import make
from tests.bolt.test_appending import blank
from tests.mvcc.databases import snapshot_of, write_database
from tests.mvcc.workload import Workload


def probed(data, size=1 << 20):
    probe = SnapshotProbe()
    for at in range(0, len(data), size):
        probe.feed(data[at : at + size])
    return probe.result()


def assert_agrees(path, *sizes):
    """The probe and the readers say the same of a file, however it is cut."""
    with BoltFile(path) as file:
        meta = StoreMeta.read(file)
        expected = (
            file.size,
            meta.revision,
            meta.compact_revision,
            meta.auth_revision,
            meta.cluster_version,
            meta.storage_version,
        )
    data = path.read_bytes()
    for size in sizes or (1000, 32_768, 1 << 20, (3 << 20) + 17, len(data) + 1):
        facts = probed(data, size)
        assert (
            facts.size,
            facts.revision,
            facts.compact_revision,
            facts.auth_revision,
            facts.cluster_version,
            facts.storage_version,
        ) == expected, size


def history(count, size=100, first=2, prefix=b""):
    return {
        encode_row_key(revision): encode(KeyValue(b"%skey" % prefix, 2, revision, revision - 1, bytes(size)))
        for revision in range(first, first + count)
    }


META = {b"consistent_index": encode_u64(7), b"term": encode_u64(2), b"storageVersion": b"3.6.0"}
SMALL = {
    b"auth": {b"authEnabled": b"\0", b"authRevision": encode_u64(5)},
    b"cluster": {b"clusterVersion": b"3.6.0"},
    b"meta": {**META, b"finishedCompactRev": encode_compaction(3)},
}


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_of_etcds_is_understood_as_it_passes(etcd, etcd_line, tmp_path, seed):
    with EtcdClient([etcd.start(etcd_line).endpoint]) as client:
        workload = Workload(client, seed, value_size=4000)
        assert_agrees(snapshot_of(client, tmp_path / "empty.db"))
        for round_ in range(3):
            workload.run(60)
            assert_agrees(snapshot_of(client, tmp_path / f"{round_}.db"))
            workload.compact()
            client.defragment()
            assert_agrees(snapshot_of(client, tmp_path / f"{round_}-compacted.db"))
        workload.empty()
        client.compact(client.header().revision, physical=True)
        assert_agrees(snapshot_of(client, tmp_path / "emptied.db"))


@pytest.mark.parametrize("count", [0, 1, 3, 300, 30_000])
@pytest.mark.parametrize("page_size", [1024, 4096, 16384, 65536])
def test_files_of_all_page_sizes_are_understood(tmp_path, count, page_size):
    path = blank(tmp_path / "db", page_size)
    with Transaction(path) as transaction:
        for name, rows in {**SMALL, KEY_BUCKET: history(count)}.items():
            transaction.replace(name, rows.items())
        transaction.commit(both_metas=True)
    assert_agrees(path)


@given(sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=30), seed=st.integers(0, 5))
def test_any_chunks_say_the_same(tmp_path_factory, sizes, seed):
    path = tmp_path_factory.getbasetemp() / f"chunks-{seed}.db"
    if not path.exists():
        write_database(path, {**SMALL, KEY_BUCKET: history(400 * seed, size=900 * seed)})
    data = path.read_bytes()
    probe, at = SnapshotProbe(), 0
    while at < len(data):
        for size in sizes:
            probe.feed(data[at : at + size])
            at += size
    assert probe.result() == probed(data)


def test_pages_that_were_left_behind_do_not_mislead(boltcheck, tmp_path):
    """Hundreds of old roots, leaves and small buckets, from a bbolt that went on writing for long."""
    path = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(3000), b"lease": {}})
    for seed in range(4):
        spec = {"seed": seed, "commits": 120, "operations": 30, "bucket": "lease", "delete": 0.4}
        spec |= {"key_size": [8, 8], "value_size": [10, 10]}
        done = boltcheck("commits", path, json.dumps(spec))
        assert done.returncode == 0, done.stderr
        with Transaction(path) as transaction:
            rows = history(500, first=10_000 + 500 * seed)
            transaction.edge(KEY_BUCKET).append(list(rows), list(rows.values()))
            transaction.commit()
        assert_agrees(path)


def test_a_meta_page_that_is_older_or_damaged_gives_way_to_the_other(tmp_path):
    """A snapshot has its meta page first; a bare file may have it second."""
    path = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(50)})
    before = 51
    for number in range(3):
        with Transaction(path) as transaction:
            transaction.edge(KEY_BUCKET).append([encode_row_key(100 + number)], [b"\x0a\x01k"])
            transaction.commit()
        assert_agrees(path)
        data = bytearray(path.read_bytes())
        newer = transaction.meta.txid % 2
        for page in (0, 1):
            damaged = bytearray(data)
            damaged[page * 4096 + 40] ^= 1
            assert probed(bytes(damaged)).revision == (100 + number if page != newer else before)
        before = 100 + number


def test_huge_values_are_passed_over(tmp_path):
    rows = history(4, size=5 << 20) | history(300, first=10) | history(3, size=7 << 20, first=400)
    assert_agrees(write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: rows}), 32_768, 1 << 20, 50 << 20)


def test_a_hundred_thousand_leases_are_no_burden(tmp_path):
    leases = dict(encode_lease(Lease(number << 20, 600)) for number in range(1, 100_001))
    path = write_database(tmp_path / "db", {**SMALL, b"lease": leases, KEY_BUCKET: history(1000)})
    assert path.stat().st_size > 3 << 20
    assert_agrees(path)


def test_more_of_small_buckets_than_is_kept_hides_no_root(tmp_path):
    """However many users there are, what lies in the root page is known."""
    users = {b"user-%07d" % number: bytes(250) for number in range(KEPT_BYTES // 250)}
    path = write_database(tmp_path / "db", {**SMALL, b"aaa": users, KEY_BUCKET: history(1000)})
    assert_agrees(path, 1 << 20)


def test_small_buckets_too_large_to_keep_are_unknown_and_not_wrong(tmp_path):
    users = {b"user-%07d" % number: bytes(250) for number in range(KEPT_BYTES // 250)}
    meta = {**SMALL[b"meta"], **{b"x-%03d" % number: bytes(90) for number in range(90)}}
    path = write_database(tmp_path / "db", {b"aaa": users, **SMALL, b"meta": meta, KEY_BUCKET: history(10)})
    facts = probed(path.read_bytes())
    assert (facts.revision, facts.compact_revision, facts.storage_version) == (11, None, None)
    assert facts.auth_revision == 5


def test_a_root_bucket_that_has_outgrown_a_page_is_followed(boltcheck, tmp_path):
    """Ten buckets, most of them inline, can make bbolt split the root into leaves below a branch."""
    names = ["auth", "authRoles", "authUsers", "cluster", "lease", "members_removed", "zebra"]
    buckets = [{"name": name, "keys": 8, "key_size": [20, 30], "value_size": [70, 80]} for name in names]
    make(boltcheck, tmp_path / "db", *buckets, page_size=4096, unsynced=True)
    path = tmp_path / "db"
    with BoltFile(path) as file:
        assert not file.root().root_node().is_leaf
    assert_agrees(path)


def test_an_empty_bucket_on_a_page_of_its_own_is_no_news(tmp_path):
    path = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(300), b"meta": {}})
    with BoltFile(path) as file:
        root = file.bucket(KEY_BUCKET).root
    data = bytearray(path.read_bytes())
    data[root * 4096 + 10 : root * 4096 + 12] = b"\0\0"
    data[root * 4096 + 8] = 2
    path.write_bytes(data)
    assert_agrees(path)


def kubernetes(value):
    rows = history(50, prefix=b"/registry/pods/")
    rows[encode_row_key(99)] = encode(KeyValue(b"/registry/secrets/one", 99, 99, 1, value))
    return rows


@pytest.mark.parametrize(
    ("rows", "is_kubernetes", "encrypted"),
    [
        (history(50), False, False),
        (history(50, prefix=b"/registry/"), True, False),
        (kubernetes(b"k8s:enc:aescbc:v1:key:" + bytes(40)), True, True),
        (kubernetes(b"k8s:enc:kms:v2:" + bytes(9000)), True, True),
        (kubernetes(b"spoken of: k8s:enc:aescbc"), True, False),
        ({encode_row_key(2): encode(KeyValue(b"k", 2, 2, 1, b"k8s:enc:"))}, False, False),
    ],
)
def test_kubernetes_and_its_encryption_are_recognised(tmp_path, rows, is_kubernetes, encrypted):
    path = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: rows})
    facts = probed(path.read_bytes())
    assert (facts.is_kubernetes, facts.encrypted_at_rest) == (is_kubernetes, encrypted)
    with BoltFile(path) as file:
        assert KeyRows(file).any_key_begins(b"/registry/") == is_kubernetes


@pytest.mark.parametrize("size", [0, 50, 100, 4096, 8192])
def test_a_stream_that_breaks_off_at_once_is_told(tmp_path, size):
    data = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(50)}).read_bytes()
    with pytest.raises(BoltError, match=r"meta page|cut short"):
        probed(data[:size])


def test_a_stream_that_breaks_off_later_is_told_with_its_size(tmp_path):
    data = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(500)}).read_bytes()
    with pytest.raises(BoltError, match=f"the stream is cut short: {len(data) - 1} bytes of {len(data)}"):
        probed(data[:-1])


def test_what_is_no_database_is_told_before_it_has_passed(tmp_path):
    noise = random.Random(1).randbytes(3 << 20)
    probe = SnapshotProbe()
    with pytest.raises(BoltError, match="both meta pages are damaged"):
        probe.feed(noise)


def test_what_the_small_buckets_cannot_mean_is_an_error(tmp_path):
    path = write_database(tmp_path / "db", {b"meta": {b"finishedCompactRev": b"?"}, KEY_BUCKET: history(5)})
    with pytest.raises(RecordError):
        probed(path.read_bytes())


def test_a_right_edge_without_its_page_is_an_error(tmp_path):
    path = write_database(tmp_path / "db", {**SMALL, KEY_BUCKET: history(900)})
    with BoltFile(path) as file:
        *_, last = file.bucket(KEY_BUCKET).leaves()
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, last.start, 1)
    with pytest.raises(RecordError, match=f"page {last.page_id}, at the right edge .* did not pass by"):
        probed(bytes(data))
