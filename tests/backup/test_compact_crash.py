"""Folds that are killed at every write, and what the next one makes of what they left."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.records import Result
from rootcellar.backup.catalogue.timeline import open_timeline
from rootcellar.backup.compact.compact import compact
from rootcellar.backup.objects.sealing.keyring import Keyring
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import DamagedObjectError, ProofError, TransientError
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.backup.capture_scene import Dying, a_scene, deaths, store_at
from tests.backup.fold_scene import BY, a_sealed_chain, chain, sound
from tests.backup.killing import Killer
from tests.backup.plans import plan_of
from tests.backup.sealed_scene import FIRST

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.long)])
def place(request, tmp_path):
    """Where the store lies, in words that another process understands."""
    if request.param == "file":
        return tmp_path / "store"
    return request.getfixturevalue("bucket"), f"compact-{next(_prefixes)}"


def compact_and_die(place, at, when):
    compact(Dying(store_at(place), at, when), by="doomed/1")


# It writes a pin, the claim, the full and its record, and removes the claim and the pin.
@pytest.mark.parametrize(("at", "when"), deaths(6, 3))
def test_a_fold_killed_anywhere_loses_nothing(etcd, place, killer, at, when):
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        last = chain(scene)
        before = {info.key for info in scene.store.list("v2/")}
        assert killer.run(compact_and_die, place, at, when)
        there = {info.key for info in scene.store.list("v2/")}
        assert there >= before
        assert len(there - before) == (at > 3 or (at, when) == (3, "after"))
        catalogue = read_catalogue(scene.store)
        assert all(each.timeline == 1 and not each.assumed for each in catalogue.snapshots)
        sound(scene, last)
        again = compact(scene.store, by=BY)
        assert (again is None) == (at > 4 or (at, when) == (4, "after")), "recorded, or done again"
        assert {info.key for info in scene.store.list("v2/")} >= there
        assert len({info.key for info in scene.store.list("v2/")} - before) == 1, "finished, not repeated"
        last = scene.write(3)
        assert scene.capture().full is None
        sound(scene, last)


@pytest.mark.parametrize("suffix", [".gz", ".zst.age"])
def test_what_a_killed_fold_left_is_proven_and_recorded_by_the_next(etcd, tmp_path, suffix):
    sealed = suffix == ".zst.age"
    to = {"suffix": suffix, "recipients": (FIRST.recipient,), "keyring": Keyring((FIRST,))} if sealed else {}

    class NoRecords(StoreDecorator):
        def put(self, key, chunks, *, condition=None):
            if key.startswith(keys.RECORDS):
                raise TransientError("cut")
            return super().put(key, chunks, condition=condition)

    with a_scene(etcd, "3.6", FileStore(tmp_path / "store")) as scene:
        if sealed:
            a_sealed_chain(scene, FIRST, suffix=suffix)
        else:
            chain(scene)
        with pytest.raises(TransientError, match="cut"):
            compact(NoRecords(scene.store), by="first", **to)
        (left,) = [each for each in read_catalogue(scene.store).snapshots if each.record is None]
        claimed = [info.key for info in scene.store.list(keys.CLAIMS) if info.key.count("_") == 2]
        objects = {info.key for info in scene.store.list() if not info.key.startswith("catalogue")}

        done = compact(scene.store, by="second", **to)

        assert (done.key, done.record.key, done.record.writer) == (left.key, left.key, "second")
        assert done.record.keys == ((FIRST.key_id,) if sealed else ())
        assert objects == {i.key for i in scene.store.list() if not i.key.startswith("catalogue")}
        assert len(claimed) == 1
        assert not [info for info in scene.store.list(keys.CLAIMS) if info.key in claimed]
        assert compact(scene.store, by="third", **to) is None
        proof = verify(
            scene.store, plan_of(scene.store), LEVELS[4], by=BY, keyring=Keyring((FIRST,) if sealed else ())
        )
        assert Result.FAILED not in {each.result for each in proof.findings}


def test_a_full_that_was_folded_otherwise_is_not_recorded_as_what_the_chain_comes_to(etcd, tmp_path, killer):
    place = tmp_path / "store"
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        last = chain(scene)
        assert killer.run(compact_and_die, place, 3, "after")
        with pytest.raises(ProofError, match="its chain") as told:
            compact(scene.store, by=BY, compact_to=last - 1)
        assert "--compact-to" in told.value.hint
        assert len(read_catalogue(scene.store).unrecorded) == 1
        assert compact(scene.store, by=BY) is not None
        sound(scene, last)


def test_what_is_not_what_a_killed_fold_claimed_is_not_recorded(etcd, tmp_path, killer):
    place = tmp_path / "store"
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        chain(scene)
        assert killer.run(compact_and_die, place, 3, "after")
        (left,) = [each for each in read_catalogue(scene.store).snapshots if each.record is None]
        path = place / left.key
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(DamagedObjectError, match=left.name.name):
            compact(scene.store, by=BY)
        assert [each.key for each in read_catalogue(scene.store).unrecorded] == [left.key]


def test_a_fold_that_is_not_killed_lives(etcd, place, killer):
    """The premise of the numbers above: there is nothing more to be killed at."""
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        chain(scene)
        assert not killer.run(compact_and_die, place, 7, "before")


def test_the_claim_tells_the_timeline_of_a_full_that_got_no_record(etcd, tmp_path, killer):
    place = tmp_path / "store"
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        last = chain(scene)
        assert killer.run(compact_and_die, place, 3, "after")
        # A timeline that another machine's slow clock puts before the fold: time alone would mislead.
        open_timeline(
            scene.store,
            parent=1,
            forked_at=last - 35,
            cluster_id="abc",
            writer="agent/2",
            now=datetime.now(UTC) - timedelta(hours=1),
        )
        (full,) = [
            each for each in read_catalogue(scene.store).snapshots if each.is_full and each.last == last
        ]
        assert (full.timeline, full.record) == (1, None)
