"""HashKV from a file is that of the etcd it was streamed from, at every revision that can be asked for."""

from __future__ import annotations

import pytest

from rootcellar.bolt.file import BoltFile
from rootcellar.errors import EtcdError
from rootcellar.etcd.client import EtcdClient
from rootcellar.mvcc.hashkv import HashKV, hash_kv
from tests.mvcc.databases import snapshot_of
from tests.mvcc.workload import Workload


@pytest.fixture
def member(etcd, etcd_line):
    return etcd.start(etcd_line)


@pytest.fixture
def client(member):
    with EtcdClient([member.endpoint]) as client:
        yield client


def answers(client, first, last, skipping=()):
    """What the live etcd says of the revisions in between."""
    found = []
    for revision in set(range(max(first, 1), last + 1)).difference(skipping):
        try:
            answer = client.hash_kv(revision)
        except EtcdError:
            if revision == first:  # 3.4.23 refuses the compact revision itself
                continue
            raise
        found.append(HashKV(answer.hash, answer.revision, answer.compact_revision))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_random_history_has_the_hashes_that_its_etcd_answers(member, client, seed, tmp_path):
    workload = Workload(client, seed)
    compacted = [-1]
    compared = 0
    for moment in range(6):
        last = workload.run(40)
        if moment == 4:
            workload.empty()
            last = client.header().revision
        if moment % 2:
            compacted.append(workload.compact())
        # Of a compaction's target it answers from a cache, over rows that are gone since.
        live = answers(client, compacted[-1], last, skipping=compacted)
        with BoltFile(snapshot_of(client, tmp_path / f"{moment}.db")) as file:
            assert [hash_kv(file, each.revision) for each in live] == live
        compared += len(live)
    member.stop()
    member.start()  # which has forgotten the cache
    live = answers(client, compacted[-1], last)
    with BoltFile(snapshot_of(client, tmp_path / "restarted.db")) as file:
        assert [hash_kv(file, each.revision) for each in live] == live
    assert compared > 100


@pytest.mark.parametrize("emptied", [False, True])
def test_a_compaction_can_be_foretold(member, client, emptied, tmp_path):
    """The hashes after a compaction follow from a file of before it: what a restore is held against."""
    workload = Workload(client, 5)
    first = workload.run(60)
    client.compact(first - 30, physical=True)
    last = workload.run(60)
    if emptied:
        workload.empty()
        last = client.header().revision
    before = snapshot_of(client, tmp_path / "before.db")
    for target in (first, last - 20, last - 1, last):
        client.compact(target, physical=True)
        member.stop()
        member.start()
        live = answers(client, target, last)
        with BoltFile(before) as file:
            assert [hash_kv(file, each.revision, compact_revision=target) for each in live] == live, target
