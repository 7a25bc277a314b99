"""Captures of an etcd that was restored, by us or by others, and of one that never was this prefix's."""

from __future__ import annotations

import itertools
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.capture.fork import Verdict, compare, newest_of
from rootcellar.backup.capture.outcome import Need
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest, plan_chain
from rootcellar.errors import ChainError, IdentityError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import Between, a_scene, capture_and_die
from tests.backup.killing import Killer
from tests.backup.plans import restore_into, restore_members


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


@pytest.fixture
def rewinds(scene, tmp_path):
    """Keeps etcd's data as it is now; calling what it returns puts that back, as a restore by others does."""

    def keep():
        scene.member.stop()
        kept = tmp_path / "kept"
        shutil.copytree(scene.member.data_dir, kept)
        scene.member.start()

        def rewind():
            scene.member.kill()
            shutil.rmtree(scene.member.data_dir)
            shutil.copytree(kept, scene.member.data_dir)
            scene.member.start()
            scene.wait_connected()

        return rewind

    return keep


def history(scene):
    """A full and three deltas, each of ten revisions: 11, 21, 31, 41."""
    scene.write(10)
    scene.full()
    for _ in range(3):
        scene.write(10)
        scene.capture()


def timelines(store):
    return [(each.number, each.parent, each.forked_at) for each in read_catalogue(store).timelines]


@pytest.mark.parametrize("overtaken", [False, True])
def test_an_etcd_that_was_set_back_gets_a_new_timeline_from_the_last_common_end(scene, rewinds, overtaken):
    scene.write(10)
    scene.full()
    scene.write(10)
    scene.capture()
    scene.write(5)
    rewind = rewinds()
    scene.write(5)
    scene.capture()
    scene.write(10)
    scene.capture()
    rewind()
    last = scene.write(60 if overtaken else 2, value=b"another")

    done = scene.capture()

    assert done.timeline.number == 2
    assert timelines(scene.store) == [(1, None, 0), (2, 1, 21)]
    assert done.full.record.last_revision == last
    assert done.full.record.timeline == 2
    assert len(done.abandoned.moved) == 2
    assert ebr_rules.check_prefix(scene.store) == []
    scene.write(3, value=b"another")
    assert scene.capture().full is None
    scene.must_equal(scene.restored(), last + 3, last)
    catalogue = read_catalogue(scene.store)
    assert plan_chain(catalogue, AtRevision(21)).reach == 21
    assert plan_chain(catalogue, AtRevision(41), timeline=1).reach == 41


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fork_killed_anywhere_is_finished_by_the_next_capture(scene, rewinds, tmp_path, when):
    scene.write(10)
    scene.full()
    scene.write(10)
    scene.capture()
    rewind = rewinds()
    for _ in range(2):
        scene.write(10)
        scene.capture()
    rewind()
    last = scene.write(5, value=b"another")
    with Killer() as killer:
        for at in itertools.count(1):
            place = tmp_path / f"{when}-{at}"
            shutil.copytree(tmp_path / "store", place)
            if not killer.run(capture_and_die, scene.member.endpoint, place, False, at, when):
                break
            store = FileStore(place)
            done = scene.capture(store=store)
            catalogue = read_catalogue(store)
            assert [(t.number, t.parent, t.forked_at) for t in catalogue.timelines] == [
                (1, None, 0),
                (2, 1, 21),
            ]
            assert catalogue.damaged == catalogue.lost == ()
            assert ebr_rules.check_prefix(store) == []
            assert plan_chain(catalogue, Latest()).reach == last
            assert plan_chain(catalogue, AtRevision(41), timeline=1).reach == 41
            assert done.full or newest_of(catalogue).timeline == 2
    # Epoch, timeline, two objects copied and removed, a claim, the full, its record; the claim removed.
    assert at == 11


def test_a_fork_is_found_by_a_full_too(scene, rewinds):
    rewind = rewinds()
    history(scene)
    rewind()
    scene.write(50, value=b"another")
    done = scene.capture(full=True)
    assert done.timeline.number == 2
    assert done.full.record.timeline == 2


