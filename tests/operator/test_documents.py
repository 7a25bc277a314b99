"""The manifests of the contracts' own documents, applied as they are written, through their whole life.

`documents/` has the one block of YAML of each page, character by character:

    backupbucket.yaml   "Contract: BackupBucket Resource", gardener.cloud/docs/gardener/extensions/resources/
    backupentry.yaml    "Contract: BackupEntry resource", beside it

An older state of the first page, which has lost its indentation, has the same lines.  Nobody can apply a line
in angle brackets: it stands for an object, or for nothing.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import yaml

from rootcellar.errors import KubeError
from rootcellar.kube.kinds import untyped
from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.run import FINALIZER as OF_BUCKETS
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS
from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.run import FINALIZER as OF_ENTRIES
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared import place
from rootcellar.stores.credentials import NAMES
from testbed.azurite import ACCOUNT, KEY, Container
from tests.kube.things import wait_until
from tests.operator.conftest import SECRETS, Kubectl, Operator, data_of
from tests.stores.clouds import azure_store

DOCUMENTS = Path(__file__).parent / "documents"
COMPARED = {
    "backupbucket.yaml": "de865fdc229ea588c6df997b475f12edb219137f02cfa45cfd15dc7d2f54e0b4",
    "backupentry.yaml": "67bda9d78f04b9a9490c7efec015e5855ae01ef4454dc939b1e287bb38244c6b",
}
"""SHA-256 of each block, taken from the page itself."""
PLACEHOLDER = re.compile(r"  (\w+):\n    <[^>\n]*>\n")
SPACE = "shoot--foo--bar"
FILLED = {
    "providerConfig": {
        "apiVersion": "azure.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "BackupBucketConfig",
        "cloudConfiguration": {"name": "AzurePublic"},
    },
    "backupBucketProviderStatus": {"anything": {"that": "a provider told"}},
}
"""What the placeholders can stand for."""


def placeholders(name):
    """The fields that have one, of which there are some."""
    found = PLACEHOLDER.findall((DOCUMENTS / name).read_text())
    assert found
    return found


def sample(name, *, filled):
    """The manifest, its placeholders filled in or left out."""
    manifest = yaml.safe_load(PLACEHOLDER.sub("", (DOCUMENTS / name).read_text()))
    if filled:
        manifest["spec"] |= {field: FILLED[field] for field in placeholders(name)}
    return manifest


@pytest.mark.parametrize("name", COMPARED)
def test_a_copy_of_a_document_s_manifest_is_what_was_compared(name):
    assert hashlib.sha256((DOCUMENTS / name).read_bytes()).hexdigest() == COMPARED[name]


def test_every_copy_is_compared():
    assert {path.name for path in DOCUMENTS.iterdir()} == set(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_a_placeholder_is_refused_as_no_object(served, name):
    """Who applies the text with them in it is told so by the API server, here as with Gardener's own CRD."""
    manifest = yaml.safe_load((DOCUMENTS / name).read_text())
    plural = {"BackupBucket": "backupbuckets", "BackupEntry": "backupentries"}[manifest["kind"]]
    kind = untyped(*manifest["apiVersion"].split("/"), plural, is_namespaced=False)
    with pytest.raises(KubeError) as refused:
        served.client.create(kind, manifest)
    for field in placeholders(name):
        assert f"spec.{field}" in refused.value.message


@pytest.fixture
def operator(served, tmp_path, monkeypatch, azurite):
    """Both controllers for class `shoot`, which the manifests do not name, and Azurite as their Azure."""

    def located(asked):
        known = {name: value.decode() for name, value in asked.secret.data.items() if name in NAMES}
        url = f"azure://{ACCOUNT}/{asked.bucket}?endpoint={azurite.endpoint}"
        return place.Place(url, place.SecretCredentials(known, asked.secret.metadata.resource_version))

    # Nothing in a secret of Gardener's leads to Azurite, whose account is a part of the path.
    monkeypatch.setitem(place._LOCATE, "azure", located)  # noqa: SLF001

    def add(manager, log):
        types, classes = {"azure"}, {"shoot"}
        add_bucket_controller(
            manager, BucketSettings(types, classes, "the documents' cluster", tmp_path, tmp_path), log=log
        )
        settings = EntrySettings(types, classes, tmp_path, tmp_path, "/buckets", looks=None)
        return add_entry_controller(manager, settings, log=log)

    with Operator(served, add) as running:
        yield running


