"""BackupEntries of every kind of store: exactly one prefix goes, what is locked or held stays and is told."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.records import Hold, Release
from rootcellar.operator.backupentry.parting import FORCED, HELD, PENDING
from rootcellar.operator.shared import ledger, place
from rootcellar.stores import FileStore, Retention
from rootcellar.stores.credentials import NAMES
from testbed.ports import free_port
from tests.kube.things import wait_until
from tests.operator.conftest import data_of
from tests.operator.entry_scene import Scene
from tests.stores.clouds import azure_store, gcs_store

NOW = datetime.now(UTC).replace(microsecond=0)
_names = itertools.count(1)


class Directory:
    """A bucket of the type local."""

    def __init__(self, parent):
        self.name = f"bucket-{next(_names)}"
        self.path = parent / self.name
        self.path.mkdir()


def s3_without_versions(served, request, directory):
    return Scene(served, request.getfixturevalue("plain_bucket"), directory)


def azure(served, request, directory):
    container = request.getfixturevalue("azurite").new_container()
    account = {"storageAccount": container.account, "storageKey": container.key}
    url = f"azure://{container.account}/{container.name}?endpoint={container.endpoint}"

    def located(asked):
        known = {name: value.decode() for name, value in asked.secret.data.items() if name in NAMES}
        return place.Place(url, place.SecretCredentials(known, asked.secret.metadata.resource_version))

    # Nothing in a secret of Gardener's leads to Azurite, whose account is a part of the path.
    request.getfixturevalue("monkeypatch").setitem(place._LOCATE, "azure", located)  # noqa: SLF001
    return Scene(served, container, directory, type_="azure", keys=account, opened=azure_store)


def google(served, request, directory):
    bucket = request.getfixturevalue("fake_gcs").new_bucket()
    said = {"projectID": "testbed", "storageAPIEndpoint": bucket.endpoint}
    return Scene(served, bucket, directory, type_="gcp", keys=said, opened=gcs_store)


def local(served, _request, directory):
    opened = lambda bucket, prefix: FileStore(bucket.path / prefix)  # noqa: E731
    return Scene(served, Directory(directory), directory, type_="local", keys={}, opened=opened)


@pytest.mark.parametrize("make", [s3_without_versions, azure, google, local])
def test_a_life_in_every_store_ends_with_its_own_prefix_alone(make, served, request, tmp_path):
    scene = make(served, request, tmp_path)
    neighbours = (f"{scene.name}--b", f"{scene.name}x", scene.name[:-1])
    scene.put(scene.name, *neighbours, count=3)
    before = {each: contents(scene, each) for each in neighbours}
    with scene.operator():
        scene.create(scene.name, scene.spec())
        entry = scene.stands(scene.name, "Create", "Succeeded")
        (reachable,) = entry["status"]["conditions"]
        assert (reachable["type"], reachable["status"]) == ("BucketReachable", "True")
        added = {"hostPath": "/buckets"} if scene.type_ == "local" else {}
        told = data_of(scene.read_secret("etcd-backup", scene.shoot))
        assert told == {**scene.keys, "bucketName": scene.bucket.name, **added}
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []
    assert {each: contents(scene, each) for each in neighbours} == before


def contents(scene, name):
    store = scene.store(name)
    return {info.key: b"".join(store.get(info.key)) for info in store.list()}


def test_a_source_entry_has_its_own_secret_and_its_original_s_prefix(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    source = f"source-{scene.name}"
    scene.put(scene.name, source)
    with scene.operator():
        for name in (scene.name, source):
            scene.create(name, scene.spec())
            scene.stands(name, "Create", "Succeeded")
        secret = scene.read_secret("source-etcd-backup", scene.shoot)
        assert secret["metadata"]["annotations"] == {"backup.gardener.cloud/created-by": source}
        scene.delete(source)
        entry = scene.stands(source, "Delete", "Error")
        assert f"are also those of {scene.name}, which lives" in entry["status"]["lastError"]["description"]
        assert len(scene.lies(scene.name)) == 1, "in one bucket both have the same objects"
        scene.change(scene.name, bucketName="another")
        scene.annotate(source, note="looked at again")
        wait_until(lambda: scene.is_gone(source), "the source is gone")
        assert scene.read_secret("etcd-backup", scene.shoot)
        assert scene.finalizers(), "the other entry has need of the secret"
    assert (scene.lies(scene.name), len(scene.lies(source))) == ([], 1)


# versions, locks, holds


@pytest.fixture
def locked(served, locked_bucket, tmp_path):
    """A scene in a bucket with versions, and its entry, which is ready, with an operator."""
    scene = Scene(served, locked_bucket, tmp_path)
    with scene.operator() as operator:
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Succeeded")
        scene.worker = operator
        yield scene


def test_versions_and_delete_markers_go_with_an_entry(locked):
    scene, neighbour = locked, f"{locked.name}--b"
    scene.put(scene.name, neighbour, scene.name, neighbour)
    scene.store(scene.name).delete("etcd-main/v2/0")
    scene.delete(scene.name)
    wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert list(scene.store(scene.name).versions()) == []
    assert len(list(scene.store(neighbour).versions())) == 2


def test_what_is_locked_keeps_its_entry_until_it_may_go(locked):
    scene = locked
    scene.put(scene.name, count=3)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
    scene.store(scene.name).set_retention("etcd-main/v2/1", Retention(until))
    scene.delete(scene.name)
    entry = scene.stands(scene.name, "Delete", "Error")
    text = f"1 objects of {scene.name}/ are locked until {until:%Y-%m-%dT%H:%M:%SZ}"
    described = entry["status"]["lastError"]["description"]
    assert f"{text} (when that ends they are deleted by themselves; the annotation {FORCED}=true" in described
    assert entry["status"]["lastOperation"]["description"] == entry["status"]["lastError"]["description"]
    assert scene.lies(scene.name) == ["etcd-main/v2/1"]
    assert scene.finalizers()
    wait_until(lambda: scene.is_gone(scene.name) or PENDING in conditions(scene), "it is told")
    wait_until(lambda: scene.is_gone(scene.name), "it is gone when the lock has ended, and nobody asked")
    assert list(scene.store(scene.name).versions()) == []
    assert scene.finalizers() == []


def test_a_forced_deletion_leaves_what_is_locked_and_a_record_of_it(locked):
    scene = locked
    scene.put(scene.name, count=3)
    rule = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}
    client, bucket = scene.bucket.client(), scene.bucket.name
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    until = NOW + timedelta(days=1)
    scene.store(scene.name).set_retention("etcd-main/v2/1", Retention(until))
    scene.delete(scene.name)
    scene.stands(scene.name, "Delete", "Error")
    scene.annotate(scene.name, **{FORCED: "true"})
    wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == ["etcd-main/v2/1"]
    (left,) = ledger.records(scene.store(ledger.HOME))
    assert (left.prefix, left.locked, left.earliest, left.latest) == (scene.name, 1, until, until)
    assert scene.finalizers() == []
    assert client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == [rule]
    assert b"rootcellar_entry_objects_left_total 1.0" in scene.worker.manager.metrics.exposition()


def test_a_complete_deletion_strikes_an_earlier_one_s_record(locked):
    scene = locked
    store = scene.store(ledger.HOME)
    ledger.keep(store, ledger.Left(prefix=scene.name, locked=1, since=NOW))
    ledger.keep(store, ledger.Left(prefix="another", locked=1, since=NOW))
    scene.delete(scene.name)
    wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert [left.prefix for left in ledger.records(store)] == ["another"]


def test_a_hold_in_the_catalogue_forbids_the_deletion_even_a_forced_one(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    scene.put(scene.name)
    cluster = scene.store(f"{scene.name}/etcd-main")
    hold = Hold(nonce="ab12", key="v2/x", reason="the audit", by="a test", created_at=NOW)
    documents.put_once(cluster, keys.hold("ab12"), hold)
    with scene.operator():
        scene.create(scene.name, scene.spec(), **{FORCED: "true"})
        scene.stands(scene.name, "Create", "Succeeded")
        scene.delete(scene.name)
        entry = scene.stands(scene.name, "Delete", "Error")
        assert (
            "1 backups of the entry are held, such as for: the audit"
            in (entry["status"]["lastError"]["description"])
        )
        assert entry["status"]["lastError"]["taskID"] == "hold"
        assert scene.read_secret("etcd-backup", scene.shoot), "nothing of it is deleted"
        release = Release(hold="ab12", reason="done", by="a test", created_at=NOW)
        documents.put_once(cluster, keys.release("ab12"), release)
        scene.annotate(scene.name, note="looked at again")
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []


def test_a_hold_that_cannot_be_read_holds_and_one_of_a_neighbour_does_not(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    scene.store(f"{scene.name}--b/etcd-main").put(keys.hold("ab12"), [b"x"])
    with scene.operator():
        for name in (scene.name, f"{scene.name}--b"):
            scene.create(name, scene.spec())
            scene.stands(name, "Create", "Succeeded")
            scene.delete(name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
        entry = scene.stands(f"{scene.name}--b", "Delete", "Error")
        assert "a hold that cannot be read" in entry["status"]["lastError"]["description"]
        assert entry["metadata"].get("annotations", {}).get(HELD) is None
        scene.store(f"{scene.name}--b").delete(f"etcd-main/{keys.hold('ab12')}")
        scene.annotate(f"{scene.name}--b", note="looked at again")
        wait_until(lambda: scene.is_gone(f"{scene.name}--b"), "that one is gone, too")


# a bucket that is not there


def test_an_entry_of_a_bucket_that_is_gone_goes(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    with scene.operator():
        scene.create(scene.name, scene.spec(bucketName="never-made"))
        entry = scene.stands(scene.name, "Create", "Succeeded")
        (reachable,) = entry["status"]["conditions"]
        assert (reachable["status"], reachable["reason"]) == ("False", "BucketMissing")
        assert scene.read_secret("etcd-backup", scene.shoot)
        scene.delete(scene.name)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.finalizers() == []


def test_a_store_that_is_away_stops_no_set_up_and_every_deletion(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    scene.put(scene.name)
    scene.secret("entry", {**scene.keys, "endpoint": f"http://127.0.0.1:{free_port()}"})
    with scene.operator():
        scene.create(scene.name, scene.spec())
        entry = scene.stands(scene.name, "Create", "Succeeded")
        (reachable,) = entry["status"]["conditions"]
        assert (reachable["status"], reachable["reason"]) == ("False", "NotReadable")
        scene.delete(scene.name)
        scene.stands(scene.name, "Delete", "Error")
        assert scene.lies(scene.name)
        scene.secret("entry", scene.keys)
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.lies(scene.name) == []


def conditions(scene):
    return [each["type"] for each in scene.get(scene.name).get("status", {}).get("conditions", [])]
