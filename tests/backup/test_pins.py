"""Readers that pin what they read: prunes leave it alone, and no store that refuses a pin is in the way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import msgspec
import pytest

from rootcellar.backup.browse import browse
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision
from rootcellar.backup.catalogue.records import Result
from rootcellar.backup.copy.copy import copy
from rootcellar.backup.prune.prune import prune
from rootcellar.backup.restore import pins
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import DeniedError
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.backup.plans import plan_of, restore_into
from tests.backup.prune_scene import FULLS, KEEP_ONE, fill

OLD = 80  # a revision of the oldest chain, which every prune here would delete
WAIT = 60


@pytest.fixture
def filled(store, tmp_path):
    fill(store, tmp_path)
    return store


class Noting(StoreDecorator):
    """Says which pins came and went."""

    def __init__(self, inner):
        super().__init__(inner)
        self.came = threading.Semaphore(0)
        self.went = threading.Semaphore(0)

    def put(self, key, chunks, *, condition=None):
        info = super().put(key, chunks, condition=condition)
        if key.startswith(keys.PINS):
            self.came.release()
        return info

    def delete(self, key, *, version=None):
        super().delete(key, version=version)
        if key.startswith(keys.PINS):
            self.went.release()


class HeldUp(Noting):
    """Gives nothing of a snapshot before it is let go."""

    def __init__(self, inner):
        super().__init__(inner)
        self.let_go = threading.Event()

    def get(self, key, **options):
        if key.startswith("v2/") and not self.let_go.wait(WAIT):
            raise AssertionError("nobody let go")
        return super().get(key, **options)


def let_them_end():
    """Those who keep pins outlive their readers, who wait a second for them and no more."""
    for keeper in [thread for thread in threading.enumerate() if thread.name == "pin"]:
        keeper.join(WAIT)
        assert not keeper.is_alive()


def restores(store, directory):
    assert restore_into(directory / "data", store, OLD).revision == OLD


def proves(store, _):
    proof = verify(store, plan_of(store, OLD), LEVELS[2], by="tests")
    assert {each.result for each in proof.findings} == {Result.PASSED}


def looks(store, _):
    with browse.opened(store, AtRevision(OLD)) as opened:
        assert opened.revision == OLD


def copies(store, directory):
    done = copy(store, FileStore(directory / "copy"), parallel=len(FULLS))
    assert (len(done.copied), done.failed) == (12, ())


@pytest.mark.parametrize("reads", [restores, proves, looks, copies])
def test_a_prune_while_a_download_is_held_up_leaves_its_chain(filled, tmp_path, reads):
    held = HeldUp(filled)
    (old,) = [each for each in read_catalogue(filled).snapshots if each.is_full and each.last == FULLS[0]]
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reads, held, tmp_path)
        try:
            for _ in range(len(FULLS) if reads is copies else 1):
                assert held.came.acquire(timeout=WAIT)
            prune(filled, KEEP_ONE, writer="tests/1")
            left = read_catalogue(filled).snapshots
        finally:
            held.let_go.set()
        reading.result(WAIT)
    assert old.key in {each.key for each in left}
    assert {each.last for each in left if not each.is_full} >= {60, 80}
    let_them_end()
    assert read_catalogue(filled).pins == ()

    prune(filled, KEEP_ONE, writer="tests/1")

    assert len(read_catalogue(filled).snapshots) == 4, "when nobody reads, what the policy keeps"


@pytest.mark.parametrize("reads", [restores, proves, looks, copies])
def test_a_store_that_cannot_be_written_is_read_all_the_same(filled, tmp_path, reads):
    class ReadOnly(StoreDecorator):
        refused = threading.Event()

        def put(self, key, *_, **__):
            self.refused.set()
            raise DeniedError(f"{key}: no")

    before = [info.key for info in filled.list()]
    store = ReadOnly(filled)
    reads(store, tmp_path)
    assert store.refused.wait(WAIT), "it was tried"
    assert [info.key for info in filled.list()] == before


@pytest.mark.parametrize("reads", [restores, proves, looks, copies])
def test_nobody_waits_for_a_store_that_hangs_over_a_pin(filled, tmp_path, reads):
    class Hanging(Noting):
        goes_on = threading.Event()

        def put(self, key, chunks, *, condition=None):
            assert self.goes_on.wait(WAIT)
            return super().put(key, chunks, condition=condition)

    store = Hanging(filled)
    reads(store, tmp_path)
    assert read_catalogue(filled).pins == ()
    store.goes_on.set()
    let_them_end()
    assert store.went.acquire(blocking=False), "a pin that comes too late is taken away again"
    assert read_catalogue(filled).pins == ()


def test_a_long_read_renews_its_pin_and_never_lacks_one(filled):
    (old, *_) = [each for each in read_catalogue(filled).snapshots if each.is_full]
    left = []

    class Counting(Noting):
        def delete(self, key, *, version=None):
            super().delete(key, version=version)
            left.append(len(list(filled.list(keys.PINS))))  # here, as nothing comes or goes meanwhile

    store = Counting(filled)
    with pins.pinned(store, old, OLD, by="tests", stay=timedelta(milliseconds=20)):
        for _ in range(4):
            assert store.came.acquire(timeout=WAIT)
    let_them_end()
    *renewed, last = left
    assert len(renewed) >= 3
    assert (set(renewed), last) == ({1}, 0)


def test_a_file_without_a_catalogue_gets_no_pin(filled, tmp_path):
    plan = plan_of(filled, FULLS[0])
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "snapshot.db").write_bytes(b"".join(filled.get(plan.full.key)))
    store = Noting(FileStore(tmp_path / "one"))
    with pins.pinned_plan(store, plan_at(plan, "snapshot.db"), by="tests"):
        pass
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["snapshot.db"]


def plan_at(plan, key):
    """The same plan of an object by another name."""
    full = msgspec.structs.replace(plan.full, key=key)
    return msgspec.structs.replace(plan, full=full, deltas=())
