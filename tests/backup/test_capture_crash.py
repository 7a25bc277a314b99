"""Captures killed at everything they write, on a file system and on S3; what the next capture makes of it.

The points are those that `capture.publisher`, `timeline` and `capture` name.
"""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from tests.backup import ebr_rules
from tests.backup.capture_scene import a_scene, capture_and_die, deaths, store_at
from tests.backup.killing import Killer


@pytest.fixture(scope="module")
def killer():
    with Killer() as killer:
        yield killer


_prefixes = itertools.count(1)


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.long)])
def place(request, tmp_path):
    """Where the store lies, in words that another process understands."""
    if request.param == "file":
        return tmp_path / "store"
    return request.getfixturevalue("bucket"), f"crash-{next(_prefixes)}"


@pytest.fixture
def scene(etcd, place):
    with a_scene(etcd, "3.6", store_at(place)) as scene:
        yield scene


def sound(scene):
    """Everything in the store agrees, EBR can restore it, and what it restores to is etcd's state."""
    catalogue = read_catalogue(scene.store)
    assert catalogue.damaged == ()
    assert catalogue.lost == ()
    assert ebr_rules.check_prefix(scene.store) == []
    last = scene.client.header().revision
    assert plan_chain(catalogue, Latest()).reach == last
    scene.must_equal(scene.restored(), last, last - 2)
    scene.store.abort_leftovers(timedelta(0))
    assert [info.key for info in scene.store.list("v2/") if not info.size] == []


# A first capture writes marker, epoch, timeline, a claim, the full and its record, and removes the claim.
@pytest.mark.parametrize(("at", "when"), deaths(7, 5))
def test_a_first_capture_killed_anywhere_is_made_up_by_the_next(scene, place, killer, at, when):
    scene.write(20, value=bytes(50_000))
    assert killer.run(capture_and_die, scene.member.endpoint, place, True, at, when)
    visible = [info.key for info in scene.store.list("v2/")]
    assert len(visible) == (at >= 6 or (at, when) == (5, "after"))
    scene.write(3)
    done = scene.capture()
    assert (done.full is None) == (at == 7 or (at, when) == (6, "after")), "only a recorded full is continued"
    sound(scene)


# Later ones write the epoch, and then a claim, the object and its record; a full's claim they remove.
@pytest.mark.parametrize(("at", "when"), deaths(5, 3))
def test_a_full_killed_anywhere_leaves_the_chain_as_it_was_or_with_one_more_full(
    scene, place, killer, at, when
):
    scene.write(20, value=bytes(50_000))
    scene.full()
    scene.write(5)
    scene.capture()
    scene.write(5)
    assert killer.run(capture_and_die, scene.member.endpoint, place, True, at, when)
    scene.write(3)
    done = scene.capture()
    assert done.deltas or done.full
    sound(scene)


@pytest.mark.parametrize(("at", "when"), deaths(4, 3))
def test_a_delta_killed_anywhere_is_made_up_without_a_full(scene, place, killer, at, when):
    scene.write(20)
    scene.full()
    scene.write(5)
    assert killer.run(capture_and_die, scene.member.endpoint, place, False, at, when)
    published = [info.key for info in scene.store.list("v2/Incr")]
    assert len(published) == (at == 4 or (at, when) == (3, "after"))
    last = scene.write(3)
    done = scene.capture()
    assert done.full is None
    (delta,) = done.deltas
    assert (delta.record.start, delta.record.last_revision) == (27 if published else 22, last)
    sound(scene)


def test_a_capture_that_is_not_killed_lives(scene, place, killer):
    """The premise of the numbers above: there is nothing more to be killed at."""
    scene.write(5)
    assert not killer.run(capture_and_die, scene.member.endpoint, place, True, 8, "before")
    scene.write(5)
    assert not killer.run(capture_and_die, scene.member.endpoint, place, False, 5, "before")
    assert not killer.run(capture_and_die, scene.member.endpoint, place, True, 6, "before")
    assert len([*scene.store.list(keys.EPOCHS)]) == 3
