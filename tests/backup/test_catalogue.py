from __future__ import annotations

from datetime import timedelta

import pytest

from rootcellar.backup.catalogue import documents, fence, keys, ledger, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.ownership import Heartbeat
from rootcellar.backup.catalogue.records import Check, Finding, Link, Proof, Result, Tombstone
from rootcellar.backup.catalogue.timeline import bind_marker, open_timeline
from rootcellar.errors import AlreadyExistsError, RecordError, UsageError
from rootcellar.stores.decorator import StoreDecorator
from tests.backup.builders import EPOCH, delta, full, moment, record

CLUSTER = "cdf818194e3a8c32"
BASE = names.full(10, EPOCH)
NEXT = names.delta(11, 20, EPOCH + 60)
NOW = moment(0)


def put(store, name, *, size=100, recorded=True, **fields):
    """A snapshot object and, unless told, its record."""
    store.put(name.key, [b"x" * size])
    if recorded:
        ledger.write_record(store, record(name, **fields))


def open_first_timeline(store):
    return open_timeline(
        store, parent=None, forked_at=0, cluster_id=CLUSTER, writer="agent/1", now=moment(-9)
    )


def test_what_ebr_wrote_is_a_catalogue_without_documents(ebr_backup):
    catalogue = read_catalogue(ebr_backup.store)
    assert [each.name.last for each in catalogue.snapshots][-1] == ebr_backup.expected["last_revision"]
    assert len(catalogue.snapshots) == len(catalogue.unrecorded) == 5
    assert {each.timeline for each in catalogue.snapshots} == {1}
    assert (catalogue.marker, catalogue.epoch, catalogue.damaged, catalogue.strays) == (None, None, (), ())
    plan = plan_chain(catalogue, Latest())
    assert (plan.full.last, plan.revision) == (
        ebr_backup.expected["full_revision"],
        ebr_backup.expected["last_revision"],
    )
    assert len(plan.steps) == 4


def test_an_empty_prefix_is_an_empty_catalogue(store):
    catalogue = read_catalogue(store)
    assert catalogue.snapshots == ()
    assert catalogue.newest_timeline == 1


def test_snapshots_come_with_their_records(store):
    open_first_timeline(store)
    put(store, BASE, last_revision=12, timeline=1)
    put(store, NEXT, timeline=1)
    catalogue = read_catalogue(store)
    assert [each.record.key for each in catalogue.snapshots] == [BASE.key, NEXT.key]
    assert [each.last for each in catalogue.snapshots] == [12, 20]
    assert catalogue.unrecorded == []


