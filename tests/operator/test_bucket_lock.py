"""Immutability of BackupBuckets: wished for, extended, refused, no longer asked for."""

import pytest

from rootcellar.operator.backupbucket.run import EMPTY, KEEP
from tests.kube.things import wait_until
from tests.operator.buckets import Scene


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def config(days, mode, group="aws"):
    return {
        "apiVersion": f"{group}.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "BackupBucketConfig",
        "immutability": {"retentionType": "bucket", "retentionPeriod": f"{24 * days}h", "mode": mode},
    }


def rule(scene, name=None):
    found = scene.s3.get_object_lock_configuration(Bucket=name or scene.name)["ObjectLockConfiguration"]
    kept = found.get("Rule", {}).get("DefaultRetention", {})
    return kept.get("Mode"), kept.get("Days")


def ordered(scene, state, **spec):
    scene.change(scene.name, **spec)
    generation = scene.get(scene.name)["metadata"]["generation"]
    scene.ask(scene.name, "reconcile")

    def reached():
        found = scene.get(scene.name)["status"]
        return (found.get("observedGeneration"), found["lastOperation"]["state"]) == (generation, state)

    wait_until(reached, f"generation {generation} {state}")
    return scene.get(scene.name)


def test_any_s3_has_a_lock_by_a_config_of_its_own_and_says_that_it_reads_no_other(scene):
    with scene.operator():
        scene.made(providerConfig=config(1, "governance"))
        assert scene.conditions()["ConfigRead"] == ("False", "NotRead")
        assert scene.conditions()["RetentionLocked"] == ("False", "NoRetention")
        ordered(scene, "Succeeded", providerConfig=config(1, "governance", "s3"))
        assert rule(scene) == ("GOVERNANCE", 1)
        assert "ConfigRead" not in scene.conditions()


def test_what_is_not_locked_may_be_changed_and_lifted_again(scene):
    with scene.operator():
        scene.made(type="aws", providerConfig=config(1, "governance"))
        assert rule(scene) == ("GOVERNANCE", 1)
        assert scene.conditions()["RetentionLocked"] == ("False", "UnlockedFor1Days")
        ordered(scene, "Succeeded", providerConfig=config(3, "governance"))
        assert rule(scene) == ("GOVERNANCE", 3)
        assert scene.conditions()["RetentionLocked"] == ("False", "UnlockedFor3Days")
        ordered(scene, "Succeeded", providerConfig=config(2, "governance"))
        assert rule(scene) == ("GOVERNANCE", 2)
        ordered(scene, "Succeeded", providerConfig=None)
        assert scene.conditions()["RetentionLocked"] == ("False", "NoRetention")
        assert rule(scene) == (None, None)


def test_what_is_locked_is_extended_only_and_outlives_its_configuration(scene):
    with scene.operator():
        scene.made(type="aws", providerConfig=config(1, "compliance"))
        assert scene.conditions()["RetentionLocked"] == ("True", "LockedFor1Days")
        ordered(scene, "Succeeded", providerConfig=config(2, "compliance"))
        assert rule(scene) == ("COMPLIANCE", 2)
        for less in (config(1, "compliance"), config(2, "governance")):
            found = ordered(scene, "Error", providerConfig=less)
            assert (
                "its immutability is locked (2 days, locked)" in found["status"]["lastError"]["description"]
            )
            assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_DEPENDENCIES"]
            assert scene.conditions()["SettingsInSync"] == ("False", "Refused")
            assert rule(scene) == ("COMPLIANCE", 2)
        ordered(scene, "Succeeded", providerConfig=None)
        assert rule(scene) == ("COMPLIANCE", 2), "who takes the configuration away lifts no lock"
        assert scene.conditions()["RetentionLocked"] == ("True", "LockedFor2Days")


def test_a_bucket_that_was_there_and_keeps_longer_than_asked_serves_as_it_is(scene, locked_bucket):
    scene.name = locked_bucket.name
    retention = {"Mode": "GOVERNANCE", "Days": 5}
    scene.s3.put_object_lock_configuration(
        Bucket=scene.name,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},
    )
    with scene.operator():
        scene.made(type="aws", providerConfig=config(2, "governance"))
        assert scene.conditions()["SettingsInSync"] == ("False", "Refused")
        assert rule(scene) == ("GOVERNANCE", 5)


def test_a_deletion_says_until_when_objects_are_locked(scene):
    with scene.operator():
        scene.made(type="aws", providerConfig=config(1, "compliance"))
        scene.s3.put_object(Bucket=scene.name, Key="shoot--a/x", Body=b"x")
        scene.annotate(scene.name, **{EMPTY: "true"})
        scene.delete(scene.name)
        found = scene.says("1 objects of the bucket", "are locked until 20", f"{KEEP}=true keeps it all")
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_DEPENDENCIES"]
        assert found["status"]["lastOperation"]["state"] == "Error"
        assert scene.name in scene.buckets()


def test_a_lock_that_a_store_does_not_have_is_refused_and_not_forgotten(served, plain_bucket, tmp_path):
    scene = Scene(served, plain_bucket, tmp_path)
    with scene.operator():
        scene.create(scene.name, scene.spec(type="aws", providerConfig=config(1, "governance")))
        found = scene.stands(scene.name, "Create", "Error")
        assert found["status"]["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
