"""Where a bucket of each provider type is, and with which keys."""

import json
import stat

import pytest

from rootcellar.errors import ConfigError, UsageError
from rootcellar.kube.kinds import Meta
from rootcellar.operator.shared import place
from rootcellar.operator.shared.place import Asked, Place, located
from rootcellar.operator.shared.secrets import PURPOSE, TOKEN_REQUESTOR, Secret


@pytest.fixture
def asked(tmp_path):
    def make(data, *, bucket="bucket", region="eu-1", version="7", identity=False):
        labels = {PURPOSE: TOKEN_REQUESTOR} if identity else {}
        meta = Meta(name="keys", namespace="garden", resource_version=version, labels=labels)
        return Asked(bucket, region, Secret(metadata=meta, data=data), tmp_path / "buckets", tmp_path)

    return make


KEYS = {"accessKeyID": b"id", "secretAccessKey": b" secret\n"}
READ = {"accessKeyID": "id", "secretAccessKey": "secret"}


@pytest.mark.parametrize(
    ("type_", "data", "url", "keys"),
    [
        ("aws", KEYS, "s3://bucket?region=eu-1", READ),
        (
            "S3",
            {**KEYS, "endpoint": b"https://s3.example.org", "s3ForcePathStyle": b"true", "other": b"x"},
            "s3://bucket?region=eu-1",
            {**READ, "endpoint": "https://s3.example.org", "s3ForcePathStyle": "true"},
        ),
        (
            "azure",
            {"storageAccount": b"a", "storageKey": b"k", "domain": b"blob.core.windows.net"},
            "azure:///bucket",
            {"storageAccount": "a", "storageKey": "k", "domain": "blob.core.windows.net"},
        ),
        ("gcp", {"serviceaccount.json": b"{}"}, "gs://bucket", {"googleCredentials": "{}"}),
        (
            "openstack",
            {"authURL": b"https://k/v3", "username": b"u"},
            "swift://bucket?region=eu-1",
            {"authURL": "https://k/v3", "username": "u"},
        ),
        (
            "alicloud",
            {"accessKeyID": b"id", "accessKeySecret": b"s"},
            "oss://bucket",
            {
                "accessKeyID": "id",
                "accessKeySecret": "s",
                "storageEndpoint": "https://oss-eu-1.aliyuncs.com",
            },
        ),
        (
            "alicloud",
            {"storageEndpoint": b"https://oss.example.org"},
            "oss://bucket",
            {"storageEndpoint": "https://oss.example.org"},
        ),
    ],
)
def test_each_type_has_its_url_and_its_keys(asked, type_, data, url, keys):
    found = located(type_, asked(data))
    assert (found.url, dict(found.credentials.load())) == (url, keys)
    assert found.credentials.stamp() == "7"


def test_the_region_of_an_s3_secret_counts_where_the_object_has_none(asked):
    assert located("S3", asked({**KEYS, "region": b"there"}, region="")).url == "s3://bucket?region=there"
    assert located("S3", asked(KEYS, region="")).url == "s3://bucket"


def test_a_prefix_goes_into_the_path(asked):
    assert located("aws", asked(KEYS)).below("shoot--a--1") == "s3://bucket/shoot--a--1?region=eu-1"
    assert located("gcp", asked({})).below("a") == "gs://bucket/a"


def test_a_local_bucket_is_a_directory_below_the_operator_s(asked, tmp_path):
    assert located("local", asked({})).url == f"file://{tmp_path}/buckets/bucket"
    for bucket in ("", ".", "..", "../x", "a/b"):
        with pytest.raises(UsageError, match="no name of a directory"):
            located("local", asked({}, bucket=bucket))


def test_a_workload_identity_s_token_is_a_file_that_nobody_else_reads(asked, tmp_path):
    data = {"config": b"roleARN: arn:role", "token": b"one"}
    found = located("aws", asked(data, identity=True))
    token = tmp_path / "garden.keys"
    assert dict(found.credentials.load()) == {"roleARN": "arn:role", "tokenPath": str(token)}
    assert (token.read_bytes(), stat.S_IMODE(token.stat().st_mode)) == (b"one", 0o600)
    before = token.stat().st_mtime_ns
    located("aws", asked(data, identity=True))
    assert token.stat().st_mtime_ns == before
    located("aws", asked({**data, "token": b"two"}, identity=True))
    assert token.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [token]


def test_google_s_identity_names_that_file(asked, tmp_path):
    data = {"config": b"credentialsConfig: {type: external_account}", "token": b"t"}
    found = located("gcp", asked(data, identity=True))
    assert json.loads(found.credentials.load()["googleCredentials"]) == {
        "type": "external_account",
        "credential_source": {"file": str(tmp_path / "garden.keys"), "format": {"type": "text"}},
    }
    with pytest.raises(ConfigError, match="no credentialsConfig"):
        located("gcp", asked({**data, "config": b"a: b"}, identity=True))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"config": b"roleARN: x"}, "has no token yet"),
        ({"token": b"t"}, "has no config"),
        ({"token": b"t", "config": b"["}, "is no YAML"),
    ],
)
def test_an_identity_that_is_not_ready_is_told(asked, data, why):
    with pytest.raises(ConfigError, match=why):
        located("aws", asked(data, identity=True))


def test_what_is_no_text_is_told(asked):
    with pytest.raises(ConfigError, match="garden/keys holds what is no text"):
        located("S3", asked({"accessKeyID": b"\xff"}))


def test_a_package_can_add_a_type(asked, monkeypatch):
    class Found:
        def load(self):
            return lambda asked: Place(f"s3://{asked.bucket}-of-theirs", None)

    offered = {("rootcellar.types", "ceph"): [Found()]}
    monkeypatch.setattr(place, "entry_points", lambda group, name: offered.get((group, name), []))
    assert located("ceph", asked({})).url == "s3://bucket-of-theirs"
    with pytest.raises(UsageError, match="no provider type 'minio'") as caught:
        located("minio", asked({}))
    assert "rootcellar.types" in caught.value.hint