def test_everything_that_was_written_is_read_back(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    marker = bind_marker(store, CLUSTER, writer="agent/1", now=NOW)
    line = open_first_timeline(store)
    put(store, BASE)
    base = read_catalogue(store).snapshots[0]
    hold = ledger.write_hold(store, base, reason="audit", by="someone", now=NOW, through=20)
    pin = ledger.write_pin(store, base, by="restore", now=NOW, until=NOW + timedelta(hours=1))
    proof = Proof(
        objects=(Link(BASE.key, "b" * 64),),
        revision=10,
        findings=(Finding(Check.HASH, Result.PASSED),),
        started_at=NOW,
        finished_at=NOW,
        by="verify/1",
    )
    keep_proof(store, proof)
    beat = fence.beat(store, epoch, 10, 1, NOW)
    catalogue = read_catalogue(store)
    assert (catalogue.epoch, catalogue.marker, catalogue.timelines) == (epoch, marker, (line,))
    assert (catalogue.holds, catalogue.pins, catalogue.proofs) == ((hold,), (pin,), (proof,))
    assert catalogue.heartbeat == beat
    assert catalogue.damaged == catalogue.lost == catalogue.strays == ()


def test_what_only_looks_like_a_snapshot_to_ebr_is_a_stray(store):
    put(store, BASE)
    strays = [f"{BASE.key}.sha256", "v2/Full-00000000-00000030-7.zst", f"{BASE.key}/a/b.c"]
    part = "v2/Full-00000000-00000040-7.gz/0000000001"
    for key in [*strays[:2], part, "v2/notes.txt", "readme"]:
        store.put(key, [b"x"])
    catalogue = read_catalogue(store)
    assert [each.key for each in catalogue.snapshots] == [BASE.key]
    assert sorted(catalogue.strays) == sorted(strays[:2])
    assert catalogue.parts == (part,)


def test_a_prefix_further_down_belongs_to_another_cluster(store):
    put(store, BASE)
    store.put("other/v2/Full-00000000-00000099-1700000099.gz", [b"x"])
    store.put("other/v1/Backup-1/Full-00000000-00000099-1700000099.gz", [b"x"])
    for sealed in ("full_00000000_00000099_1700000099.zst", "delta_00000100_00000101_1700000100.zst.age"):
        store.put(f"garden/shoot--a/etcd-main/sealed/snapshots/{sealed}", [b"x"])
    for nothing in ("other2/v2/notes.txt", "sealed/snapshots/notes.txt", "dev1/readme", "Full-1-2-3/v2/x"):
        store.put(nothing, [b"x"])
    catalogue = read_catalogue(store)
    assert [each.key for each in catalogue.snapshots] == [BASE.key]
    assert catalogue.below == ("garden/shoot--a/etcd-main", "other")


def test_the_old_layout_is_read(store):
    old = names.parse("v1/Backup-1699990000/Full-00000000-00000005-1699990000")
    put(store, old)
    put(store, BASE)
    assert [each.name for each in read_catalogue(store).snapshots] == [old, BASE]


def test_a_record_without_its_object_is_lost_unless_it_was_pruned(store):
    put(store, BASE)
    put(store, NEXT)
    gone = read_catalogue(store).snapshots[1]
    ledger.write_tombstone(store, gone, reason="retention", by="prune/1", epoch=1, now=NOW)
    store.delete(BASE.key)
    store.delete(NEXT.key)
    catalogue = read_catalogue(store)
    assert [each.key for each in catalogue.lost] == [BASE.key]
    assert [each.key for each in catalogue.tombstones] == [NEXT.key]
    assert isinstance(catalogue.tombstones[0], Tombstone)


def test_an_object_of_another_length_than_recorded_is_told(store):
    put(store, BASE, size=99, stored_size=100)
    put(store, NEXT, size=100, stored_size=100)
    assert [each.key for each in read_catalogue(store).resized] == [BASE.key]


@pytest.mark.parametrize(
    "raw",
    [b"", b"not json", b"{}", documents.seal(record(NEXT)), documents.seal(record(BASE))[:-1] + b" "],
    ids=["empty", "not json", "no document", "of another snapshot", "with a changed byte"],
)
def test_a_damaged_record_is_told_and_hides_no_backup(store, raw):
    put(store, BASE, recorded=False)
    store.put(keys.record(BASE), [raw])
    catalogue = read_catalogue(store)
    assert [each.key for each in catalogue.damaged] == [keys.record(BASE)]
    assert [(each.key, each.record) for each in catalogue.snapshots] == [(BASE.key, None)]


def test_damaged_documents_of_every_kind_are_told(store):
    put(store, BASE)
    kinds = [keys.PROOFS, keys.HOLDS, keys.RELEASES, keys.PINS, keys.TOMBSTONES, keys.TIMELINES, keys.FORKS]
    kinds += [keys.MARKERS, keys.EPOCHS, keys.HEARTBEATS]
    for prefix in kinds:
        store.put(f"{prefix}x.json", [b"{}"])
    catalogue = read_catalogue(store)
    assert sorted(each.key for each in catalogue.damaged) == sorted(f"{prefix}x.json" for prefix in kinds)
    assert len(catalogue.snapshots) == 1


def test_what_lies_among_the_documents_and_is_none_is_left_alone(store):
    store.put("catalogue/notes/readme.txt", [b"hello"])
    store.put("catalogue/probe/x", [b"hello"])
    assert read_catalogue(store).damaged == ()


def test_a_heartbeat_that_is_replaced_while_the_catalogue_is_read_is_still_found(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)

    class Beats(StoreDecorator):
        """An agent that beats between each listing and what is read of it, three times."""

        left = 3

        def list(self, prefix="", **how):
            listed = list(super().list(prefix, **how))
            if self.left and any(info.key.startswith(keys.HEARTBEATS) for info in listed):
                self.left -= 1
                fence.beat(store, epoch, 7, 1, moment(4 - self.left))
            return iter(listed)

    fence.beat(store, epoch, 7, 1, NOW)
    assert read_catalogue(Beats(store)).heartbeat.time == moment(4)


def test_the_newest_heartbeat_is_kept_and_older_ones_removed(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    for second in range(3):
        fence.beat(store, epoch, 10 + second, 1, moment(second))
    assert len(list(store.list(keys.HEARTBEATS))) == 1
    beat = read_catalogue(store).heartbeat
    assert isinstance(beat, Heartbeat)
    assert (beat.revision, beat.time) == (12, moment(2))


def test_a_heartbeat_of_a_time_to_come_goes_with_the_next_one(store):
    """The clock was ahead, and was set right: the old one would say for a year that an agent is alive."""
    first = fence.claim_epoch(store, "agent/1", NOW)
    fence.beat(store, first, 10, 1, NOW + timedelta(days=365))
    fence.beat(store, first, 11, 1, NOW)
    assert read_catalogue(store).heartbeat.revision == 11
    fence.beat(store, first, 12, 1, NOW + timedelta(days=365))
    second = fence.claim_epoch(store, "agent/2", NOW)
    fence.beat(store, second, 13, 1, NOW + timedelta(seconds=1))
    assert read_catalogue(store).heartbeat.revision == 13
    assert len(list(store.list(keys.HEARTBEATS))) == 1


def test_who_was_superseded_takes_away_no_heartbeat_of_its_successor(store):
    first = fence.claim_epoch(store, "agent/1", NOW)
    fence.beat(store, fence.claim_epoch(store, "agent/2", NOW), 13, 1, NOW)
    fence.beat(store, first, 10, 1, NOW + timedelta(seconds=1))
    assert [info.key for info in store.list(keys.HEARTBEATS)] == [
        keys.heartbeat(NOW, 2),
        keys.heartbeat(NOW + timedelta(seconds=1), 1),
    ]


def test_a_released_hold_no_longer_holds_but_is_still_there(store):
    put(store, BASE)
    base = read_catalogue(store).snapshots[0]
    hold = ledger.write_hold(store, base, reason="audit", by="someone", now=NOW)
    assert read_catalogue(store).holds == (hold,)
    ledger.release_hold(store, hold, reason="done", by="someone", now=NOW)
    assert read_catalogue(store).holds == ()
    assert len(list(store.list(keys.HOLDS))) == 1
    with pytest.raises(AlreadyExistsError):
        ledger.release_hold(store, hold, reason="again", by="someone else", now=NOW)


def test_a_hold_or_a_pin_names_a_full(store):
    with pytest.raises(UsageError, match="is a delta"):
        ledger.write_hold(store, delta(11, 20), reason="audit", by="someone", now=NOW)
    with pytest.raises(UsageError, match="is a delta"):
        ledger.write_pin(store, delta(11, 20), by="someone", now=NOW, until=NOW)


def test_a_pin_can_be_removed_and_that_twice(store):
    pin = ledger.write_pin(store, full(10), by="restore", now=NOW, until=NOW)
    ledger.remove_pin(store, pin)
    ledger.remove_pin(store, pin)
    assert read_catalogue(store).pins == ()


def test_a_record_that_contradicts_itself_is_not_written(store):
    with pytest.raises(RecordError, match="contradicts its name"):
        ledger.write_record(store, record(NEXT, last_revision=19))
    assert list(store.list(keys.RECORDS)) == []


def test_a_snapshot_without_a_record_is_on_the_timeline_of_its_claim(store):
    """A writer that was paused before the fork publishes after it."""
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    open_first_timeline(store)
    fence.claim_slot(store, epoch, NEXT, "b" * 64, 1, NOW)
    open_timeline(store, parent=1, forked_at=10, cluster_id=CLUSTER, writer="agent/2", now=moment(30))
    put(store, BASE)
    put(store, NEXT, recorded=False)
    [base, late] = read_catalogue(store).snapshots
    assert (base.timeline, late.timeline, late.assumed) == (1, 1, False)


def test_the_claim_of_another_key_says_nothing(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    open_first_timeline(store)
    fence.claim_slot(store, epoch, names.delta(11, 25, EPOCH + 61), "b" * 64, 1, NOW)
    open_timeline(store, parent=1, forked_at=10, cluster_id=CLUSTER, writer="agent/2", now=moment(30))
    put(store, NEXT, recorded=False)
    [late] = read_catalogue(store).snapshots
    assert (late.timeline, late.assumed) == (2, True)


@pytest.mark.parametrize(("at", "expected"), [(-100, 1), (0, 1), (29, 1), (30, 2), (99, 2)])
def test_a_snapshot_that_nothing_speaks_of_is_on_the_timeline_then_open(store, at, expected):
    open_first_timeline(store)
    open_timeline(store, parent=1, forked_at=5, cluster_id=CLUSTER, writer="agent/2", now=moment(30))
    put(store, names.full(10, EPOCH + at), recorded=False)
    [snapshot] = read_catalogue(store).snapshots
    assert (snapshot.timeline, snapshot.assumed) == (expected, True)


def test_an_abandoned_snapshot_keeps_its_name_and_its_record(store):
    ledger.write_record(store, record(NEXT, timeline=3))
    store.put(keys.abandoned(NEXT, 3), [b"x" * 100])
    store.put(keys.abandoned(BASE, 2), [b"x" * 100])
    base, late = read_catalogue(store).snapshots
    assert (base.name, base.timeline, base.record) == (BASE, 2, None)
    assert (late.name, late.timeline, late.record.key) == (NEXT, 3, NEXT.key)
    assert late.key == keys.abandoned(NEXT, 3)
    assert read_catalogue(store).lost == ()