def test_nothing_is_shared_where_nothing_can_be_shown(scene, rewinds):
    rewind = rewinds()
    history(scene)
    rewind()
    scene.client.compact(scene.write(20, value=b"another"))
    scene.capture()
    assert timelines(scene.store) == [(1, None, 0), (2, 1, 0)]


def test_a_fork_that_nothing_shows_is_not_built_upon(scene, rewinds):
    rewind = rewinds()
    history(scene)
    rewind()
    last = scene.write(60, value=b"another")
    scene.client.compact(last, physical=True)
    scene.write(3)
    done = scene.capture()
    assert (done.why_full.need, done.timeline) == (Need.COMPACTED, None)
    scene.write(3)
    assert scene.capture().deltas[0].record.start == last + 4
    with pytest.raises(ChainError):
        plan_chain(read_catalogue(scene.store), AtRevision(50))


def test_a_restore_by_rootcellar_forks_where_it_says(scene, etcd):
    history(scene)
    member = etcd.make("3.6")
    restore_members([member], scene.store, 33, announce=True)
    member.start()
    with EtcdClient([member.endpoint]) as client:
        client.put(b"after", b"the restore")
        done = capture(client, scene.store, full=False, writer="tests")
        assert timelines(scene.store) == [(1, None, 0), (2, 1, 33)]
        assert done.full.record.last_revision == 34
        assert done.abandoned.locked == ()
        client.put(b"after", b"the full")
        assert capture(client, scene.store, full=False, writer="tests").full is None
    assert ebr_rules.check_prefix(scene.store) == []
    with pytest.raises(IdentityError, match="holds the backups of cluster"):
        scene.capture()


def test_a_restore_under_the_same_id_is_believed_once_etcd_shows_another_history(scene):
    """A token used again, and a bump: the revision is higher than before, and all below is compacted."""
    history(scene)
    intent_only = read_catalogue(scene.store)
    assert intent_only.intents == ()
    scene.member.stop()
    shutil.rmtree(scene.member.data_dir)
    token = "etcd-cluster"
    scene.member.initial_cluster = f"{scene.member.name}={scene.member.peer_url}"
    restore_members([scene.member], scene.store, 35, announce=True, token=token, bump_revision=1000)
    scene.member.start()
    scene.write(2, value=b"another")
    done = scene.capture()
    assert timelines(scene.store) == [(1, None, 0), (2, 1, 35)]
    assert done.full.record.last_revision == 1037


def test_an_announced_restore_that_never_came_is_not_believed(scene, tmp_path):
    history(scene)
    urls = (f"{scene.member.name}={scene.member.peer_url}",)
    restore_into(
        tmp_path / "never-started", scene.store, 35, announce=True, token="etcd-cluster", members=urls
    )
    assert read_catalogue(scene.store).intents[0].cluster_id == f"{scene.client.header().cluster_id:x}"
    scene.write(5)
    done = scene.capture()
    assert (done.full, done.timeline) == (None, None)
    assert len(done.deltas) == 1


def test_an_old_announcement_is_not_believed_after_a_compaction(scene, tmp_path):
    history(scene)
    urls = (f"{scene.member.name}={scene.member.peer_url}",)
    restore_into(
        tmp_path / "never-started", scene.store, 35, announce=True, token="etcd-cluster", members=urls
    )
    late = datetime.now(UTC) + timedelta(hours=1)
    scene.write(5)
    capture(scene.client, scene.store, full=False, writer="tests", clock=lambda: late)
    last = scene.write(5)
    scene.client.compact(last, physical=True)
    scene.write(1)
    done = scene.capture()
    assert (done.why_full.need, done.timeline) == (Need.COMPACTED, None)


