from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rootcellar.backup.capture.rivals import forbidden, rivals
from rootcellar.backup.capture.session import CaptureOptions, Session
from rootcellar.backup.catalogue import fence, keys, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.ownership import Claim
from rootcellar.errors import FencedError, StoreError
from rootcellar.stores.file import FileStore
from tests.backup.builders import delta, full, history, timeline
from tests.backup.capture_scene import a_scene
from tests.backup.session_scene import opened, publisher_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
BASE = full(10, real=12, recorded=True)


def claim(name, *, epoch=1, reached=None, on=1):
    sha256 = "0" * 64 if reached is None else None
    return Claim(
        start=name.start,
        epoch=epoch,
        timeline=on,
        key=name.key,
        stored_sha256=sha256,
        created_at=NOW,
        reached=reached,
    )


COMING = names.full(30, 1)
DELTA = names.delta(13, 20, 1)


def test_no_delta_may_end_inside_a_full_that_is_there_or_that_may_come():
    assert forbidden(history(BASE), [claim(COMING, reached=34)]) == [range(10, 12), range(30, 34)]


@pytest.mark.parametrize(
    "without",
    [
        claim(COMING, reached=30),  # it ends with the revision in its name
        claim(COMING, reached=34, on=2),
        claim(DELTA),
        claim(COMING),  # a fold: its claim says its hash, and it ends with its name
    ],
)
def test_nothing_else_forbids_anything(without):
    assert forbidden(history(full(10, recorded=True)), [without]) == []


@pytest.mark.parametrize(
    ("coming", "is_dead"),
    [
        (claim(DELTA, on=2), False),
        (claim(COMING, reached=34, on=2), None),  # EBR can begin with it
        (claim(names.delta(5, 10, 1), on=2), None),  # EBR sees nothing that old
        (claim(DELTA), None),  # of the time that both timelines share
        (claim(names.delta(18, 26, 1)), True),
        (claim(COMING, reached=34), True),
        (claim(names.delta(18, 26, 1, names.ZSTD)), None),  # EBR does not see it
    ],
)
def test_a_rival_is_what_would_be_in_the_way_of_etcdbrctl(coming, is_dead):
    here = history(
        BASE, full(12, at=3, recorded=True, timeline=2), timelines=(timeline(1), timeline(2, 1, 25))
    )
    found = {key: each.is_dead for key, each in rivals(here, [coming]).items()}
    assert found == ({} if is_dead is None else {coming.key: is_dead})


def test_what_came_already_is_no_rival():
    there = delta(13, 20)
    assert rivals(history(BASE, there), [claim(there.name)]) == {}


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


def test_an_epoch_knows_the_claims_of_all_before_it_but_for_those_that_have_served(store):
    first = fence.claim_epoch(store, "one", NOW)
    fence.claim_slot(store, first, DELTA, "0" * 64, 1, NOW)
    fence.claim_slot(store, first, names.delta(21, 25, 1), "1" * 64, 1, NOW)
    fence.claim_full(store, first, COMING, 34, 1, NOW)
    damaged = fence.claim_full(store, first, names.full(31, 2), 34, 1, NOW)
    store.put(damaged, [b"{}"])
    second = fence.claim_epoch(store, "two", NOW)
    fence.claim_full(store, fence.claim_epoch(store, "three", NOW), names.full(40, 3), 40, 1, NOW)
    found = fence.announced(store, second, {(13, first.number)})
    assert {(each.key, each.reached) for each in found} == {
        (COMING.key, 34),
        (names.delta(21, 25, 1).key, None),
    }


def test_who_was_superseded_before_it_claimed_publishes_nothing(scene):
    scene.write(5)
    with opened(scene) as late:
        with opened(scene) as session:
            session.full()
        before = [info.key for info in scene.store.list()]
        with pytest.raises(FencedError, match="was superseded by epoch"):
            publisher_of(late).claim_full(names.full(6, 1), 6)
        assert [info.key for info in scene.store.list()] == before
        with pytest.raises(FencedError, match="was superseded by epoch"):
            publisher_of(late).put_delta(names.delta(7, 8, 1), [b"delta"], "0" * 64)
        assert names.delta(7, 8, 1).key not in [info.key for info in scene.store.list()]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_full_of_a_dead_timeline_that_comes_late_is_moved_out_of_sight(scene, etcd, is_open):
    scene.write(30)
    dead = b"".join(scene.store.get(scene.full().key))
    late = names.full(5000, 1)
    fence.claim_full(scene.store, read_catalogue(scene.store).epoch, late, 5004, 1, NOW)
    options = CaptureOptions(override="it replaces the one that burnt down")
    with a_scene(etcd, "3.6", scene.store) as other:
        other.write(3)
        with Session(other.client, scene.store, writer="tests/2", options=options) as session:
            assert session.timeline.number == 2
            session.full()
            if is_open:
                scene.store.put(late.key, [dead])
                other.write(1)
                session.collect()
        if not is_open:
            scene.store.put(late.key, [dead])
            opened(other).close()
        there = [info.key for info in scene.store.list()]
        assert late.key not in there
        assert keys.abandoned(late, 1) in there
        other.must_equal(other.restored(), other.client.header().revision)


def test_a_store_that_forgot_its_epochs_is_not_begun_anew(scene, tmp_path):
    """As while a share is not mounted."""
    scene.write(5)
    with opened(scene) as session:
        session.full()
        scene.write(2)
        (tmp_path / "store").rename(tmp_path / "away")
        with pytest.raises(StoreError, match="is empty, and"):
            session.collect()
        epoch = session.epoch.number
        with pytest.raises(StoreError, match=f"knows nothing of epoch {epoch}"):
            opened(scene, after=epoch)
        assert not (tmp_path / "store").exists()
        (tmp_path / "away").rename(tmp_path / "store")
        last = scene.write(2)
        assert session.collect().revision == last, "the session goes on when it is back"
    with opened(scene, after=epoch) as session:
        assert session.need is None
