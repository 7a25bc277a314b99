from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from rootcellar.backup.catalogue import documents, fence, keys, ledger, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest, plan_chain
from rootcellar.backup.catalogue.ownership import ForkIntent, Marker, Timeline
from rootcellar.backup.catalogue.timeline import abandon, bind_marker, leave_fork_intent, open_timeline
from rootcellar.errors import (
    AlreadyExistsError,
    FencedError,
    IdentityError,
    LockedError,
    RecordError,
    StoreError,
    UsageError,
)
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.builders import EPOCH, moment, record

OURS, THEIRS = "cdf818194e3a8c32", "1234abcd"
NOW = moment(0)


class Overwriting(FileStore):
    """A store without conditional create: it looks, and then writes whatever it saw."""

    def put(self, key, chunks, *, condition=None):
        if condition is not None:
            looked = [info.key for info in self.list(key)]
            self.pause()
            if key in looked:
                raise AlreadyExistsError(f"{key} exists")
        raw = b"".join(chunks)
        info = super().put(key, [raw])
        self.settle(key, raw)
        return info

    def pause(self):
        """Where another writer can come between, before the write."""

    def settle(self, key, raw):
        """And after it."""


def bind(store, cluster=OURS, **options):
    return bind_marker(store, cluster, writer="agent/1", now=NOW, **options)


def intend(store, cluster=THEIRS, nonce="abcd", **fields):
    defaults = {"timeline": 1, "forked_at": 20, "revision": 20, "by": "restore", "created_at": NOW}
    intent = ForkIntent(cluster_id=cluster, nonce=nonce, **(defaults | fields))
    return leave_fork_intent(store, intent)


def open_line(store, parent=None, forked_at=0, at=0.0, **options):
    return open_timeline(
        store,
        parent=parent,
        forked_at=forked_at,
        cluster_id=OURS,
        writer="agent/1",
        now=moment(at),
        **options,
    )


# The fence


def test_every_claim_takes_the_next_epoch_and_fences_those_before(store):
    first = fence.claim_epoch(store, "agent/1", NOW)
    fence.check_epoch(store, first)
    second = fence.claim_epoch(store, "agent/2", NOW)
    assert (first.number, second.number) == (1, 2)
    fence.check_epoch(store, second)
    with pytest.raises(FencedError, match="epoch 1 of agent/1 was superseded by epoch 2") as told:
        fence.check_epoch(store, first)
    assert "stop it" in told.value.hint


def test_many_claims_at_once_all_get_different_epochs_and_one_is_the_last(store):
    start = threading.Barrier(8)

    def claim(writer):
        start.wait()
        return fence.claim_epoch(store, writer, NOW)

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(claim, [f"agent/{n}" for n in range(8)]))
    assert sorted(epoch.number for epoch in epochs) == list(range(1, 9))
    last = max(epochs, key=lambda epoch: epoch.number)
    fence.check_epoch(store, last)
    for epoch in epochs:
        if epoch != last:
            with pytest.raises(FencedError):
                fence.check_epoch(store, epoch)


def test_two_writers_of_one_number_are_told_apart_where_a_store_has_no_conditions(tmp_path):
    store = Overwriting(tmp_path)
    rival = []

    def pass_each_other():
        store.pause = lambda: None
        rival.append(fence.claim_epoch(store, "agent/2", NOW))

    store.pause = pass_each_other
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    assert (epoch.number, rival[0].number) == (1, 1)
    fence.check_epoch(store, epoch)
    with pytest.raises(FencedError, match="epoch 1 was taken by agent/1 at the same time"):
        fence.check_epoch(store, rival[0])


def test_an_epoch_that_somebody_deleted_is_no_longer_held(store):
    fence.claim_epoch(store, "agent/1", NOW)
    epoch = fence.claim_epoch(store, "agent/2", NOW)
    store.delete(keys.epoch(2))
    with pytest.raises(FencedError, match="epoch 2 of agent/2 is gone"):
        fence.check_epoch(store, epoch)


