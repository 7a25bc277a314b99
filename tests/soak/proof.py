"""What has to hold when the storm is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, orphans, plan_chain, recovery_window
from rootcellar.backup.prune.plan import plan_prune
from rootcellar.backup.prune.prune import prune, survey
from rootcellar.backup.prune.values import What
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
    held: int
    deleted: int
    restores: list[Checked]
    mirrored: list[Checked]


def settle_and_prove(ground, observer, writers, *, samples):
    """Wait until a recovery point reaches etcd's last revision, then hold the store against etcd."""
    last = ground.client.header().revision

    def is_over():
        return observer.failure or observer.violations or observer.claimed >= last

    wait_until(is_over, f"a recovery point at {last}", 180)
    if observer.failure is not None:
        raise observer.failure
    if ground.mirror is not None:
        wait_until(lambda: _mirror_reaches(ground, last), f"a mirror at {last}", 120)
    observer.end()
    assert observer.violations == [], observer.violations
    for agent in ground.ours:
        assert agent.terminate() == 0, agent.log_path.read_text()[-3000:]
    catalogue = read_catalogue(ground.store)
    assert catalogue.damaged == (), catalogue.damaged
    assert catalogue.lost == (), catalogue.lost
    assert len(catalogue.timelines) == 1, catalogue.timelines
    assert plan_chain(catalogue, Latest()).reach >= observer.claimed
    ebr_sees(ground.store)
    deleted = _pruned(ground, observer) if ground.rules is not None else 0
    catalogue = read_catalogue(ground.store)
    found = chains(catalogue, 1)
    reach = plan_chain(catalogue, Latest()).reach
    assert reach >= observer.claimed, (reach, observer.claimed)
    assert found[-1].gap is None, found[-1]
    targets = _targets(ground, observer, catalogue, samples)
    return Proof(
        point=observer.claimed,
        fulls=len(found),
        deltas=len([each for each in catalogue.snapshots if not each.is_full]),
        gaps=len([chain.gap for chain in found if chain.gap is not None]),
        timelines=len(catalogue.timelines),
        epochs=catalogue.epoch.number,
        held=len(observer.held),
        deleted=deleted,
        restores=[_restored(ground, writers, revision, hashed) for revision, hashed in targets],
        mirrored=[] if ground.mirror is None else [_mirrored(ground, writers, *targets[0])],
    )


def _mirror_reaches(ground, revision):
    window = recovery_window(read_catalogue(ground.mirror), (), 1)
    return (window.last or 0) >= revision


def ebr_sees(store):
    found = ebr_rules.check_prefix(store, PREFIX)
    assert found == [], found


def _pruned(ground, observer):
    """One more prune finishes what killed ones left, the next finds nothing; how many objects went.

    Then, as if the grace had passed, nothing is left that nobody speaks for, and what is held stays.
    """
    store, rules, deleted = ground.store, ground.rules, 0
    for grace in (rules.grace, timedelta(0)):
        # Behind everything that was written in the second of now; and the same for both.
        now = datetime.now(UTC) + timedelta(seconds=1)
        done = prune(store, replace(rules, grace=grace), writer="soak", clock=lambda now=now: now)
        assert (done.failed, done.locked) == ({}, {})
        deleted += len(done.deleted)
        left = plan_prune(survey(store), replace(rules, grace=grace), now)
        assert [each.key for each in left.doomed] == []
    # The tombstones that the last one wrote came after its plan: they are the next one's to sweep.
    own = {keys.tombstone(each.snapshot.name) for each in done.deleted if each.snapshot is not None}
    unspoken = {each.key for each in left.swept if each.what is not What.EPOCH} - own
    assert unspoken == set(), unspoken
    catalogue = read_catalogue(store)
    there = {each.key for each in catalogue.snapshots}
    held = {key for _, objects in observer.held.values() for key in objects}
    assert held <= there, held - there
    assert {each.key for each in catalogue.tombstones} & there <= held
    assert orphans(catalogue, 1) == []
    assert (catalogue.strays, catalogue.parts) == ((), ())
    assert len([each for each in catalogue.snapshots if each.is_full]) >= observer.most
    ebr_sees(store)
    return deleted


def _targets(ground, observer, catalogue, samples):
    """Revisions that can be restored, with the HashKV that the live cluster had for them, the last first."""
    window = recovery_window(catalogue, (), 1)
    live = ground.client.hash_kv(window.last)
    hashes = [
        each
        for each in observer.hashes
        if each.revision < window.last
        and any(first <= each.revision <= last for first, last in window.ranges)
    ]
    step = max(1, len(hashes) // samples) if samples else 1
    chosen = hashes[step // 2 :: step][:samples] if samples else []
    return [(window.last, live), *((each.revision, each) for each in chosen)]


def _mirrored(ground, writers, revision, hashed):
    """The same from the mirror, which was filled before the agents ended."""
    return _restored(ground, writers, revision, hashed, store=ground.mirror)


def _restored(ground, writers, revision, hashed, store=None):
    """Restore at a revision, start etcd on it, and hold it against HashKV and the writers' account."""
    source = store or ground.store
    member = ground.etcds.make("3.6", f"restored-{revision}-{'first' if store is None else 'mirror'}")
    began = time.monotonic()
    restore_members([member], source, revision, keep_history=True)
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
