"""An agent on a prefix that etcd-backup-restore filled, and what etcd-backup-restore sees of it then."""

from __future__ import annotations

import json
import shutil

import pytest

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.backup import ebr_rules
from tests.backup.capture_scene import Scene
from tests.backup.ebr_data import EBR, EBR_PREFIX
from tests.backup.plans import restore_members

FIXTURE = "gzip-3.5"


@pytest.fixture
def prefix(tmp_path):
    """What etcd-backup-restore left, in a store of our own."""
    shutil.copytree(EBR / FIXTURE / "store", tmp_path / "store")
    (tmp_path / "store" / EBR_PREFIX / ".lock").unlink(missing_ok=True)
    return tmp_path / "store" / EBR_PREFIX


@pytest.fixture
def scene(etcd, prefix):
    """The etcd that it was backing up, which goes on."""
    member = etcd.make("3.5")
    restore_members([member], FileStore(prefix), keep_history=True, announce=False)
    member.start()
    with EtcdClient([member.endpoint]) as client:
        yield Scene(etcd, "3.5", member, client, FileStore(prefix))


def must_restore(scene, *revisions):
    """etcdbrctl sees an unbroken history to the end, and a restore there has what etcd has."""
    assert ebr_rules.check_prefix(scene.store) == []
    last = plan_chain(read_catalogue(scene.store), Latest()).reach
    scene.must_equal(scene.restored(), last, *revisions)
    return last


def forget(scene, prefix):
    """As if etcd-backup-restore had written everything: nothing of ours but the snapshots is left."""
    shutil.rmtree(prefix / "catalogue")
    (prefix / ".lock").unlink(missing_ok=True)
    assert all(each.record is None for each in read_catalogue(scene.store).snapshots)


def test_a_prefix_is_taken_over_from_etcd_backup_restore_and_handed_back_again(agents, scene, prefix):
    recorded = json.loads((EBR / FIXTURE / "expected.json").read_text())["hashkv"]
    theirs = max(map(int, recorded))
    before = {each.key for each in read_catalogue(scene.store).snapshots}
    assert must_restore(scene) == theirs == scene.client.header().revision
    # Ours.
    agent = agents.start([scene.member.endpoint], f"file://{prefix}")
    session = agent.wait_logged("session")
    told = agent.ask()["session"]
    assert told == {"continues": session["continues"], "reason": session.get("why")}
    agent.wait_reached(scene.write(4))
    last = scene.write(4)
    assert agent.terminate() == 0
    assert must_restore(scene, theirs) == last
    ours = {each.key for each in read_catalogue(scene.store).snapshots} - before
    assert any("Incr" in key for key in ours)
    assert session["continues"] is not any("Full" in key for key in ours)
    # Theirs again: their restore needs nothing of our catalogue.
    forget(scene, prefix)
    assert must_restore(scene, theirs) == last
    # Ours again, over what they (and we, whom they do not know) wrote.
    agent.start()
    again = agent.wait_logged("session", 2)
    newest = scene.write(3)
    agent.wait_reached(newest)
    assert agent.terminate() == 0
    assert must_restore(scene, theirs, last) == newest
    assert again["continues"] or again["why"]


def test_a_prefix_that_etcd_has_moved_on_from_is_gone_on_with_without_a_gap(agents, scene, prefix):
    """While nobody captured etcd went on, and forgot: a full, and the log says why."""
    scene.write(4)
    scene.client.compact(scene.write(4))
    agent = agents.start([scene.member.endpoint], f"file://{prefix}")
    session = agent.wait_logged("session")
    assert session["continues"] is False
    assert session["why"].startswith("etcd has compacted up to revision")
    last = scene.write(2)
    agent.wait_reached(last)
    assert agent.terminate() == 0
    assert ebr_rules.check_prefix(scene.store) == []
    scene.must_equal(scene.restored(keep_history=False), last)
