"""What the small buckets of a file say, held against the etcd that wrote them, and against damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.bolt.file import BoltFile
from rootcellar.errors import EtcdError, RecordError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.membership import Member
from rootcellar.mvcc.meta import (
    BUCKETS,
    Alarm,
    Lease,
    StoreMeta,
    decode_lease,
    encode_compaction,
    encode_lease,
    encode_u64,
    leases,
)
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import FIRST, NEVER_COMPACTED, encode_row_key
from rootcellar.mvcc.varint import put_field_bytes
from testbed.binaries import LINES
from tests.mvcc.databases import snapshot_of, write_database


def fill(client):
    """Until etcd has noticed, which it does when it commits: ten times a second."""
    for number in range(10_000):
        client.put(b"%d" % (number % 100), bytes(100_000))


@pytest.mark.parametrize("etcd_line", LINES)
def test_it_says_what_the_etcd_says_that_wrote_it(etcd, etcd_line, tmp_path):
    member = etcd.start(etcd_line, flags=["--quota-backend-bytes=2000000"])
    with EtcdClient([member.endpoint]) as client:
        for number in range(10):
            client.put(b"key", b"%d" % number)
        lease = client.lease_grant(600)
        client.compact(5, physical=True)
        client.user_add("root", "secret", roles=["root"])
        client.auth_enable()
    with EtcdClient([member.endpoint], user="root", password="secret") as client:
        with pytest.raises(EtcdError, match="space"):
            fill(client)
        status = client.status()
        (listed,) = client.member_list()
        auth = client.auth_status()
        with BoltFile(snapshot_of(client, tmp_path / "db")) as file:
            found, records = StoreMeta.read(file), leases(file)
            names = [name for name, _ in file.root().buckets()]
        later = client.status()

    assert tuple(names) == BUCKETS
    assert found.revision == found.last_row == status.header.revision
    assert found.compact_revision == found.scheduled_compaction == 5
    earliest = status.raft_applied_index if etcd_line > "3.4" else 1  # 3.4 saves it with some entries only
    assert earliest <= found.consistent_index <= later.raft_applied_index
    assert found.term == (status.raft_term if etcd_line > "3.4" else 0)
    assert found.cluster_version == f"{etcd_line}.0"
    assert found.storage_version == (f"{etcd_line}.0" if etcd_line > "3.5" else None)
    assert found.auth_enabled
    assert auth is None or found.auth_revision == auth.revision
    assert found.alarms == (Alarm(status.header.member_id, "NOSPACE"),)
    assert found.members == (Member(listed.id, listed.name, listed.peer_urls, listed.client_urls),)
    assert records == {lease: Lease(lease, 600, records[lease].remaining)}


def read(path, **buckets):
    named = {name.encode(): rows for name, rows in buckets.items()}
    with BoltFile(write_database(path, named)) as file:
        return StoreMeta.read(file)


def test_a_file_without_any_bucket_is_an_empty_store(tmp_path):
    found = read(tmp_path / "db")
    assert (found.revision, found.last_row) == (FIRST, FIRST)
    assert (found.compact_revision, found.scheduled_compaction) == (NEVER_COMPACTED, NEVER_COMPACTED)
    assert (found.consistent_index, found.term, found.auth_revision) == (0, 0, 0)
    assert (found.storage_version, found.cluster_version, found.auth_enabled) == (None, None, False)
    assert (found.alarms, found.members) == ((), ())


@pytest.mark.parametrize(
    ("scheduled", "finished", "revision", "compacted"),
    [(None, None, 9, -1), (5, None, 9, 5), (5, 5, 9, 5), (7, 5, 9, 7), (40, 40, 40, 40), (40, 5, 40, 40)],
)
def test_compactions_beyond_the_last_row_raise_the_revision(
    tmp_path, scheduled, finished, revision, compacted
):
    marks = {b"scheduledCompactRev": scheduled, b"finishedCompactRev": finished}
    meta = {name: encode_compaction(at) for name, at in marks.items() if at is not None}
    rows = {encode_row_key(at): encode(KeyValue(b"k", 2, at, at - 1)) for at in range(2, 10)}
    found = read(tmp_path / "db", key=rows, meta=meta)
    assert (found.revision, found.last_row, found.compact_revision) == (revision, 9, compacted)


@pytest.mark.parametrize(
    ("bucket", "rows"),
    [
        ("meta", {b"consistent_index": b"short"}),
        ("meta", {b"term": b""}),
        ("meta", {b"scheduledCompactRev": b"short"}),
        ("meta", {b"finishedCompactRev": encode_row_key(3).replace(b"_", b"x")}),
        ("meta", {b"storageVersion": b"\xff.6"}),
        ("cluster", {b"clusterVersion": "3.\u0665".encode()}),
        ("auth", {b"authRevision": bytes(9)}),
        ("alarm", {b"\x08": b""}),
        ("alarm", {b"\x0a\x01x": b""}),
        ("members", {b"1": b"{}"}),
        ("members", {b"1": b'{"id":2}'}),
        ("members", {b"1": b'{"id":' + b"9" * 400 + b"}"}),
        ("members", {b"1": b"[" * 5000}),
        ("key", {b"k": b""}),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, bucket, rows):
    with pytest.raises(RecordError):
        read(tmp_path / "db", **{bucket: rows})


def test_an_alarm_of_a_later_etcd_has_a_number(tmp_path):
    assert read(tmp_path / "db", alarm={b"\x08\x07\x10\x09": b""}).alarms == (Alarm(7, "9"),)


@given(st.builds(Lease, *[st.integers(-(1 << 63), (1 << 63) - 1)] * 3))
def test_a_lease_comes_back(lease):
    key, value = encode_lease(lease)
    assert key == lease.id.to_bytes(8, "big", signed=True)
    assert decode_lease(value) == lease
    assert decode_lease(value + put_field_bytes(4, b"from a later etcd")) == lease


def test_numbers_are_big_endian():
    assert encode_u64(258) == bytes([0, 0, 0, 0, 0, 0, 1, 2])
