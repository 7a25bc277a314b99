"""BackupBuckets of each provider type, each on its own server."""

import pytest

from rootcellar.operator.backupbucket.run import KEEP
from testbed.gcs import GcsBucket
from testbed.server import unique
from testbed.swift import PASSWORD, USER
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.stores.clouds import gcs_store
from tests.stores.fake_oss import FakeOss


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


def lives_and_ends(scene, type_, *, put, region="eu-1", **spec):
    """Made, not deleted while something lies in it, then gone."""
    with scene.operator():
        scene.made(type=type_, region=region, **spec)
        found = scene.get(scene.name)["status"]
        assert ("lastError" in found, found["observedGeneration"]) == (False, 1)
        assert scene.conditions()["BucketReachable"] == ("True", "Marked")
        take_away = put("shoot--a--1/x")
        scene.delete(scene.name)
        scene.says("shoot--a--1/ lies in the bucket")
        take_away()
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")


def s3_put(scene):
    def put(key):
        scene.s3.put_object(Bucket=scene.name, Key=key, Body=b"x")
        return lambda: scene.s3.delete_object(Bucket=scene.name, Key=key)

    return put


def test_another_s3(served, plain_bucket, tmp_path):
    """Rclone, which knows no policies, locks and versions."""
    scene = Scene(served, plain_bucket, tmp_path)
    lives_and_ends(scene, "S3", put=s3_put(scene))
    assert scene.name not in scene.buckets()


def test_gcp(scene, fake_gcs):
    bucket = GcsBucket(unique("seed"), fake_gcs.endpoint)
    scene.name = bucket.name
    file = '{"type": "service_account", "project_id": "testbed"}'
    scene.secret("backup", {"serviceaccount.json": file, "storageAPIEndpoint": fake_gcs.endpoint})

    def put(key):
        store = gcs_store(bucket)
        store.put(key, [b"x"])
        return lambda: store.delete(key)

    lives_and_ends(scene, "gcp", put=put, region="us-central1")


def test_openstack(scene, swift):
    container = type(swift.new_container())(unique("seed"), swift.auth)
    scene.name = container.name
    scene.secret("backup", {"authURL": swift.auth, "username": USER, "password": PASSWORD})

    def put(key):
        container.ask("PUT", key, b"x")
        return lambda: container.ask("DELETE", key)

    lives_and_ends(scene, "openstack", put=put, region="")


def test_alicloud(scene, seaweed):
    with FakeOss(seaweed) as fake:
        keys = {
            "accessKeyID": scene.there.access_key,
            "accessKeySecret": scene.there.secret_key,
            "storageEndpoint": fake.endpoint,
        }
        scene.secret("backup", keys)
        lives_and_ends(scene, "alicloud", put=s3_put(scene), region=scene.there.region)
    assert scene.name not in scene.buckets()


def test_a_bucket_that_was_never_reached_has_a_way_out(scene):
    scene.secret("backup", {"clientID": "x"})
    with scene.operator():
        scene.create(scene.name, scene.spec(type="azure"))
        scene.says("the credentials lack")
        scene.delete(scene.name)
        scene.stands(scene.name, "Delete", "Error")
        scene.annotate(scene.name, **{KEEP: "true"})
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.finalizers() == []