@pytest.mark.usefixtures("operator")
def test_the_documents_bucket_and_entry_live_and_end_as_the_contracts_say(served, azurite):
    """Placeholders left out and filled in, in one test: the names are the documents' own."""
    buckets = Kubectl(served, BACKUP_BUCKETS, SPACE)
    entries = Kubectl(served, BACKUP_ENTRIES, SPACE)
    for filled in (False, True):
        bucket = served.client.create(buckets.any, sample("backupbucket.yaml", filled=filled))
        name, keys = bucket["metadata"]["name"], {"storageAccount": ACCOUNT, "storageKey": KEY}
        assert bucket["spec"].get("providerConfig") == (FILLED["providerConfig"] if filled else None)
        if not filled:
            waits_for_its_credentials(buckets, name)
        buckets.secret("backupprovider", keys)
        bucket = buckets.stands(name, "Create", "Succeeded")
        is_ready(bucket)
        assert bucket["metadata"]["finalizers"] == [OF_BUCKETS]
        assert conditions(bucket)["BucketReachable"] == "True"
        container = Container(name, azurite.endpoint, None)
        store = azure_store(container)
        assert [info.key.split("/")[:2] for info in store.list()] == [["_rootcellar", "owners"]]

        entry = served.client.create(entries.any, sample("backupentry.yaml", filled=filled))
        prefix = entry["metadata"]["name"]
        entry = entries.stands(prefix, "Create", "Succeeded")
        is_ready(entry)
        assert entry["metadata"]["finalizers"] == [OF_ENTRIES]
        assert conditions(entry) == {"BucketReachable": "True"}
        assert entry["spec"]["bucketName"] == name
        given = entries.read_secret("etcd-backup", SPACE)
        assert data_of(given) == {**keys, "bucketName": name}
        assert given["metadata"]["annotations"] == {"backup.gardener.cloud/created-by": prefix}
        assert entry["status"]["providerStatus"]["etcdBackup"] == {"namespace": SPACE, "name": "etcd-backup"}
        held = entries.read_secret("backupprovider")["metadata"]["finalizers"]
        assert sorted(held) == sorted([OF_BUCKETS, OF_ENTRIES])

        its, others = f"{prefix}/etcd-main/v2/Full", f"{prefix}--x/etcd-main/v2/Full"
        for key in (its, others):
            store.put(key, [b"x"])
        buckets.delete(name)
        found = buckets.stands(name, "Delete", "Error")
        assert f"named by 1 BackupEntries, such as {prefix}" in found["status"]["lastError"]["description"]
        entries.delete(prefix)
        wait_until(lambda prefix=prefix: entries.is_gone(prefix), "the entry is gone")
        left = [info.key for info in store.list() if not info.key.startswith("_rootcellar/")]
        assert left == [others], "exactly its own prefix"
        assert [each["metadata"]["name"] for each in served.client.list(SECRETS, SPACE)] == ["backupprovider"]
        store.delete(others)
        wait_until(lambda name=name: buckets.is_gone(name), "the bucket is gone")
        assert entries.read_secret("backupprovider")["metadata"].get("finalizers", []) == []
        served.client.delete(SECRETS, "backupprovider", SPACE)


def waits_for_its_credentials(buckets, name):
    """Applied before anything else, it waits for its secret, and then says what that lacks."""
    buckets.new_namespace(SPACE)

    def missing():
        return conditions(buckets.get(name)).get("CredentialsFound") == "False"

    wait_until(missing, "it tells that there is no secret")
    assert buckets.get(name)["status"]["lastOperation"]["state"] == "Processing"
    buckets.secret("backupprovider", {"clientID": "x"})
    found = buckets.stands(name, "Create", "Error")
    assert "the credentials lack" in found["status"]["lastError"]["description"]
    assert found["status"]["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]


def is_ready(found):
    """As gardenlet, and Gardener's tests, look at it."""
    status = found["status"]
    assert "lastError" not in status
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert (status["lastOperation"]["state"], status["lastOperation"]["progress"]) == ("Succeeded", 100)
    assert "gardener.cloud/operation" not in found["metadata"].get("annotations", {})


def conditions(found):
    return {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", [])}
