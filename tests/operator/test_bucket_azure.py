"""BackupBuckets in Azure: the management is a fake, the blobs are Azurite's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import KubeNotFoundError
from rootcellar.operator.backupbucket.run import COLLECT, ROTATE
from rootcellar.operator.shared import ledger
from rootcellar.stores.admin.azure.account import TAG, AccountAdmin
from rootcellar.stores.admin.azure.management import CLOUDS
from testbed.azurite import ACCOUNT, KEY, SECOND_KEY, Container
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.operator.conftest import SECRETS, data_of
from tests.stores.admin.fake_azure_management import FakeAzureManagement
from tests.stores.clouds import Rerouted, azure_store

PRINCIPAL = {
    "clientID": "client",
    "clientSecret": "right",
    "tenantID": "tenant",
    "subscriptionID": "subscription",
}
OLDER = "b2xkZXI="


class Rotating(FakeAzureManagement):
    """Its second key becomes one that Azurite takes."""

    def _on_account(self, method, found, said):
        answer = super()._on_account(method, found, said)
        if found["deed"] == "/regenerateKey":
            for account in self.accounts.values():
                for key in account["keys"]:
                    if key["keyName"] == "key2":
                        key["value"] = SECOND_KEY
        return answer


class AzureScene(Scene):
    """A service principal, a subscription behind a fake, and blobs in Azurite."""

    def __init__(self, control_plane, bucket, directory, azurite, management):
        super().__init__(control_plane, bucket, directory)
        self.azurite, self.management = azurite, management
        self.name = self.name.replace(".", "-")[:60].rstrip("-")
        self.secret("backup", PRINCIPAL)
        self.generated = f"generated-bucket-{self.name}"
        self.container = Container(self.name, azurite.endpoint, None)

    def spec(self, **more):
        return super().spec(**{"type": "azure", "region": "westeurope", **more})

    def settings(self, **more):
        routes = dict.fromkeys(
            (CLOUDS["AzurePublic"].management, CLOUDS["AzurePublic"].login), self.management.endpoint
        )

        def account(site, credentials, backoff):
            found = replace(site, account=ACCOUNT, endpoint=self.azurite.endpoint)
            return AccountAdmin(found, credentials, backoff=backoff, wire=Rerouted(routes))

        return super().settings(account=account, **more)

    def keys_told(self):
        return data_of(self.read_secret(self.generated))

    def put(self, key):
        azure_store(self.container).put(key, [b"x"])

    def lies(self):
        keys = [info.key for info in azure_store(self.container).list()]
        return [key for key in keys if not key.startswith(f"{ledger.HOME}/")]

    def is_left(self):
        """Whether Azure has anything of it."""
        return self.name in self.management.groups or any(
            group == self.name for group, _ in self.management.accounts
        )

    def configured(self, **config):
        kind = {
            "apiVersion": "azure.provider.extensions.gardener.cloud/v1alpha1",
            "kind": "BackupBucketConfig",
        }
        return {"providerConfig": {**kind, **config}}


@pytest.fixture
def scene(served, bucket, tmp_path, azurite):
    with Rotating(KEY) as management:
        yield AzureScene(served, bucket, tmp_path, azurite, management)


def test_an_account_is_made_its_key_published_and_all_of_it_deleted(scene):
    with scene.operator():
        found = scene.made()
        assert found["status"]["generatedSecretRef"] == {
            "name": scene.generated,
            "namespace": scene.namespace,
        }
        published = {"storageAccount": ACCOUNT, "storageKey": KEY, "domain": "blob.core.windows.net"}
        assert scene.keys_told() == published
        assert scene.management.groups[scene.name]["tags"] == {TAG: scene.name}
        scene.put("shoot--a--1/x")
        scene.delete(scene.name)
        scene.says("shoot--a--1/ lies in the bucket")
        assert scene.keys_told() == published, "as long as the bucket is there"
        azure_store(scene.container).delete("shoot--a--1/x")
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert not scene.is_left()
    with pytest.raises(KubeNotFoundError):
        scene.read_secret(scene.generated)


def test_a_key_is_rotated_when_the_annotation_says_so_and_once(scene):
    with scene.operator() as operator:
        scene.made()
        scene.annotate(scene.name, **{ROTATE: "true"})
        wait_until(lambda: scene.keys_told()["storageKey"] == SECOND_KEY, "the new key is published")
        found = scene.stands(scene.name, "Reconcile", "Succeeded")
        operator.rest()
        assert ROTATE not in found["metadata"]["annotations"]
        assert scene.management.made == 1
        assert scene.keys_told()["storageKey"] == SECOND_KEY
        scene.deleted()


def test_a_key_that_was_made_before_a_kill_is_published_and_no_other_is_made(scene):
    """The process was killed behind the request that makes a key anew: the annotation is still there."""
    with scene.operator():
        scene.made()
    (account,) = scene.management.accounts.values()
    account["keys"][1] |= {"value": SECOND_KEY, "creationTime": "2026-11-20T00:00:00+00:00"}
    scene.annotate(scene.name, **{ROTATE: "true"})
    with scene.operator() as operator:
        wait_until(lambda: scene.keys_told()["storageKey"] == SECOND_KEY, "the new key is published")
        operator.rest()
        assert scene.management.made == 0
        assert ROTATE not in scene.get(scene.name)["metadata"]["annotations"]


def test_a_key_is_rotated_by_its_age(scene):
    with scene.operator():
        scene.made()
    (account,) = scene.management.accounts.values()
    for key in account["keys"]:
        key["creationTime"] = "2025-01-01T00:00:00+00:00"
    scene.change(scene.name, **scene.configured(rotationConfig={"rotationPeriodDays": 30}))
    with scene.operator():
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: scene.keys_told()["storageKey"] == SECOND_KEY, "the new key is published")


def test_immutability_is_set_locked_and_then_only_extended(scene):
    def asked(hours, locked):
        said = {"retentionType": "bucket", "retentionPeriod": f"{hours}h", "locked": locked}
        return scene.configured(immutability=said)

    with scene.operator():
        scene.made(**asked(48, locked=False))
        assert scene.conditions()["RetentionLocked"] == ("False", "UnlockedFor2Days")
        scene.change(scene.name, **asked(24, locked=True))
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: scene.conditions()["RetentionLocked"] == ("True", "LockedFor1Days"), "locked")
        scene.stands(scene.name, "Reconcile", "Succeeded")
        scene.change(scene.name, **asked(72, locked=True))
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: scene.conditions()["RetentionLocked"] == ("True", "LockedFor3Days"), "extended")
        scene.stands(scene.name, "Reconcile", "Succeeded")
        scene.change(scene.name, **asked(24, locked=True))
        scene.ask(scene.name, "reconcile")
        found = scene.stands(scene.name, "Reconcile", "Error")
        assert "is locked" in found["status"]["lastError"]["description"]
        assert scene.conditions()["RetentionLocked"] == ("True", "LockedFor3Days")


def test_what_a_killed_creation_left_is_deleted_with_the_object(scene):
    """A group and an account without a container, and nothing in the status that would say so."""
    with scene.operator():
        scene.management.break_next = [("POST", "/listKeys")] * 500
        scene.create(scene.name, scene.spec())
        scene.stands(scene.name, "Create", "Error")
    assert scene.is_left()
    assert "generatedSecretRef" not in scene.get(scene.name)["status"]
    scene.management.break_next = []
    scene.delete(scene.name)
    with scene.operator():
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert not scene.is_left()


def test_a_wrong_client_secret_is_unauthenticated(scene):
    scene.secret("backup", {**PRINCIPAL, "clientSecret": "wrong"})
    with scene.operator():
        scene.create(scene.name, scene.spec())
        found = scene.stands(scene.name, "Create", "Error")
        assert found["status"]["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]


def test_a_generated_secret_that_is_gone_stops_no_deletion(scene):
    with scene.operator():
        scene.made()
        scene.client.delete(SECRETS, scene.generated, scene.namespace)
        scene.deleted()
    assert not scene.is_left()


def test_what_a_forced_deletion_left_is_collected_with_a_key_of_the_account(scene):
    dead, neighbour = f"shoot--{scene.namespace}--dead--1", f"shoot--{scene.namespace}--dead--1--b/x"
    now = datetime.now(UTC).replace(microsecond=0)
    past = now - timedelta(hours=1)
    with scene.operator():
        scene.made()
        ours = azure_store(scene.container, ledger.HOME)
        for key in (f"{dead}/a", f"{dead}/b", neighbour):
            scene.put(key)
        ledger.keep(ours, ledger.Left(prefix=dead, locked=2, since=now, earliest=past, latest=past))
        scene.annotate(scene.name, **{COLLECT: "true"})
        wait_until(lambda: scene.lies() == [neighbour], "exactly what was left is deleted")
        wait_until(lambda: not list(ledger.records(ours)), "and its record")
