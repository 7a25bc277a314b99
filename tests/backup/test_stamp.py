"""What makes a database a member of a new cluster: which small rows change, which stay, and what is told."""

from __future__ import annotations

import json

import pytest

from rootcellar.backup.restore.database import Applied
from rootcellar.backup.restore.membership import DEFAULT_LEASE_TTL, bump_revision, raft_index, stamp
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import TargetError
from rootcellar.mvcc.hashkv import hash_kv
from rootcellar.mvcc.membership import parse_members
from rootcellar.mvcc.meta import (
    BUCKETS,
    Alarm,
    Lease,
    StoreMeta,
    encode_compaction,
    encode_lease,
    encode_u64,
    leases,
)
from rootcellar.mvcc.revision import KEY_BUCKET
from tests.backup.histories import invent, rows_of
from tests.mvcc.databases import write_database

MEMBERS = parse_members(["a=http://h1:2380", "b=http://h2:2380", "c=http://h3:2380"], token="t")
OLD = {
    KEY_BUCKET: rows_of(invent(50, 1)),
    b"alarm": {b"\x08\x07\x10\x01": b"", b"\x08\x09\x10\x02": b""},
    b"auth": {b"authEnabled": b"\x01", b"authRevision": encode_u64(4)},
    b"authUsers": {b"root": b"\x0a\x04root"},
    b"cluster": {b"clusterVersion": b"3.6.0", b"downgrade": b'{"target-version":"3.5.0","enabled":true}'},
    b"lease": dict([encode_lease(Lease(5, 600, 70))]),
    b"members": {b"1f": json.dumps({"id": 31, "peerURLs": ["http://old:2380"]}).encode()},
    b"members_removed": {b"1e": b"removed"},
    b"meta": {
        b"consistent_index": encode_u64(900),
        b"term": encode_u64(8),
        b"confState": b'{"voters":[31]}',
        b"storageVersion": b"3.6.0",
        b"finishedCompactRev": encode_compaction(9),
        b"scheduledCompactRev": encode_compaction(9),
    },
}


def stamped(path, applied=None, ttls=None, members=MEMBERS):
    with Transaction(path) as transaction:
        told = stamp(transaction, members, applied or Applied(51), ttls or {})
        transaction.commit(both_metas=True)
    with BoltFile(path) as file:
        check(file)
    return told


def contents(path):
    with BoltFile(path) as file:
        return {name: dict(bucket.items()) for name, bucket in file.root().buckets()}


@pytest.fixture
def path(tmp_path):
    return write_database(tmp_path / "db", OLD)


def test_the_old_cluster_is_forgotten_and_the_new_one_written(path):
    told = stamped(path)
    after = contents(path)
    with BoltFile(path) as file:
        assert sorted(StoreMeta.read(file).members, key=lambda member: member.id) == list(MEMBERS)
    assert after[b"members_removed"] == {}
    assert after[b"alarm"] == {}
    assert after[b"cluster"] == {b"clusterVersion": b"3.6.0"}
    assert after[b"meta"] == {
        b"consistent_index": encode_u64(3),
        b"term": encode_u64(1),
        b"storageVersion": b"3.6.0",
        b"finishedCompactRev": encode_compaction(9),
        b"scheduledCompactRev": encode_compaction(9),
    }
    assert raft_index(MEMBERS) == 3
    assert told.alarms_dropped == (Alarm(7, "NOSPACE"), Alarm(9, "CORRUPT"))
    assert told.auth_enabled


def test_keys_users_and_leases_stay(path):
    stamped(path)
    after = contents(path)
    for name in (KEY_BUCKET, b"auth", b"authUsers", b"lease"):
        assert after[name] == OLD[name]


@pytest.mark.parametrize("kept", [[], [KEY_BUCKET], [KEY_BUCKET, b"meta"]])
def test_buckets_that_are_missing_are_made(tmp_path, kept):
    path = write_database(tmp_path / "db", {name: OLD[name] for name in kept})
    stamped(path)
    assert tuple(contents(path)) == BUCKETS


def test_leases_of_the_chain_are_made_again_and_those_of_the_full_left_alone(path):
    told = stamped(path, Applied(51, leases={5, 6, -7, 1 << 62}), {6: 90, 5: 1})
    with BoltFile(path) as file:
        assert leases(file) == {
            5: Lease(5, 600, 70),
            6: Lease(6, 90),
            -7: Lease(-7, DEFAULT_LEASE_TTL),
            1 << 62: Lease(1 << 62, DEFAULT_LEASE_TTL),
        }
    assert told.leases_created == (-7, 6, 1 << 62)
    assert told.leases_of_unknown_ttl == (-7, 1 << 62)


@pytest.mark.parametrize(("compaction", "scheduled"), [(-1, 9), (5, 9), (9, 9), (40, 40)])
def test_a_later_compaction_is_left_for_etcd_to_finish(path, compaction, scheduled):
    stamped(path, Applied(51, compact_revision=compaction))
    meta = contents(path)[b"meta"]
    assert meta[b"scheduledCompactRev"] == encode_compaction(scheduled)
    assert meta[b"finishedCompactRev"] == encode_compaction(9)


def test_stamping_again_changes_nothing(path):
    stamped(path)
    first = contents(path)
    stamped(path)
    assert contents(path) == first


def test_a_raise_compacts_all_that_was_and_goes_on_behind_it(path):
    assert bump_revision(path, 1000) == 1051
    with BoltFile(path) as file:
        meta = StoreMeta.read(file)
        assert (meta.revision, meta.last_row, meta.compact_revision) == (1051, 51, 1051)
        assert meta.consistent_index == 900
        assert hash_kv(file).compact_revision == 1051
    assert contents(path)[KEY_BUCKET] == OLD[KEY_BUCKET]
    assert bump_revision(path, 10) == 1061


@pytest.mark.parametrize("by", [0, -1, 1 << 62, 1 << 70])
def test_a_raise_to_nowhere_is_refused(path, by):
    before = path.read_bytes()
    with pytest.raises(TargetError, match="cannot be raised by") as caught:
        bump_revision(path, by)
    assert "--bump-revision" in caught.value.hint
    assert path.read_bytes() == before
