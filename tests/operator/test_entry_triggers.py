"""What moves a BackupEntry without an annotation."""

import json
from datetime import timedelta

import pytest

from rootcellar.errors import KubeNotFoundError
from rootcellar.kube.cache import Change
from rootcellar.kube.kinds import Key
from rootcellar.operator.backupentry.controller import asks
from rootcellar.operator.backupentry.parting import FORCED, HELD
from rootcellar.operator.backupentry.run import FINALIZER, EntrySettings
from tests.kube.things import wait_until
from tests.operator.conftest import SECRETS, data_of
from tests.operator.entry_scene import UID, Scene


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def succeeded(scene, generation):
    status = scene.get(scene.name).get("status", {})
    state = status.get("lastOperation", {}).get("state")
    return (state, status.get("observedGeneration")) == ("Succeeded", generation)


def test_without_annotations_specs_secrets_and_namespaces_count(scene):
    late = f"shoot--{scene.namespace}--late--{UID}"
    with scene.operator(ignore_annotation=True) as operator:
        for name in (scene.name, late):
            scene.create(name, scene.spec())
        wait_until(lambda: succeeded(scene, 1), "it is ready")
        operator.rest()

        before = scene.get(scene.name)
        scene.annotate(scene.name, **{"gardener.cloud/timestamp": "2026-01-01T00:00:00Z", "note": "x"})
        scene.new_namespace(f"shoot--{scene.namespace}--late", **{"shoot.gardener.cloud/uid": UID})
        wait_until(lambda: there(scene, f"shoot--{scene.namespace}--late"), "the namespace is seen")
        operator.rest()
        assert scene.get(scene.name)["status"] == before["status"], "an annotation alone is no order"

        scene.change(scene.name, region="eu-2")
        wait_until(lambda: succeeded(scene, 2), "the spec is seen")
        scene.secret("entry", {**scene.keys, "note": "rotated"})
        wait_until(
            lambda: data_of(scene.read_secret("etcd-backup", scene.shoot)).get("note"), "the secret is seen"
        )
        operator.rest()

        # A write of the status alone leads to nothing.
        patch = {"status": {"state": {"foreign": "x"}}}
        scene.client.merge_patch(scene.any, scene.name, patch, subresource="status")
        before = scene.get(scene.name)
        assert before["status"]["state"] == {"foreign": "x"}
        scene.change(late, region="eu-2")
        wait_until(lambda: scene.get(late)["status"]["observedGeneration"] == 2, "the other is done")
        operator.rest()
        assert scene.get(scene.name) == before

        scene.ask(scene.name, "reconcile")
        scene.change(scene.name, region="eu-3")
        wait_until(lambda: succeeded(scene, 3), "the spec is seen again")
        assert "gardener.cloud/operation" not in scene.get(scene.name)["metadata"]["annotations"]
        assert scene.get(scene.name)["status"]["state"] == {"foreign": "x"}, "what is not ours stays"


def test_without_annotations_what_forces_a_deletion_ends_its_grace_all_the_same(scene):
    scene.put(scene.name)
    with scene.operator(ignore_annotation=True, grace=timedelta(days=30)) as operator:
        scene.create(scene.name, scene.spec(), **{HELD: "audit 7"})
        wait_until(lambda: succeeded(scene, 1), "it is ready")
        scene.delete(scene.name)
        scene.stands(scene.name, "Delete", "Pending")
        operator.rest()
        scene.annotate(scene.name, **{FORCED: "true"})
        found = scene.stands(scene.name, "Delete", "Error")
        assert "the entry is held: audit 7" in found["status"]["lastError"]["description"]
        scene.annotate(scene.name, **{HELD: None})
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ({}, {FORCED: "true"}, True),
        ({HELD: "audit 7"}, {}, True),
        ({}, {"note": "x"}, False),
        ({FORCED: "true"}, {FORCED: "true", "note": "x"}, False),
    ],
)
@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("type_", ["S3", "gcp"])
def test_without_annotations_only_those_that_hold_or_force_a_deletion_of_ours_count(
    tmp_path, old, new, counts, deleted, type_
):
    settings = EntrySettings(types={"S3"}, classes=(), directory=tmp_path, tokens=tmp_path, host_path="")
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    before, after = (
        json.dumps(
            {
                "metadata": {"name": "e", "generation": 1, "annotations": each, **deletion},
                "spec": {"type": type_, "bucketName": "b", "region": "r", "secretRef": {}},
            }
        ).encode()
        for each in (old, new)
    )
    heard = asks(settings, ignore_annotation=True)(Change(Key("", "e"), before, after))
    assert heard is (counts and deleted and type_ == "S3")


def there(scene, namespace):
    try:
        return scene.read_secret("etcd-backup", namespace)
    except KubeNotFoundError:
        return None


def test_another_shoot_s_namespace_gets_no_secret_of_its_predecessor(scene):
    shoot = f"shoot--{scene.namespace}--anew"
    scene.new_namespace(shoot, **{"shoot.gardener.cloud/uid": "another"})
    with scene.operator():
        scene.create(f"{shoot}--{UID}", scene.spec())
        entry = scene.stands(f"{shoot}--{UID}", "Create", "Succeeded")
        assert "providerStatus" not in entry["status"]
        assert there(scene, shoot) is None
        scene.create(f"{shoot}--another", scene.spec())
        scene.stands(f"{shoot}--another", "Create", "Succeeded")
        scene.delete(f"{shoot}--{UID}")
        wait_until(lambda: scene.is_gone(f"{shoot}--{UID}"), "the old one is gone")
        assert there(scene, shoot), "the new one's secret is left alone"


def test_an_entry_waits_for_its_state(scene):
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec(), **{"gardener.cloud/operation": "wait-for-state"})
        other = f"shoot--{scene.namespace}--b--1"
        scene.create(other, scene.spec())
        scene.stands(other, "Create", "Succeeded")
        operator.rest()
        entry = scene.get(scene.name)
        assert ("status" in entry, "finalizers" in entry["metadata"]) == (False, False)
        scene.ask(scene.name, "restore")
        entry = scene.stands(scene.name, "Restore", "Succeeded")
        wait_until(lambda: "annotations" not in scene.get(scene.name)["metadata"], "the order is done")
        assert entry["metadata"]["finalizers"] == [FINALIZER]


def test_a_deletion_without_credentials_lets_go_and_counts_it(scene):
    scene.put(scene.name)
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        scene.client.delete(SECRETS, "entry", scene.namespace)
        scene.client.merge_patch(SECRETS, "entry", {"metadata": {"finalizers": None}}, scene.namespace)
        wait_until(lambda: not is_there(scene, "entry"), "somebody took the secret away")
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
        operator.rest()
        assert b"rootcellar_entry_orphaned_total 1.0" in operator.manager.metrics.exposition()
        assert [each for each in operator.logged if each["event"] == "objects-orphaned"]
    assert scene.lies(scene.name), "nothing could be deleted, and nothing else was used to do it"


def is_there(scene, name):
    try:
        return scene.read_secret(name)
    except KubeNotFoundError:
        return None


def test_entries_that_share_a_secret_let_go_of_it_together(scene):
    names = [f"shoot--{scene.namespace}--{number}--{UID}" for number in range(5)]
    with scene.operator():
        scene.all_stand(names, scene.spec())
        assert scene.finalizers() == [FINALIZER]
        scene.all_go(names)
    assert scene.finalizers() == []
