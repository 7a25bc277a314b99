"""The pure parts of the contract BackupEntry: what a name says, and what is in `etcd-backup`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import ConfigError
from rootcellar.kube.kinds import Key, Meta
from rootcellar.operator.backupentry.etcd_backup import etcd_backup, is_theirs
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.backupentry.run import EntrySettings, place_of
from rootcellar.operator.backupentry.types import BackupEntry, BackupEntrySpec
from rootcellar.operator.shared.extension import SecretReference
from rootcellar.operator.shared.gardener import CREATED_BY
from rootcellar.operator.shared.secrets import (
    IDENTITY_CONTEXT,
    IDENTITY_NAME,
    IDENTITY_NAMESPACE,
    IDENTITY_PROVIDER,
    PURPOSE,
    TOKEN_RENEWED,
    TOKEN_REQUESTOR,
    Secret,
)
from rootcellar.operator.shared.subject import SeenSecret


@pytest.mark.parametrize(
    ("name", "technical_id", "uid", "prefix"),
    [
        ("shoot--dev--example--f6c6", "shoot--dev--example", "f6c6", "shoot--dev--example--f6c6"),
        ("shoot-dev-example--f6c6", "shoot-dev-example", "f6c6", "shoot-dev-example--f6c6"),
        ("source-shoot--dev--example--f6c6", "shoot--dev--example", "f6c6", "shoot--dev--example--f6c6"),
        ("shoot--foobar--azure--sd34f", "shoot--foobar--azure", "sd34f", "shoot--foobar--azure--sd34f"),
        ("garden--1b2c", "garden", "1b2c", "garden--1b2c"),
        ("plain", "plain", "plain", "plain"),
        ("source-plain", "plain", "plain", "plain"),
        ("sourceful--1b2c", "sourceful", "1b2c", "sourceful--1b2c"),
    ],
)
def test_a_name_says_whose_backups_lie_where(name, technical_id, uid, prefix):
    found = parse(name)
    assert (found.technical_id, found.uid, found.prefix) == (technical_id, uid, prefix)
    assert found.is_source == name.startswith("source-")
    assert found.secret == ("source-etcd-backup" if found.is_source else "etcd-backup")


def test_the_seeds_sample_is_called_like_its_namespace():
    assert parse("shoot--foo--bar").namespaces == ("shoot--foo", "shoot--foo--bar")
    assert parse("plain").namespaces == ("plain",)


@given(st.text("abs-", min_size=1, max_size=12), st.text("abs-", min_size=1, max_size=12))
def test_two_entries_never_share_a_place(one, other):
    """With the slash behind each prefix, that is; the `source-` of a name is no other place."""
    one, other = parse(one).prefix + "/", parse(other).prefix + "/"
    assert one == other or not (one.startswith(other) or other.startswith(one))


def entry(type_="S3", name="shoot--dev--example--f6c6", provider_config=None):
    spec = BackupEntrySpec(
        type=type_,
        region="eu-1",
        bucket_name="bucket",
        secret_ref=SecretReference(name="entry-x", namespace="garden"),
        provider_config=provider_config,
    )
    return BackupEntry(metadata=Meta(name=name), spec=spec)


ENDPOINT = "https://storage.me-central2.rep.googleapis.com"


def google(store):
    """A configuration of the bucket; what else is in it, and cannot be meant, is not the entry's matter."""
    return {"kind": "BackupBucketConfig", "immutability": {"retentionPeriod": "soon"}, "store": store}


def place(tmp_path, type_, config, *endpoints):
    seen = SeenSecret(Key("garden", "entry-x"), b"", Secret(data={"serviceaccount.json": b"{}"}))
    told = EntrySettings({type_}, (), tmp_path, tmp_path, "/buckets", endpoints=endpoints)
    return place_of(entry(type_, provider_config=config), seen, told).url


def test_an_entry_is_looked_for_where_its_bucket_was_made(tmp_path):
    assert place(tmp_path, "gcp", google({"endpointOverride": ENDPOINT}), f"{ENDPOINT}/") == (
        f"gs://bucket?endpoint={ENDPOINT}"
    )
    assert place(tmp_path, "gcp", google({})) == place(tmp_path, "gcp", None) == "gs://bucket"
    assert place(tmp_path, "S3", google({"endpointOverride": ENDPOINT})) == "s3://bucket?region=eu-1"


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ({"endpointOverride": ENDPOINT}, "is not allowed here"),
        ({"endpointOverride": "http://inside"}, "is no https address"),
        ({"endpointOverride": 7}, "expected `str"),
    ],
)
def test_nothing_is_looked_for_at_an_endpoint_that_cannot_be_meant(tmp_path, store, told):
    """At Google's own there would be no such bucket, and a deletion would take its objects for gone."""
    with pytest.raises(ConfigError, match=told):
        place(tmp_path, "gcp", google(store))


KEYS = {"accessKeyID": b"id", "secretAccessKey": b"secret", "region": b"theirs"}


