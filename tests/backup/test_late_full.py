"""A full whose writer was really paused (SIGSTOP), and that comes to the store when another writes already.

The successor cuts after each single revision, so that a delta would end inside the full if it could.
"""

from __future__ import annotations

import pytest

from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.catalogue import keys, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import a_scene
from tests.backup.pausing import FENCED, MORE, STEPS, PausedWriter
from tests.backup.session_scene import opened

EACH = DeltaLimits(size=1)
_BEFORE_ITS_ANNOUNCEMENT = {"named", "streams", "before claim", "after claim"}
_BRIEF = {"named", "after claim", "before object"}


@pytest.fixture
def scene(etcd, tmp_path):
    with a_scene(etcd, "3.6", FileStore(tmp_path / "store")) as scene:
        scene.write(20)
        scene.full()
        scene.write(5)
        scene.capture()
        scene.write(2)
        yield scene


def paused_at(scene, step):
    return PausedWriter(scene.member.endpoint, scene.store.url.removeprefix("file://"), step)


def fulls(scene):
    return [each.key for each in read_catalogue(scene.store).snapshots if each.is_full]


def goes_on(scene, session):
    """The session stores what is new; what is there then can be restored by both, up to etcd's revision."""
    last = scene.write(2)
    session.collect()
    catalogue = read_catalogue(scene.store)
    assert (catalogue.damaged, catalogue.lost) == ((), ())
    assert plan_chain(catalogue, Latest()).reach == last
    assert ebr_rules.check_prefix(scene.store) == []
    return last


@pytest.mark.parametrize("ends", ["goes on", "is killed"])
@pytest.mark.parametrize(
    "step", [step if step in _BRIEF else pytest.param(step, marks=pytest.mark.long) for step in STEPS]
)
def test_a_full_that_a_paused_writer_publishes_late_stops_neither_reader(scene, step, ends):
    with paused_at(scene, step) as paused:
        with opened(scene, limits=EACH) as successor:
            goes_on(scene, successor)
            ended = paused.go_on()
            assert (ended == FENCED) == (step in _BEFORE_ITS_ANNOUNCEMENT)
            last = goes_on(scene, successor)
            if ended is None and ends == "goes on":
                assert paused.go_on() in (0, FENCED)
        if ends == "is killed":
            paused.__exit__()
        with opened(scene, limits=EACH) as third:
            last = goes_on(scene, third)
    scene.must_equal(scene.restored(), last, last - 5)


def test_what_comes_late_lies_over_deltas_that_end_in_it_if_nobody_knows_of_it(scene):
    """The premise of the test above."""
    with paused_at(scene, "before object") as paused:
        for info in scene.store.list(keys.CLAIMS):
            if info.key.count("_") == 2:
                scene.store.delete(info.key)
        with opened(scene, limits=EACH) as successor:
            goes_on(scene, successor)
            assert paused.go_on() is None
            (late,) = [key for key in fulls(scene) if key != fulls(scene)[0]]
            (stopped,) = ebr_rules.check_prefix(scene.store)
            assert (
                f"the full holds all of it and more (it ends at {names.parse(late).last + MORE})" in stopped
            )


def test_a_full_that_nobody_disturbs_leaves_no_claim(scene):
    before = [info.key for info in scene.store.list(keys.CLAIMS)]
    scene.full()
    assert [info.key for info in scene.store.list(keys.CLAIMS)] == before