def test_a_store_that_has_forgotten_all_epochs_is_away_and_fences_nobody(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    store.delete(keys.epoch(1))
    with pytest.raises(StoreError, match="is empty, and agent/1 wrote to it in epoch 1") as caught:
        fence.check_epoch(store, epoch)
    assert "mounted" in caught.value.hint


def test_a_slot_is_claimed_once_in_an_epoch(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    name = names.delta(11, 20, EPOCH)
    claim = fence.claim_slot(store, epoch, name, "a" * 64, 1, NOW)
    assert fence.claim_slot(store, epoch, name, "a" * 64, 1, NOW) == claim
    with pytest.raises(AlreadyExistsError):
        fence.claim_slot(store, epoch, names.delta(11, 25, EPOCH), "b" * 64, 1, NOW)
    later = fence.claim_epoch(store, "agent/2", NOW)
    fence.claim_slot(store, later, names.delta(11, 25, EPOCH), "b" * 64, 1, NOW)


def test_a_full_has_no_slot(store):
    epoch = fence.claim_epoch(store, "agent/1", NOW)
    with pytest.raises(UsageError, match="is a full"):
        fence.claim_slot(store, epoch, names.full(10, EPOCH), "a" * 64, 1, NOW)


# The marker


def test_the_first_cluster_binds_the_prefix_and_finds_it_bound(store):
    marker = bind(store)
    assert bind(store) == marker
    assert read_catalogue(store).marker == marker


def test_another_cluster_is_refused(store):
    bind(store)
    with pytest.raises(IdentityError, match=f"of cluster {OURS}, and this is cluster {THEIRS}") as told:
        bind(store, THEIRS)
    assert "a prefix of its own" in told.value.hint


def test_another_cluster_is_let_in_with_a_reason_that_is_kept(store):
    bind(store)
    marker = bind(store, THEIRS, override="moved by hand")
    assert (marker.number, marker.reason) == (2, "moved by hand")
    assert bind(store, THEIRS) == marker
    with pytest.raises(IdentityError):
        bind(store, OURS)


def test_a_restored_cluster_is_let_in_by_the_intent_of_its_restore(store):
    bind(store)
    intent = intend(store)
    marker = bind(store, THEIRS)
    assert marker.reason == f"fork intent {intent.nonce}"
    with pytest.raises(IdentityError):
        bind(store, "5678")


def test_of_two_clusters_that_bind_at_once_one_is_refused(store):
    start = threading.Barrier(2)

    def attempt(cluster):
        start.wait()
        try:
            return bind(store, cluster).cluster_id
        except IdentityError:
            return None

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(attempt, [OURS, THEIRS]))
    assert outcomes.count(None) == 1
    assert read_catalogue(store).marker.cluster_id in outcomes


def test_a_marker_that_cannot_be_read_lets_nobody_in(store):
    bind(store)
    store.put(keys.marker(2), [b"damaged"])
    for cluster in (OURS, THEIRS):
        with pytest.raises(RecordError):
            bind(store, cluster, override="please")


# Timelines and forks


def test_timelines_are_numbered_in_order(store):
    assert [open_line(store).number, open_line(store, 1, 20).number] == [1, 2]
    assert [each.parent for each in read_catalogue(store).timelines] == [None, 1]


def test_a_timeline_is_above_its_parent_even_if_the_parents_document_is_lost(store):
    assert open_line(store, 4, 20).number == 5


def test_two_writers_cannot_open_the_same_timeline(store):
    start = threading.Barrier(2)

    def attempt(_):
        start.wait()
        try:
            return open_line(store).number
        except FencedError:
            return None

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(attempt, range(2)))
    assert sorted(outcomes, key=str) in ([1, None], [1, 2])


def test_an_intent_is_pending_until_a_timeline_follows_it(store):
    bind(store)
    intent = intend(store)
    assert read_catalogue(store).pending_intent(THEIRS) == intent
    assert read_catalogue(store).pending_intent(OURS) is None
    open_line(store, 1, 20, intent=intent.nonce)
    assert read_catalogue(store).pending_intent(THEIRS) is None


def test_one_restore_announces_one_fork_on_however_many_hosts(store):
    assert intend(store) == intend(store, created_at=moment(60))
    assert len(list(store.list(keys.FORKS))) == 1
    assert intend(store, nonce="ef01", created_at=moment(60)) != intend(store)


class KilledError(Exception):
    pass


class Dying(FileStore):
    """A store under a process that is killed before its nth change."""

    def __init__(self, root, changes):
        super().__init__(root)
        self.left = changes

    def _change(self):
        if self.left == 0:
            raise KilledError
        self.left -= 1

    def put(self, key, chunks, *, condition=None):
        self._change()
        return super().put(key, chunks, condition=condition)

    def delete(self, key, *, version=None):
        self._change()
        super().delete(key, version=version)


def visible(store):
    return [info.key for info in store.list("v2/")]