def test_a_foreign_cluster_is_refused_before_it_can_fence_the_rightful_writer(scene, etcd):
    history(scene)
    epochs = [info.key for info in scene.store.list(keys.EPOCHS)]
    with a_scene(etcd, "3.6", scene.store) as foreign:
        foreign.write(100, value=b"foreign")
        with pytest.raises(IdentityError, match="holds the backups of cluster") as caught:
            foreign.capture()
        assert "override" in caught.value.hint
        assert [info.key for info in scene.store.list(keys.EPOCHS)] == epochs
        done = foreign.capture(override="it replaces the one that burnt down")
        assert done.timeline.parent == 1
        assert done.timeline.forked_at == 0
        assert read_catalogue(scene.store).marker.reason == "it replaces the one that burnt down"
        assert ebr_rules.check_prefix(scene.store) == []


def test_a_prefix_that_ebr_filled_from_another_cluster_is_refused(ebr_backup, etcd):
    with a_scene(etcd, "3.6", ebr_backup.store) as foreign:
        foreign.write(3)
        before = [info.key for info in ebr_backup.store.list()]
        with pytest.raises(IdentityError, match="not of this cluster's history"):
            foreign.capture()
        assert [info.key for info in ebr_backup.store.list()] == before


def test_a_live_prefix_of_ebr_is_continued(ebr_backup, etcd):
    line = ebr_backup.store.url.rpartition("/")[2] and "3.7"
    last = ebr_backup.expected["last_revision"]
    member = etcd.make(line)
    restore_members([member], ebr_backup.store)
    member.start()
    with EtcdClient([member.endpoint]) as client:
        client.put(b"after", b"1")
        done = capture(client, ebr_backup.store, full=False, writer="tests")
        (delta,) = done.deltas
        assert (delta.record.start, delta.record.last_revision) == (last + 1, last + 1)
        assert done.full is None
        assert done.timeline.parent is None
        again = etcd.make(line)
        restore_members([again], ebr_backup.store)
        again.start()
        assert again.hash_kv(last + 1).hash == member.hash_kv(last + 1).hash


def test_an_etcd_that_is_restored_while_it_is_captured_gets_a_new_timeline(scene, rewinds):
    history(scene)
    rewind = rewinds()
    scene.write(10)

    def watch(client, start, **options):
        running = client.watch(start, **options)
        if not calls:
            calls.append(start)
            first = running.get(20)
            assert first.last == 51
            rewind()
            scene.write(20, value=b"another")
            return Resumed(first, running)
        return running

    class Resumed:
        """A watch whose first batch was looked at before."""

        def __init__(self, first, running):
            self.first, self.running = [first], running

        def close(self):
            self.running.close()

        def get(self, timeout):
            return self.first.pop() if self.first else self.running.get(timeout)

    calls = []
    ahead = Between(
        scene.client,
        watch=watch,
        header=lambda client, **how: (
            client.header(**how)._replace(revision=61) if not calls else client.header()
        ),
    )
    done = capture(ahead, scene.store, full=False, writer="tests")
    assert done.timeline.parent == 1
    assert done.full.record.last_revision == 61
    assert timelines(scene.store)[-1] == (2, 1, 41)
    assert ebr_rules.check_prefix(scene.store) == []


def test_a_recorded_hash_that_differs_is_a_fork_where_live_hashes_are_wanted(scene):
    scene.write(10)
    scene.full(live_hash=True)
    newest = newest_of(read_catalogue(scene.store))
    other = Between(scene.client, hash_kv=lambda client, revision: client.hash_kv(revision)._replace(hash=1))
    assert compare(scene.client, scene.store, newest, 11, live_hash=True) is Verdict.SAME
    assert compare(other, scene.store, newest, 11, live_hash=True) is Verdict.FORKED
    assert compare(other, scene.store, newest, 11) is Verdict.SAME


def test_a_full_without_a_record_is_not_built_upon(scene, tmp_path):
    scene.write(10)
    record = scene.full()
    bare = FileStore(tmp_path / "bare")
    bare.put(record.key, scene.store.get(record.key))
    scene.write(3)
    done = scene.capture(store=bare)
    assert done.why_full.need is Need.UNKNOWN
    assert record.key in done.why_full.reason
    assert done.timeline.number == 1