@pytest.mark.parametrize(
    ("type_", "added"),
    [
        ("S3", {}),
        ("aws", {"region": b"eu-1"}),
        ("openstack", {"region": b"eu-1"}),
        ("alicloud", {"storageEndpoint": b"https://oss-eu-1.aliyuncs.com/"}),
        ("azure", {}),
        ("gcp", {}),
        ("local", {"hostPath": b"/etc/gardener/local-backupbuckets"}),
    ],
)
def test_the_secret_is_a_copy_with_the_bucket_and_what_the_provider_adds(type_, added):
    there = Secret(
        metadata=Meta(annotations={"theirs": "x"}, labels={"theirs": "x"}),
        data={"foreign": b"x", "token": b"x"},
    )
    credentials = Secret(metadata=Meta(annotations={"a": "b"}, labels={"c": "d"}), data=KEYS)
    found = etcd_backup(entry(type_), credentials, there)
    assert found.data == {**KEYS, "bucketName": b"bucket", **added}
    assert found.labels == {}
    assert found.annotations == {CREATED_BY: "shoot--dev--example--f6c6"}


AWS = b"kind: WorkloadIdentityConfig\nroleARN: arn:aws:iam::1:role/backup\n"
GCP = b"""
projectID: project
credentialsConfig: {type: external_account, audience: //iam}
"""


def identity(provider="aws", config=AWS, without=()):
    annotations = {IDENTITY_NAME: "wi", IDENTITY_NAMESPACE: "garden-dev", IDENTITY_CONTEXT: "{}"}
    labels = {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: provider}
    return Secret(
        metadata=Meta(
            annotations={
                **{name: value for name, value in annotations.items() if name not in without},
                TOKEN_RENEWED: "of the source",
                "theirs": "x",
            },
            labels={name: value for name, value in {**labels, "l": "x"}.items() if name not in without},
        ),
        data={"config": config, "token": b"of the source", "foreign": b"x"},
    )


def test_a_workload_identity_s_token_is_neither_copied_nor_lost():
    fresh = etcd_backup(entry("aws"), identity(), None)
    assert fresh.data == {
        "config": AWS,
        "bucketName": b"bucket",
        "region": b"eu-1",
        "roleARN": b"arn:aws:iam::1:role/backup",
    }
    assert fresh.labels == {PURPOSE: TOKEN_REQUESTOR, IDENTITY_PROVIDER: "aws"}
    assert fresh.annotations == {
        CREATED_BY: "shoot--dev--example--f6c6",
        IDENTITY_NAME: "wi",
        IDENTITY_NAMESPACE: "garden-dev",
        IDENTITY_CONTEXT: "{}",
    }

    there = Secret(
        metadata=Meta(annotations={TOKEN_RENEWED: "at noon", "x": "y"}),
        data={"token": b"the live one", "x": b"y"},
    )
    kept = etcd_backup(entry("aws"), identity(without=[IDENTITY_CONTEXT]), there)
    assert kept.data == {**fresh.data, "token": b"the live one"}
    assert kept.annotations[TOKEN_RENEWED] == "at noon"
    assert not {IDENTITY_CONTEXT, "x"} & kept.annotations.keys()


@pytest.mark.parametrize(
    ("name", "home"), [("shoot--a--b--1", "/var/.gcp"), ("source-shoot--a--b--1", "/var/.source-gcp")]
)
def test_google_s_identity_becomes_a_file_that_names_where_the_token_is_mounted(name, home):
    found = etcd_backup(entry("gcp", name), identity("gcp", GCP), None)
    assert found.data["projectID"] == b"project"
    assert found.data["serviceaccount.json"] == found.data["credentialsConfig"]
    assert json.loads(found.data["serviceaccount.json"]) == {
        "type": "external_account",
        "audience": "//iam",
        "credential_source": {"file": f"{home}/token", "format": {"type": "text"}},
    }


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        (IDENTITY_NAME, "name is missing"),
        (IDENTITY_NAMESPACE, "namespace is missing"),
        (IDENTITY_PROVIDER, "provider type missing"),
    ],
)
def test_a_workload_identity_that_lacks_something_is_told_in_gardener_s_words(without, missing):
    with pytest.raises(ConfigError) as caught:
        etcd_backup(entry("aws"), identity(without=[without]), None)
    text = f"BackupEntry is set to use workload identity but WorkloadIdentity's {missing}"
    assert (str(caught.value), "garden/entry-x" in caught.value.hint) == (text, True)


@pytest.mark.parametrize("config", [b"invalid value", b"- a list", b"{", b"projectID: x"])
def test_a_configuration_that_cannot_be_read_is_an_error_and_no_empty_file(config):
    with pytest.raises(ConfigError, match="workload identity's config"):
        etcd_backup(entry("gcp"), identity("gcp", config), None)


def test_a_workload_identity_without_a_configuration_is_an_error():
    credentials = identity()
    del credentials.data["config"]
    with pytest.raises(ConfigError, match="has no config"):
        etcd_backup(entry("aws"), credentials, None)


@pytest.mark.parametrize(
    ("annotations", "theirs"),
    [({}, False), ({CREATED_BY: "mine"}, False), ({CREATED_BY: "another--2"}, True)],
)
def test_a_secret_says_which_entry_made_it(annotations, theirs):
    assert is_theirs(Secret(metadata=Meta(annotations=annotations)), "mine") is theirs
