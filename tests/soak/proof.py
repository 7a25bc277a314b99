"""What has to hold when the storm is over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, plan_chain
from rootcellar.errors import CompactedError
from rootcellar.etcd.client import EtcdClient
from tests.agent.agents import wait_until
from tests.backup import ebr_rules
from tests.backup.plans import restore_members
from tests.soak.ground import PREFIX


class Checked(NamedTuple):
    """One restore: how many acknowledged writes were found in its history, and whether hashes could be
    compared.
    """

    revision: int
    writes: int
    keys: int
    hashed: bool
    seconds: float


@dataclass
class Proof:
    """`restores` at sampled revisions, the last point first."""

    point: int
    fulls: int
    deltas: int
    gaps: int
    timelines: int
    epochs: int
    restores: list[Checked]


def settle_and_prove(ground, observer, writers, *, samples):
    """Wait until a recovery point reaches etcd's last revision, then hold the store against etcd."""
    last = ground.client.header().revision

    def is_over():
        return observer.failure or observer.violations or observer.claimed >= last

    wait_until(is_over, f"a recovery point at {last}", 180)
    if observer.failure is not None:
        raise observer.failure
    observer.end()
    assert observer.violations == [], observer.violations
    for agent in ground.ours:
        assert agent.terminate() == 0, agent.log_path.read_text()[-3000:]
    catalogue = read_catalogue(ground.store)
    assert catalogue.damaged == (), catalogue.damaged
    assert catalogue.lost == (), catalogue.lost
    assert len(catalogue.timelines) == 1, catalogue.timelines
    found = ebr_rules.check_prefix(ground.store, PREFIX)
    assert found == [], found
    reach = plan_chain(catalogue, Latest()).reach
    assert reach >= observer.claimed, (reach, observer.claimed)
    found = chains(catalogue, 1)
    gaps = [chain.gap for chain in found if chain.gap is not None]
    restores = [
        _restored(ground, writers, revision, hashed)
        for revision, hashed in _targets(ground, observer, reach, samples)
    ]
    return Proof(
        point=observer.claimed,
        fulls=len(found),
        deltas=len([each for each in catalogue.snapshots if not each.is_full]),
        gaps=len(gaps),
        timelines=len(catalogue.timelines),
        epochs=catalogue.epoch.number,
        restores=restores,
    )


def _targets(ground, observer, reach, samples):
    """Revisions with the HashKV that the live cluster had for them, the last one first."""
    live = ground.client.hash_kv(reach)
    hashes = [each for each in observer.hashes if each.revision < reach]
    step = max(1, len(hashes) // samples) if samples else 1
    chosen = hashes[step // 2 :: step][:samples] if samples else []
    return [(reach, live), *((each.revision, each) for each in chosen)]


def _restored(ground, writers, revision, hashed):
    """Restore at a revision, start etcd on it, and hold it against HashKV and the writers' account."""
    member = ground.etcds.make("3.6", f"restored-{revision}")
    began = time.monotonic()
    restore_members([member], ground.store, revision, keep_history=True)
    seconds = time.monotonic() - began
    member.start()
    with EtcdClient([member.endpoint]) as client:
        assert client.header().revision == revision
        own = client.hash_kv(revision)
        keys = _state_holds(client, writers, revision)
        writes = _history_holds(client, writers, own.compact_revision, revision)
        is_comparable = own.compact_revision <= hashed.compact_revision
        if is_comparable:
            # The same history with the same compaction is the same hash.
            if own.compact_revision < hashed.compact_revision:
                client.compact(hashed.compact_revision, physical=True)
            assert client.hash_kv(revision) == hashed
    member.kill()
    return Checked(revision, writes, keys, is_comparable, seconds)


def _state_holds(client, writers, revision):
    """Every key as it was acknowledged last; or as a write left it that nobody heard of again."""
    there = {kv.key: kv for page in client.pages(b"\0", b"\0") for kv in page.kvs}
    expected = writers.state(revision)
    for key, (at, value) in expected.items():
        kv = there.get(key)
        if kv is not None and kv.mod_revision == at:
            assert kv.value == value, (key, at)
        elif kv is not None:
            assert kv.mod_revision > at, (key, at, kv.mod_revision)
            assert kv.value in writers.unknown[key], (key, at, kv.mod_revision)
        else:
            assert value is None or None in writers.unknown[key], (key, at)
    return len(expected)


def _history_holds(client, writers, compacted, revision):
    """Every acknowledged write behind the compaction, by its revision."""
    wanted = {
        (at, key): value for at, key, value in writers.acknowledged if max(compacted, 1) < at <= revision
    }
    count, reached = len(wanted), max(compacted, 1)
    try:
        with client.watch(max(compacted, 1) + 1) as watch:
            while reached < revision:
                batch = watch.get(10)
                assert batch is not None, f"the restored history ends at {reached}"
                for event in batch.events:
                    reached = event.kv.mod_revision
                    key = (reached, event.kv.key)
                    if key in wanted:
                        assert wanted.pop(key) == (None if event.type == 1 else event.kv.value), key
    except CompactedError:
        assert revision <= compacted
    # Deletions of keys that were not there have no event.
    left = {key: value for key, value in wanted.items() if value is not None}
    assert left == {}
    return count
