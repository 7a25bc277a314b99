"""What a change of a BackupBucket asks for, and what conditions say: by values alone."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    FencedError,
    LockedError,
    NotFoundError,
    TransientError,
    UnsupportedError,
)
from rootcellar.kube.cache import Change
from rootcellar.kube.kinds import Key, Meta
from rootcellar.operator.backupbucket import findings
from rootcellar.operator.backupbucket import run as run_module
from rootcellar.operator.backupbucket.controller import asks
from rootcellar.operator.backupbucket.deletion import Deletion
from rootcellar.operator.backupbucket.run import DRY_RUN, EMPTY, KEEP, ROTATE, BucketSettings, Run
from rootcellar.operator.backupbucket.types import BackupBucket
from rootcellar.operator.shared.place import Asked, principal
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import PURPOSE, TOKEN_REQUESTOR, Secret
from rootcellar.operator.shared.subject import SeenSecret
from rootcellar.stores.admin.azure.account import AccountAdmin
from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.values import (
    UNKNOWN,
    Aspect,
    BucketState,
    BucketWish,
    Claim,
    Hardening,
    Immutability,
)
from rootcellar.stores.admin.values import Change as Setting

DAY = timedelta(days=1)


def raw(type_="S3", *, deleted=False, note=0, **annotations):
    meta = {"name": "b", "annotations": annotations, "generation": 1, "labels": {"note": str(note)}}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    done = {
        "description": "",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
        "progress": 100,
        "state": "Succeeded",
        "type": "Reconcile",
    }
    spec = {"type": type_, "region": "r", "secretRef": {}}
    return json.dumps({"metadata": meta, "spec": spec, "status": {"lastOperation": done}}).encode()


@pytest.mark.parametrize(
    ("old", "new", "by_order", "by_generation"),
    [
        (None, raw(), True, True),
        (None, raw("gcp"), False, False),
        (raw(), raw(note=1), False, False),
        (raw(), raw(**{DRY_RUN: "true"}), True, True),
        (raw(**{DRY_RUN: "true"}), raw(note=1, **{DRY_RUN: "true"}), False, False),
        (raw(**{DRY_RUN: "true"}), raw(), False, True),
        (raw(), raw(**{EMPTY: "true"}), False, False),
        (raw(deleted=True), raw(deleted=True, **{EMPTY: "true"}), True, True),
        (raw(deleted=True), raw(deleted=True, **{KEEP: "true"}), True, True),
        (raw(), raw(**{ROTATE: "true"}), False, False),
        (raw("azure"), raw("azure", **{ROTATE: "true"}), True, True),
        (raw("azure"), raw("azure", **{ROTATE: "false"}), False, False),
        (raw("azure", **{ROTATE: "true"}), raw("azure"), False, False),
        (raw(), None, False, False),
    ],
)
def test_our_own_annotations_ask_for_something_too(tmp_path, old, new, by_order, by_generation):
    settings = BucketSettings({"S3", "azure"}, (), "a cluster", tmp_path, tmp_path)
    change = Change(Key("", "b"), old, new)
    assert asks(settings, ignore_annotation=False)(change) is by_order
    assert asks(settings, ignore_annotation=True)(change) is by_generation


@pytest.mark.parametrize(
    ("error", "reason", "codes"),
    [
        (DeniedError("x"), "Denied", ("ERR_INFRA_UNAUTHORIZED",)),
        (TransientError("x"), "Away", ("ERR_RETRYABLE_INFRA_DEPENDENCIES",)),
        (NotFoundError("x"), "Missing", ()),
        (AlreadyExistsError("x"), "SomebodyElses", ("ERR_CONFIGURATION_PROBLEM",)),
    ],
)
def test_an_error_of_the_store_says_why_the_bucket_is_not_reached(error, reason, codes):
    (found,) = findings.unreached(error)
    assert (found.type, found.status, found.reason, found.codes) == (
        "BucketReachable",
        "False",
        reason,
        codes,
    )


def test_an_error_of_a_configuration_says_nothing_of_that():
    assert findings.unreached(ConfigError("x")) == []


DONE = Hardening((Setting(Aspect.IMMUTABILITY, "a", "b"),))


@pytest.mark.parametrize(
    ("found", "wished", "hardening", "status", "reason"),
    [
        (None, None, Hardening(()), "False", "NoRetention"),
        (UNKNOWN, None, Hardening(()), "Unknown", "NotTold"),
        (Immutability(DAY, locked=True), None, Hardening(()), "True", "LockedFor1Days"),
        (Immutability(2 * DAY), Immutability(DAY), Hardening(()), "False", "UnlockedFor2Days"),
        (None, Immutability(3 * DAY, locked=True), DONE, "True", "LockedFor3Days"),
        (Immutability(3 * DAY), None, DONE, "False", "NoRetention"),
    ],
)
def test_the_retention_that_is_told_is_the_one_that_is_there(found, wished, hardening, status, reason):
    told = findings.retention(
        BucketState("b", immutability=found), BucketWish(immutability=wished), hardening
    )
    assert (told.status, told.reason) == (status, reason)


@pytest.mark.parametrize(
    ("found", "refused", "stops"),
    [
        (Immutability(DAY), LockedError("stronger"), False),
        (Immutability(DAY, locked=True), LockedError("locked"), True),
        (UNKNOWN, UnsupportedError("no lock"), True),
        (Immutability(DAY), ConfigError("elsewhere"), True),
    ],
)
def test_a_bucket_that_keeps_longer_than_asked_is_the_only_refusal_that_stops_nothing(found, refused, stops):
    hardening = Hardening((), (refused,))
    assert (findings.stopping(hardening, BucketState("b", immutability=found)) is refused) is stops


def test_a_principal_of_azure_may_be_a_workload_identity(tmp_path):
    config = b"clientID: client\ntenantID: tenant\nsubscriptionID: subscription\n"
    meta = Meta(name="keys", namespace="garden", labels={PURPOSE: TOKEN_REQUESTOR}, resource_version="7")
    secret = Secret(metadata=meta, data={"config": config, "token": b"t"})
    found = principal(Asked("b", "r", secret, tmp_path, tmp_path))
    assert found.load() == {
        "clientID": "client",
        "tenantID": "tenant",
        "subscriptionID": "subscription",
        "tokenPath": str(tmp_path / "garden.keys"),
    }


@pytest.mark.parametrize(
    ("data", "opened"),
    [({"storageAccount": b"a1b", "storageKey": b"a2V5"}, ContainerAdmin), ({"clientID": b"c"}, AccountAdmin)],
)
def test_a_secret_with_an_account_in_it_is_for_a_container_there(tmp_path, data, opened):
    class Subject:
        key, object = Key("", "seed"), msgspec.json.decode(raw("azure"), type=BackupBucket)

    class NothingPublished(Run):
        def read_generated(self):
            return None

    run = NothingPublished(Subject(), BucketSettings({"azure"}, (), "a cluster", tmp_path, tmp_path))
    run.seen = SeenSecret(Key("garden", "keys"), b"", Secret(data=data))
    run.open()
    assert isinstance(run.admin, opened)


def test_a_process_that_does_not_lead_any_more_deletes_no_bucket(tmp_path):
    class Subject:
        key, object = Key("", "seed"), msgspec.json.decode(raw("local"), type=BackupBucket)

        def find(self, found):
            assert found == [findings.NOBODY_ELSE]

    run = Run(Subject(), BucketSettings({"local"}, (), "a cluster", tmp_path, tmp_path))
    run.seen = SeenSecret(Key("garden", "keys"), b"", Secret())
    run.open()
    run.admin.create(run.wish(is_ours=True))
    run.admin.claim(Claim(run.owner, created=True, since=datetime(2026, 1, 1, tzinfo=UTC)))
    leads = False
    deletion = Deletion(lambda _bucket: [], lambda _secret: [], Removals(lambda: leads))
    (step,) = (each for each in deletion.steps() if each.name == "bucket")
    with pytest.raises(FencedError, match="does not lead any more"):
        step.act(run)
    assert len(run.admin.claims()) == 1
    leads = True
    step.act(run)
    assert run.admin.look() is None


def test_google_s_endpoint_is_the_configuration_s_where_that_is_allowed(tmp_path, monkeypatch):
    endpoint = "https://storage.me-central2.rep.googleapis.com"
    config = {
        "apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "BackupBucketConfig",
        "store": {"endpointOverride": endpoint},
    }
    found = msgspec.json.decode(raw("gcp"), type=BackupBucket)
    asked = msgspec.structs.replace(found.spec, provider_config=config)

    class Subject:
        key, object = Key("", "seed"), msgspec.structs.replace(found, spec=asked)

    def run(*endpoints):
        made = Run(
            Subject(), BucketSettings({"gcp"}, (), "a cluster", tmp_path, tmp_path, endpoints=endpoints)
        )
        made.seen = SeenSecret(Key("garden", "keys"), b"", Secret(data={"serviceaccount.json": b"{}"}))
        return made

    with pytest.raises(ConfigError, match="is not allowed here"):
        run().configure()
    allowed = run(endpoint)
    allowed.configure()
    opened = []
    monkeypatch.setattr(run_module, "open_admin", lambda url, **_: opened.append(url))
    allowed.open()
    assert opened == [f"gs://seed?endpoint={endpoint}"]
