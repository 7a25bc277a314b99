"""The life of BackupEntries beside a real API server and a real S3."""

import pytest

from rootcellar.operator.backupentry.parting import HELD
from rootcellar.operator.backupentry.run import FINALIZER
from tests.kube.things import wait_until
from tests.operator.conftest import data_of
from tests.operator.entry_scene import Scene


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def test_an_entry_gets_its_secret_and_is_ready(scene):
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        entry = scene.stands(scene.name, "Create", "Succeeded")
        assert entry["metadata"]["finalizers"] == [FINALIZER]
        assert entry["status"]["observedGeneration"] == entry["metadata"]["generation"]
        assert "lastError" not in entry["status"]
        assert entry["status"]["providerStatus"]["etcdBackup"] == {
            "namespace": scene.shoot,
            "name": "etcd-backup",
        }
        (reachable,) = entry["status"]["conditions"]
        assert (reachable["type"], reachable["status"]) == ("BucketReachable", "True")
        secret = scene.read_secret("etcd-backup", scene.shoot)
        assert data_of(secret) == {**scene.keys, "bucketName": scene.bucket.name}
        assert secret["metadata"]["annotations"] == {"backup.gardener.cloud/created-by": scene.name}
        assert "ownerReferences" not in secret["metadata"]
        assert scene.finalizers() == [FINALIZER]

        # Nothing but an order leads to a write.
        operator.rest()
        scene.annotate(scene.name, note="x")
        scene.change(scene.name, region="eu-2")
        before = scene.get(scene.name)
        scene.create(f"shoot--{scene.namespace}--b--1", scene.spec())
        scene.stands(f"shoot--{scene.namespace}--b--1", "Create", "Succeeded")
        operator.rest()
        assert scene.get(scene.name) == before
        assert before["status"]["observedGeneration"] == before["metadata"]["generation"] - 1

        scene.secret("entry", {**scene.keys, "note": "rotated"})
        scene.ask(scene.name, "reconcile")
        entry = scene.stands(scene.name, "Reconcile", "Succeeded")
        assert "gardener.cloud/operation" not in entry["metadata"]["annotations"]
        assert entry["status"]["observedGeneration"] == entry["metadata"]["generation"]
        assert data_of(scene.read_secret("etcd-backup", scene.shoot))["note"] == "rotated"
        assert scene.finalizers() == [FINALIZER]


def test_deletion_takes_exactly_its_own_prefix(scene):
    neighbour = f"{scene.name}--b"
    scene.put(scene.name, neighbour, f"{scene.name}x", count=3)
    with scene.operator():
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []
    assert len(scene.lies(neighbour)) == len(scene.lies(f"{scene.name}x")) == 3
    assert scene.finalizers() == []
    with pytest.raises(Exception, match="etcd-backup"):
        scene.read_secret("etcd-backup", scene.shoot)


def test_a_hold_forbids_the_deletion_and_says_so(scene):
    scene.put(scene.name)
    with scene.operator():
        scene.create(scene.name, scene.spec(), **{HELD: "audit 7"})
        scene.stands(scene.name, "Create", "Succeeded")
        scene.delete(scene.name)
        entry = scene.stands(scene.name, "Delete", "Error")
        assert "the entry is held: audit 7" in entry["status"]["lastError"]["description"]
        assert scene.lies(scene.name)
        scene.annotate(scene.name, **{HELD: None})
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []


def test_migration_gives_up_control_and_touches_nothing(scene):
    scene.put(scene.name)
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        scene.ask(scene.name, "migrate")
        scene.stands(scene.name, "Migrate", "Succeeded")
        operator.rest()
        entry = scene.get(scene.name)
        assert "finalizers" not in entry["metadata"]
        assert "annotations" not in entry["metadata"]
        assert scene.finalizers() == []
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: "annotations" not in scene.get(scene.name)["metadata"], "the order is taken")
        operator.rest()
        assert "finalizers" not in scene.get(scene.name)["metadata"], "only a restore brings it back"
        scene.ask(scene.name, "restore")
        entry = scene.stands(scene.name, "Restore", "Succeeded")
        operator.rest()
        assert "annotations" not in scene.get(scene.name)["metadata"]
        assert scene.get(scene.name)["metadata"]["finalizers"] == [FINALIZER]
        scene.ask(scene.name, "migrate")
        scene.stands(scene.name, "Migrate", "Succeeded")
        wait_until(lambda: "finalizers" not in scene.get(scene.name)["metadata"], "it is given up")
        scene.delete(scene.name)
        assert scene.is_gone(scene.name)
    assert scene.lies(scene.name)
    assert scene.read_secret("etcd-backup", scene.shoot)


def test_a_missing_secret_leaves_it_processing_until_it_is_there(scene):
    with scene.operator():
        scene.create(scene.name, scene.spec(secretRef={"name": "late", "namespace": scene.namespace}))
        entry = scene.stands(scene.name, "Create", "Processing")
        assert "lastError" not in entry["status"]
        scene.secret("late", scene.keys)
        scene.stands(scene.name, "Create", "Succeeded")


def test_wrong_credentials_are_a_condition_and_a_deletion_s_error(scene):
    scene.put(scene.name)
    scene.secret("entry", {**scene.keys, "secretAccessKey": "wrong"})
    with scene.operator():
        scene.create(scene.name, scene.spec())
        entry = scene.stands(scene.name, "Create", "Succeeded")
        (reachable,) = entry["status"]["conditions"]
        assert (reachable["status"], reachable["reason"]) == ("False", "NotReadable")
        scene.delete(scene.name)
        entry = scene.stands(scene.name, "Delete", "Error")
        assert entry["status"]["lastError"]["codes"] == ["ERR_INFRA_UNAUTHORIZED"]
        assert entry["status"]["lastError"]["taskID"] == "hold", "the first that asks the store"
        assert scene.lies(scene.name)
        scene.secret("entry", scene.keys)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []
