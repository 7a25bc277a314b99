"""The CRDs made from our types are Gardener's, but for the words of their descriptions.

Facts, in our own notation: gardener/gardener, pkg/component/extensions/crds/assets, read at f6f1236b; v1.150
(b312835d) has the same fields.  A line is a path, what is there, and what else is said of it; `[]` are the
items of a list, `!` is required.
"""

import msgspec
import pytest

from rootcellar.errors import KubeError
from rootcellar.kube.crd import manifest
from rootcellar.kube.kinds import untyped
from rootcellar.operator.backupbucket import types as buckets
from rootcellar.operator.backupentry import types as entries
from rootcellar.operator.contracts import CONTRACTS
from testbed.crds import conditions, install

OBJECT = """
.apiVersion                               string
.kind                                     string
.metadata                                 object
.spec                                     object !
.spec.class                               string rule=self == oldSelf:Value is immutable
.spec.providerConfig                      object preserve-unknown-fields
.spec.region                              string !
.spec.secretRef                           object ! map-type=atomic
.spec.secretRef.name                      string
.spec.secretRef.namespace                 string
.spec.type                                string !
.status                                   object
.status.conditions                        array
.status.conditions[]                      object
.status.conditions[].codes                array
.status.conditions[].codes[]              string
.status.conditions[].lastTransitionTime   string ! format=date-time
.status.conditions[].lastUpdateTime       string ! format=date-time
.status.conditions[].message              string !
.status.conditions[].reason               string !
.status.conditions[].status               string !
.status.conditions[].type                 string !
.status.lastError                         object
.status.lastError.codes                   array
.status.lastError.codes[]                 string
.status.lastError.description             string !
.status.lastError.lastUpdateTime          string format=date-time
.status.lastError.taskID                  string
.status.lastOperation                     object
.status.lastOperation.description         string !
.status.lastOperation.lastUpdateTime      string ! format=date-time
.status.lastOperation.progress            integer ! format=int32
.status.lastOperation.state               string !
.status.lastOperation.type                string !
.status.observedGeneration                integer format=int64
.status.providerStatus                    object preserve-unknown-fields
.status.resources                         array
.status.resources[]                       object
.status.resources[].name                  string !
.status.resources[].resourceRef           object ! map-type=atomic
.status.resources[].resourceRef.apiVersion string
.status.resources[].resourceRef.kind      string !
.status.resources[].resourceRef.name      string !
.status.state                             object preserve-unknown-fields
"""
BUCKET = """
.status.generatedSecretRef                object map-type=atomic
.status.generatedSecretRef.name           string
.status.generatedSecretRef.namespace      string
"""
ENTRY = """
.spec.backupBucketProviderStatus          object preserve-unknown-fields
.spec.bucketName                          string !
"""
TYPE = ("Type", ".spec.type", "string")
REGION = ("Region", ".spec.region", "string")
STATE = ("State", ".status.lastOperation.state", "string")
AGE = ("Age", ".metadata.creationTimestamp", "date")

PUBLISHED = [
    pytest.param(
        buckets.DEFINITION,
        OBJECT + BUCKET,
        ("BackupBucket", "backupbuckets", "bb"),
        [TYPE, REGION, STATE, AGE],
        id="BackupBucket",
    ),
    pytest.param(
        entries.DEFINITION,
        OBJECT + ENTRY,
        ("BackupEntry", "backupentries", "be"),
        [TYPE, REGION, ("Bucket", ".spec.bucketName", "string"), STATE, AGE],
        id="BackupEntry",
    ),
]


def lines(schema, path="", *, required=False):
    """What a schema says, but its descriptions, in the notation of the facts."""
    left = dict(schema)
    left.pop("description", None)
    said = [left.pop("type"), *(["!"] if required else [])]
    said += [f"format={left.pop('format')}"] if "format" in left else []
    said += [f"map-type={left.pop('x-kubernetes-map-type')}"] if "x-kubernetes-map-type" in left else []
    said += ["preserve-unknown-fields"] if left.pop("x-kubernetes-preserve-unknown-fields", False) else []
    said += [f"rule={each['rule']}:{each['message']}" for each in left.pop("x-kubernetes-validations", ())]
    names = left.pop("required", ())
    found = {path: " ".join(said)} if path else {}
    for name, below in left.pop("properties", {}).items():
        found |= lines(below, f"{path}.{name}", required=name in names)
    if "items" in left:
        found |= lines(left.pop("items"), f"{path}[]")
    assert not left, f"{path} says what the facts have no word for"
    return found


def facts(table):
    found = [line.split(maxsplit=1) for line in table.splitlines() if line]
    return {path: " ".join(rest.split()) for path, rest in found}


@pytest.mark.parametrize(("definition", "table", "names", "columns"), PUBLISHED)
def test_a_crd_has_the_fields_that_gardener_publishes_and_no_others(definition, table, names, columns):
    made = manifest(definition)
    (version,) = made["spec"]["versions"]
    assert lines(version["schema"]["openAPIV3Schema"]) == facts(table)


