import random
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.browse.browse import opened, opened_twice
from rootcellar.backup.browse.difference import Difference, Kind, difference
from rootcellar.backup.browse.live import LiveKey, LiveKeyspace
from rootcellar.backup.catalogue.chain import AtRevision, Latest
from rootcellar.errors import CompactedError
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.mvcc.history import EVERYTHING, KeyRange, Keyspace
from rootcellar.mvcc.record import KeyValue
from tests.mvcc.databases import as_record, snapshot_of


class Listed:
    """A keyspace of given records."""

    revision = 1

    def __init__(self, records):
        self.records = records

    def live(self, within=EVERYTHING):
        ordered = sorted(self.records, key=lambda kv: kv.key)
        return iter([LiveKey(kv.key, kv) for kv in ordered if kv.key in within])


def kinds(*arguments, **options):
    return {each.key: each.kind for each in difference(*arguments, **options)}


def test_two_revisions_of_one_file_differ_by_what_happened_between(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        lease = client.lease_grant(600)
        for key in (b"same", b"changed", b"removed", b"rewritten", b"leased"):
            client.put(key, b"1")
        before = client.header().revision
        client.put(b"changed", b"2")
        client.put(b"rewritten", b"1")
        client.put(b"leased", b"1", lease=lease)
        client.delete(b"removed")
        client.put(b"added", b"new")
        with opened_twice(snapshot_of(client, tmp_path / "db"), AtRevision(before), Latest()) as (one, two):
            found = {each.key: each for each in difference(one.keyspace, two.keyspace)}
            assert {key: each.kind for key, each in found.items()} == {
                b"added": Kind.ADDED,
                b"changed": Kind.CHANGED,
                b"leased": Kind.CHANGED,
                b"removed": Kind.REMOVED,
            }
            assert list(found) == sorted(found)
            assert found[b"changed"].fields == ("mod_revision", "version", "value")
            assert found[b"leased"].fields == ("mod_revision", "version", "lease")
            assert (found[b"added"].before, found[b"added"].after.value) == (None, b"new")
            assert found[b"added"].fields == ()
            with_rewritten = kinds(one.keyspace, two.keyspace, rewritten=True)
            assert with_rewritten == {key: each.kind for key, each in found.items()} | {
                b"rewritten": Kind.REWRITTEN
            }
            assert kinds(one.keyspace, two.keyspace, KeyRange.prefix(b"re")) == {b"removed": Kind.REMOVED}
            assert kinds(one.keyspace, one.keyspace) == {}


def test_a_backup_is_compared_with_the_live_etcd_it_came_from(etcd, etcd_line, tmp_path):
    rng = random.Random(7)
    member = etcd.start(etcd_line)
    with EtcdClient([member.endpoint]) as client:
        for number in range(300):
            client.put(b"k%03d" % number, rng.randbytes(rng.choice([0, 10, 100_000])))
        with opened(snapshot_of(client, tmp_path / "db")) as backup:
            assert kinds(backup.keyspace, LiveKeyspace(client)) == {}
            client.put(b"k000", b"other")
            client.put(b"k150x", b"new")
            client.delete(b"k299")
            now = LiveKeyspace(client)
            client.put(b"later", b"not seen")
            assert kinds(backup.keyspace, now) == {
                b"k000": Kind.CHANGED,
                b"k150x": Kind.ADDED,
                b"k299": Kind.REMOVED,
            }
            assert kinds(now, backup.keyspace, KeyRange.prefix(b"k15")) == {b"k150x": Kind.REMOVED}


def test_a_live_keyspace_reads_what_a_range_answers_in_pages_of_any_size(etcd, tmp_path):
    rng = random.Random(8)
    member = etcd.start("3.7")
    with EtcdClient([member.endpoint]) as client:
        for _ in range(200):
            client.put(rng.randbytes(rng.randrange(1, 40)), rng.randbytes(1 << rng.randrange(18)))
        everything = client.range(*ALL_KEYS)
        live = LiveKeyspace(client)
        assert [each.record for each in live.live()] == [as_record(kv) for kv in everything.kvs]
        for within in (
            KeyRange.prefix(b"\x80"),
            KeyRange(b"b", b"a"),
            KeyRange(b"b", b"b"),
            KeyRange(b"\xf0"),
        ):
            wanted = [as_record(kv) for kv in everything.kvs if kv.key in within]
            assert [each.record for each in live.live(within)] == wanted


def test_a_live_keyspace_compacted_meanwhile_says_so(etcd):
    member = etcd.start("3.5")
    with EtcdClient([member.endpoint]) as client:
        for number in range(50):
            client.put(b"k%d" % number, b"v")
        with closing(LiveKeyspace(client).live()) as keys:
            next(keys)
            client.compact(client.put(b"k", b"v").revision, physical=True)
            with pytest.raises(CompactedError):
                list(keys)


def test_two_backups_of_different_clusters_are_compared_by_value(tmp_path):
    one = Listed([KeyValue(b"a", 2, 2, 1, b"x"), KeyValue(b"b", 3, 3, 1, b"y")])
    two = Listed([KeyValue(b"a", 9, 9, 3, b"x"), KeyValue(b"b", 8, 8, 1, b"z")])
    (found,) = difference(one, two)
    assert found == Difference(b"b", Kind.CHANGED, *(listed.records[1] for listed in (one, two)))


def test_an_inline_bucket_has_equal_rows_though_they_are_copies(etcd, tmp_path):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"a", b"1")
        with opened(snapshot_of(client, tmp_path / "db")) as backup:
            assert kinds(Keyspace(backup.file), Keyspace(backup.file)) == {}


records = st.builds(
    KeyValue,
    key=st.binary(max_size=2),
    create_revision=st.integers(1, 2),
    mod_revision=st.integers(2, 3),
    version=st.just(1),
    value=st.binary(max_size=1),
    lease=st.integers(0, 1),
)
keyspaces = st.lists(records, max_size=8, unique_by=lambda kv: kv.key)


@given(keyspaces, keyspaces)
def test_the_difference_leads_from_one_to_the_other(one, two):
    state = {kv.key: kv for kv in one}
    for each in difference(Listed(one), Listed(two), rewritten=True):
        assert state.get(each.key) == each.before
        assert (each.kind is Kind.ADDED) == (each.before is None)
        state[each.key] = each.after
        if each.kind is Kind.REMOVED:
            del state[each.key]
    assert state == {kv.key: kv for kv in two}
