"""The end of BackupBuckets: what is deleted, what is left, and what the status says of it."""

import pytest

from rootcellar.operator.backupbucket.run import DRY_RUN, EMPTY, FINALIZER, KEEP
from tests.kube.things import wait_until
from tests.operator.buckets import GENERATED_IN, Scene
from tests.operator.conftest import SECRETS


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def test_a_bucket_that_is_to_be_kept_outlives_its_object_and_is_adopted_again(scene):
    with scene.operator():
        scene.made()
        scene.s3.put_object(Bucket=scene.name, Key="a/b", Body=b"x")
        scene.annotate(scene.name, **{KEEP: "true"})
        scene.deleted()
        assert [each["Key"] for each in scene.s3.list_objects_v2(Bucket=scene.name)["Contents"]] == ["a/b"]
        scene.made()
        scene.annotate(scene.name, **{EMPTY: "true"})
        scene.deleted()
    assert scene.name in scene.buckets(), "what was kept once is not deleted by the next object of its name"


def test_a_bucket_that_came_after_its_deletion_was_decided_is_not_emptied(scene):
    """It was deleted, the process killed, and somebody has made one of that name since."""
    decided = {
        "type": "DeletionDecided",
        "status": "True",
        "reason": "NobodyElse",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
    }
    with scene.operator():
        scene.made()
    scene.client.merge_patch(
        scene.any, scene.name, {"status": {"conditions": [decided]}}, subresource="status"
    )
    scene.annotate(scene.name, **{EMPTY: "true"})
    scene.delete(scene.name)
    for each in scene.s3.list_objects_v2(Bucket=scene.name)["Contents"]:
        scene.s3.delete_object(Bucket=scene.name, Key=each["Key"])
    scene.s3.put_object(Bucket=scene.name, Key="theirs/a", Body=b"x")
    with scene.operator():
        found = scene.says("theirs/ lies in the bucket")
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_DEPENDENCIES"]
        assert found["status"]["lastOperation"]["type"] == "Delete"
        scene.s3.delete_object(Bucket=scene.name, Key="theirs/a")
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()


def test_without_its_secret_a_bucket_is_left_and_the_object_goes(scene):
    with scene.operator() as operator:
        scene.made()
        patch = {"metadata": {"finalizers": None}}
        scene.client.merge_patch(SECRETS, "backup", patch, scene.namespace)
        scene.client.delete(SECRETS, "backup", scene.namespace)
        scene.deleted()
        assert [each["bucket"] for each in operator.logged if each["event"] == "bucket-left"] == [scene.name]
    assert scene.name in scene.buckets()


def test_credentials_stay_as_long_as_another_bucket_needs_them(scene):
    other = f"{scene.name}-2"
    with scene.operator():
        scene.made()
        scene.create(other, scene.spec())
        scene.stands(other, "Create", "Succeeded")
        scene.deleted()
        assert scene.finalizers() == [FINALIZER]
        scene.delete(other)
        wait_until(lambda: scene.is_gone(other), "it is gone")
    assert scene.finalizers() == []


def test_credentials_of_buckets_that_go_together_are_let_go(scene):
    names = [f"{scene.name}-{number}" for number in range(4)]
    with scene.operator():
        scene.all_stand(names, scene.spec(type="local"), **{GENERATED_IN: scene.namespace})
        assert scene.finalizers() == [FINALIZER]
        scene.all_go(names)
    assert scene.finalizers() == []


def test_an_entry_that_names_a_prefix_of_the_bucket_protects_it_too(scene):
    entry = f"garden--{scene.namespace}"
    with scene.operator():
        scene.made()
        entries = scene.entry(entry, f"{scene.name}/prefix")
        scene.annotate(scene.name, **{EMPTY: "true"})
        scene.delete(scene.name)
        scene.says(f"such as {entry}")
        assert scene.name in scene.buckets()
        entries.delete(entry)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")


def test_a_deletion_tried_dry_says_what_would_go(scene):
    with scene.operator():
        scene.made()
        scene.s3.put_object(Bucket=scene.name, Key="a/b", Body=b"x")
        scene.annotate(scene.name, **{DRY_RUN: "true"})
        scene.delete(scene.name)
        planned = lambda: {  # noqa: E731
            each["type"]: each["message"] for each in scene.get(scene.name)["status"]["conditions"]
        }.get("Planned", "")
        wait_until(lambda: planned() == "Refused: a/ and perhaps more lies in the bucket.", "a refusal")
        scene.annotate(scene.name, **{EMPTY: "true"})
        scene.annotate(scene.name, **{DRY_RUN: None})
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()


def test_a_migration_does_not_stop_a_deletion(scene):
    """The annotation that moves entries means nothing for buckets, which are never moved."""
    with scene.operator():
        scene.made()
        scene.ask(scene.name, "migrate")
        wait_until(lambda: "gardener.cloud/operation" not in _annotations(scene), "the order is taken")
        scene.stands(scene.name, "Migrate", "Succeeded")
        scene.ask(scene.name, "wait-for-state")
        scene.delete(scene.name)
        scene.ask(scene.name, "migrate")
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()


def _annotations(scene):
    return scene.get(scene.name)["metadata"].get("annotations", {})


def test_a_configuration_that_cannot_be_meant_does_not_stop_a_deletion(scene):
    """Under deletion nobody may change a spec any more."""
    config = {"apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1", "kind": "BackupBucketConfig"}
    with scene.operator():
        scene.made(type="aws", providerConfig=config)
        scene.change(scene.name, providerConfig={**config, "immutability": {"retentionType": 7}})
        scene.deleted()
    assert scene.name not in scene.buckets()


def test_a_bucket_that_vanished_is_made_anew_and_told(scene):
    with scene.operator() as operator:
        scene.made()
        for each in scene.s3.list_objects_v2(Bucket=scene.name)["Contents"]:
            scene.s3.delete_object(Bucket=scene.name, Key=each["Key"])
        scene.s3.delete_bucket(Bucket=scene.name)
        scene.ask(scene.name, "reconcile")
        scene.stands(scene.name, "Reconcile", "Succeeded")
        assert scene.name in scene.buckets()
        told = [each["bucket"] for each in operator.logged if each["event"] == "bucket-vanished"]
        assert told == [scene.name]