@pytest.mark.parametrize(("definition", "table", "names", "columns"), PUBLISHED)
def test_a_crd_has_the_names_columns_and_label_that_gardener_publishes(definition, table, names, columns):
    kind, plural, short = names
    made = manifest(definition)
    assert made["metadata"] == {
        "name": f"{plural}.extensions.gardener.cloud",
        "labels": {"gardener.cloud/deletion-protected": "true"},
    }
    (version,) = made["spec"].pop("versions")
    assert made["spec"] == {
        "group": "extensions.gardener.cloud",
        "scope": "Cluster",
        "names": {
            "kind": kind,
            "listKind": f"{kind}List",
            "plural": plural,
            "singular": kind.lower(),
            "shortNames": [short],
        },
    }
    shown = [(each["name"], each["jsonPath"], each["type"]) for each in version["additionalPrinterColumns"]]
    assert shown == columns
    assert all(
        set(each) <= {"name", "jsonPath", "type", "description"}
        for each in version["additionalPrinterColumns"]
    )
    assert set(version) == {"name", "served", "storage", "schema", "subresources", "additionalPrinterColumns"}
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize(("definition", "table", "names", "columns"), PUBLISHED)
def test_every_field_is_described(definition, table, names, columns):
    def undescribed(schema, path):
        for name, below in schema.get("properties", {}).items():
            if name != "metadata" and not below.get("description"):
                yield f"{path}.{name}"
            yield from undescribed(below, f"{path}.{name}")
            yield from undescribed(below.get("items", {}), f"{path}.{name}[]")

    (version,) = manifest(definition)["spec"]["versions"]
    assert list(undescribed(version["schema"]["openAPIV3Schema"], "")) == []


STATUS = {
    "lastOperation": {
        "description": "Error reconciling backupbucket",
        "lastUpdateTime": "2026-01-02T03:04:05Z",
        "progress": 50,
        "state": "Error",
        "type": "Reconcile",
    },
    "lastError": {
        "description": "no",
        "taskID": "t",
        "codes": ["ERR_INFRA_UNAUTHORIZED"],
        "lastUpdateTime": "2026-01-02T03:04:05Z",
    },
    "observedGeneration": 3,
    "providerStatus": {"apiVersion": "x/v1", "kind": "Y", "deep": {"er": [1]}},
    "state": {"s": 1},
    "conditions": [
        {
            "type": "BucketReachable",
            "status": "False",
            "reason": "Denied",
            "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "lastUpdateTime": "2026-01-02T03:04:05Z",
            "codes": ["ERR_INFRA_UNAUTHORIZED"],
        }
    ],
    "resources": [{"name": "n", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}],
}
SPEC = {
    "type": "aws",
    "class": "seed",
    "region": "eu-west-1",
    "secretRef": {"name": "bucket-x", "namespace": "garden"},
    "providerConfig": {"apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1", "immutability": {}},
}


@pytest.mark.parametrize(
    ("made", "body"),
    [
        (
            buckets.BackupBucket,
            {"spec": SPEC, "status": STATUS | {"generatedSecretRef": {"name": "g", "namespace": "garden"}}},
        ),
        (
            entries.BackupEntry,
            {
                "spec": SPEC | {"bucketName": "b", "backupBucketProviderStatus": {"a": {"b": 1}}},
                "status": STATUS,
            },
        ),
    ],
)
def test_an_object_with_every_field_is_read_and_written_without_a_change(made, body):
    read = msgspec.json.decode(msgspec.json.encode(body), type=made, strict=True)
    assert msgspec.json.decode(msgspec.json.encode(read)) == body


@pytest.fixture(scope="module")
def contracts(control_plane):
    """An API server that has all CRDs."""
    for contract in CONTRACTS:
        install(control_plane.client, contract.definition)
    return control_plane


@pytest.fixture
def bucket(contracts):
    """A BackupBucket, as a dict, that is gone after the test."""
    raw = untyped("extensions.gardener.cloud", "v1alpha1", "backupbuckets", is_namespaced=False)
    body = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "BackupBucket",
        "metadata": {"generateName": "types-"},
        "spec": SPEC,
    }
    made = contracts.client.create(raw, body)
    yield made
    contracts.client.delete(raw, made["metadata"]["name"])


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda each: each.name)
def test_the_api_server_takes_the_crd_of_each_contract(contracts, contract):
    said = conditions(contracts.client, contract.definition)
    assert {name: each["status"] for name, each in said.items()} == {
        "NamesAccepted": "True",
        "Established": "True",
    }


def test_the_api_server_adds_nothing_to_a_bucket_and_keeps_its_configuration(contracts, bucket):
    assert bucket["spec"] == SPEC
    assert "status" not in bucket
    read = contracts.client.get(buckets.BACKUP_BUCKETS, bucket["metadata"]["name"])
    assert read.spec.provider_config == SPEC["providerConfig"]
    assert read.status == buckets.BackupBucketStatus()


def test_the_class_of_a_bucket_cannot_change(contracts, bucket):
    with pytest.raises(KubeError) as refused:
        contracts.client.merge_patch(
            buckets.BACKUP_BUCKETS, bucket["metadata"]["name"], {"spec": {"class": "shoot"}}
        )
    assert "Value is immutable" in refused.value.message


def test_the_status_of_a_bucket_comes_back_as_it_was_written(contracts, bucket):
    name = bucket["metadata"]["name"]
    wanted = STATUS | {"generatedSecretRef": {"name": "g", "namespace": "garden"}}
    patch = {"status": wanted}
    read = contracts.client.merge_patch(buckets.BACKUP_BUCKETS, name, patch, subresource="status")
    assert msgspec.json.decode(msgspec.json.encode(read.status)) == wanted


def test_an_entry_without_a_bucket_is_refused(contracts):
    body = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "BackupEntry",
        "metadata": {"generateName": "types-"},
        "spec": SPEC,
    }
    with pytest.raises(KubeError) as refused:
        contracts.client.create(entries.BACKUP_ENTRIES, body)
    assert "spec.bucketName: Required value" in refused.value.message
