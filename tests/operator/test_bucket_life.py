"""The life of BackupBuckets beside a real API server and a real S3."""

import pytest

from rootcellar.operator.backupbucket.run import DRY_RUN, EMPTY, FINALIZER
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.operator.conftest import data_of


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def test_a_bucket_is_made_told_and_deleted_again(scene):
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        found = scene.stands(scene.name, "Create", "Succeeded")
        assert scene.name in scene.buckets()
        assert found["metadata"]["finalizers"] == scene.finalizers() == [FINALIZER]
        assert found["status"]["observedGeneration"] == 1
        assert {"lastError", "providerStatus", "generatedSecretRef"}.isdisjoint(found["status"])
        assert {each["type"]: each["status"] for each in found["status"]["conditions"]}[
            "RetentionLocked"
        ] == "False"
        operator.rest()
        before = scene.get(scene.name)
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: "annotations" not in scene.get(scene.name)["metadata"], "the order is taken")
        after = scene.stands(scene.name, "Reconcile", "Succeeded")
        assert after["status"]["conditions"] == before["status"]["conditions"]

        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()
    assert scene.finalizers() == []


def test_a_bucket_that_was_there_is_adopted_and_kept(scene):
    scene.s3.put_object(Bucket=scene.there.name, Key="theirs", Body=b"x")
    with scene.operator():
        scene.create(scene.there.name, scene.spec())
        scene.stands(scene.there.name, "Create", "Succeeded")
        scene.delete(scene.there.name)
        wait_until(lambda: scene.is_gone(scene.there.name), "it is gone")
    listed = scene.s3.list_objects_v2(Bucket=scene.there.name)["Contents"]
    assert [each["Key"] for each in listed] == ["theirs"], "our mark went, the rest is left"


def test_nothing_is_deleted_that_an_entry_or_anybody_s_objects_need(scene):
    entry = f"shoot--{scene.namespace}--a--1"
    with scene.operator():
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        entries = scene.entry(entry, scene.name)
        scene.delete(scene.name)
        found = scene.stands(scene.name, "Delete", "Error")
        assert f"named by 1 BackupEntries, such as {entry}" in found["status"]["lastError"]["description"]
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_DEPENDENCIES"]
        scene.s3.put_object(Bucket=scene.name, Key="left/object", Body=b"x")
        entries.delete(entry)
        wait_until(
            lambda: "left/ lies in" in scene.get(scene.name)["status"]["lastError"]["description"], "left"
        )
        assert scene.name in scene.buckets()
        scene.annotate(scene.name, **{EMPTY: "true"})
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()


def test_of_two_seeds_on_one_bucket_the_first_that_goes_leaves_it(scene):
    with scene.operator(owner="one seed"):
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
    with scene.operator(owner="another"):
        scene.ask(scene.name, "reconcile")
        scene.stands(scene.name, "Reconcile", "Succeeded")
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name in scene.buckets(), "the other seed's backups may lie in it"


def test_wrong_credentials_are_told_and_their_mending_is_enough(scene):
    scene.secret("backup", {**scene.keys, "secretAccessKey": "wrong"})
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        found = scene.stands(scene.name, "Create", "Error")
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_UNAUTHORIZED"]
        assert found["status"]["lastError"]["taskID"] == "bucket"
        assert found["status"]["lastOperation"]["progress"] == 50
        scene.secret("backup", scene.keys)
        scene.stands(scene.name, "Create", "Succeeded")
        assert not any(each["event"] == "bucket-vanished" for each in operator.logged)


def test_a_typing_error_in_the_configuration_is_no_silent_default(scene):
    config = {
        "apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "BackupBucketConfig",
        "imutability": {},
    }
    with scene.operator():
        scene.create(scene.name, scene.spec(type="aws", providerConfig=config))
        found = scene.stands(scene.name, "Create", "Error")
        assert "imutability" in found["status"]["lastError"]["description"]
        assert found["status"]["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert scene.name not in scene.buckets()


def test_a_dry_run_tells_and_does_nothing(scene):
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec(), **{DRY_RUN: "true"})
        planned = lambda: {  # noqa: E731
            each["type"]: each["message"]
            for each in scene.get(scene.name).get("status", {}).get("conditions", [])
        }.get("Planned", "")
        wait_until(lambda: "would be made" in planned(), "the plan")
        operator.rest()
        found = scene.get(scene.name)
        assert ("finalizers" in found["metadata"], "lastOperation" in found["status"]) == (False, False)
        assert scene.name not in scene.buckets()
        scene.annotate(scene.name, **{DRY_RUN: None, "gardener.cloud/operation": "reconcile"})
        scene.stands(scene.name, "Create", "Succeeded")
        assert not planned()


def test_a_local_bucket_is_a_directory_with_an_empty_secret(scene):
    garden = scene.namespace
    annotations = {"backupbucket.extensions.gardener.cloud/generated-secret-namespace": garden}
    scene.secret("backup", {})
    with scene.operator():
        scene.create(scene.name, scene.spec(type="local"), **annotations)
        found = scene.stands(scene.name, "Create", "Succeeded")
        assert (scene.directory / scene.name).is_dir()
        name = f"generated-bucket-{scene.name}"
        assert found["status"]["generatedSecretRef"] == {"name": name, "namespace": garden}
        assert data_of(scene.read_secret(name)) == {}
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert not (scene.directory / scene.name).exists()
    with pytest.raises(Exception, match=name):
        scene.read_secret(name)