def test_what_a_fork_left_behind_is_moved_out_of_ebrs_sight(ebr_backup):
    store, last = ebr_backup.store, ebr_backup.expected["last_revision"]
    before = {info.key: info.size for info in store.list("v2/")}
    fork = read_catalogue(store).snapshots[2].last
    open_line(store)
    open_line(store, 1, fork, at=10**9)
    done = abandon(store, read_catalogue(store))
    assert len(done.moved) == 2
    assert done.locked == ()
    assert ebr_rules.check_prefix(store) == []
    catalogue = read_catalogue(store)
    assert plan_chain(catalogue, Latest()).revision == fork
    dead = plan_chain(catalogue, Latest(), timeline=1)
    assert (dead.revision, len(dead.steps)) == (last, 4)
    assert {each.name.key: each.size for each in catalogue.snapshots} == before
    assert abandon(store, catalogue).moved == ()


@pytest.mark.parametrize("ebr_backup", ["gzip-3.5"], indirect=True)
def test_a_crash_while_abandoning_leaves_every_object_and_an_older_history_to_ebr(ebr_backup):
    whole = plan_chain(read_catalogue(ebr_backup.store), Latest())
    fork = whole.steps[0].after + 5  # within the first delta: that one goes too
    open_line(ebr_backup.store)
    open_line(ebr_backup.store, 1, fork, at=10**9)
    crashes = 0
    while True:
        dying = Dying(ebr_backup.root, crashes % 3)
        try:
            abandon(dying, read_catalogue(dying))
        except KilledError:
            crashes += 1
        else:
            break
        catalogue = read_catalogue(ebr_backup.store)
        assert ebr_rules.check_prefix(ebr_backup.store) == []
        assert plan_chain(catalogue, Latest(), timeline=1).revision == whole.revision
        assert plan_chain(catalogue, AtRevision(fork)).revision == fork
    assert crashes > 4
    assert visible(ebr_backup.store) == [whole.full.key]
    assert ebr_rules.check_prefix(ebr_backup.store) == []


class Immutable(FileStore):
    """A bucket with retention: what is below `v2/` cannot be deleted."""

    def delete(self, key, *, version=None):
        if key.startswith("v2/"):
            raise LockedError(f"{key} is retained")
        super().delete(key, version=version)


def test_what_the_store_does_not_let_go_of_is_told_and_not_kept_twice(ebr_backup):
    before = visible(ebr_backup.store)
    fork = read_catalogue(ebr_backup.store).snapshots[-2].last
    open_line(ebr_backup.store)
    open_line(ebr_backup.store, 1, fork, at=10**9)
    done = abandon(Immutable(ebr_backup.root), read_catalogue(ebr_backup.store))
    assert (done.moved, done.locked) == ((), (before[-1],))
    assert visible(ebr_backup.store) == before
    assert list(ebr_backup.store.list(keys.ABANDONED)) == []


def test_what_the_newest_timeline_wrote_itself_is_never_abandoned(store):
    open_line(store)
    open_line(store, 1, 20, at=30)
    for name, timeline in (
        (names.full(10, EPOCH), 1),
        (names.delta(11, 20, EPOCH), 1),
        (names.delta(21, 30, EPOCH), 1),
        (names.full(25, EPOCH + 60), 2),
        (names.delta(26, 40, EPOCH + 90), 2),
    ):
        store.put(name.key, [b"x" * 100])
        ledger.write_record(store, record(name, timeline=timeline))
    assert abandon(store, read_catalogue(store)).moved == (names.delta(21, 30, EPOCH).key,)
    catalogue = read_catalogue(store)
    assert plan_chain(catalogue, Latest()).revision == 40
    assert plan_chain(catalogue, AtRevision(15)).timeline == 1
    assert catalogue.lost == ()


def overwrite_with(store, change):
    """As soon as the store has a document, another writer puts its own in its place."""

    def settle(key, raw):
        store.settle = lambda _key, _raw: None
        members = {name: value for name, value in json.loads(raw).items() if name != "sha256"} | change
        sealed = documents.seal(msgspec.convert(members, Timeline if "timelines" in key else Marker))
        store.put(key, [sealed])

    store.settle = settle


def test_without_conditions_a_writer_whose_timeline_was_overwritten_is_fenced(tmp_path):
    store = Overwriting(tmp_path)
    overwrite_with(store, {"nonce": "another"})
    with pytest.raises(FencedError, match="another writer opened timeline 1"):
        open_line(store)


def test_without_conditions_a_cluster_whose_marker_was_overwritten_is_refused(tmp_path):
    store = Overwriting(tmp_path)
    overwrite_with(store, {"cluster_id": THEIRS})
    with pytest.raises(IdentityError, match=f"of cluster {THEIRS}, and this is cluster {OURS}"):
        bind(store)
