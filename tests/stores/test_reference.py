"""What etcd-backup-restore's flags, variables and files mean here; where a server is at hand, it is asked."""

import json
import os
from dataclasses import replace

import pytest

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores import AMBIENT, Create, open_store
from rootcellar.stores.reference import located

PREFIXES = ["", "SOURCE_", "SECONDARY_"]


@pytest.fixture
def files(tmp_path):
    """Writes a directory of credentials and gives its path."""

    def write(**values):
        for name, value in values.items():
            (tmp_path / name).write_text(value)
        return str(tmp_path)

    return write


@pytest.fixture
def json_file(tmp_path):
    def write(**values):
        path = tmp_path / "apart" / "credentials.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values))
        return str(path)

    return write


def found(provider, environment, **more):
    return located(provider, "main", "shoot--a--b/etcd-main", environment=environment, **more)


def options_of(place):
    store = open_store(place.url, credentials=place.credentials).inner.inner
    return store._options  # noqa: SLF001 - what it was opened with


# S3


@pytest.mark.parametrize("prefix", PREFIXES)
def test_s3_reads_a_directory(files, prefix):
    path = files(accessKeyID="id\n", secretAccessKey="secret", region="eu-west-1", bucketName="ignored")
    place = found("S3", {f"{prefix}AWS_APPLICATION_CREDENTIALS": path}, variables=prefix)
    assert place.url == "s3://main/shoot--a--b/etcd-main"
    assert place.credentials.load() == {
        "accessKeyID": "id",
        "secretAccessKey": "secret",
        "region": "eu-west-1",
    }


def test_the_json_variable_comes_before_the_directory(files, json_file):
    directory = files(accessKeyID="directory", secretAccessKey="secret", region="r")
    file = json_file(accessKeyID="file", secretAccessKey="secret", region="r", insecureSkipVerify=True)
    both = {"AWS_APPLICATION_CREDENTIALS": directory, "AWS_APPLICATION_CREDENTIALS_JSON": file}
    assert found("S3", both).credentials.load()["accessKeyID"] == "file"
    assert found("S3", both).credentials.load()["insecureSkipVerify"] == "true"


def test_a_json_file_in_the_directory_comes_before_single_files(files):
    path = files(accessKeyID="single", **{"any.json": json.dumps({"accessKeyID": "json"})})
    assert found("S3", {"AWS_APPLICATION_CREDENTIALS": path}).credentials.load() == {"accessKeyID": "json"}


@pytest.mark.parametrize(
    ("prefix", "url"),
    [("a//b", "s3://main/a/b"), ("/a/./b/", "s3://main/a/b"), ("a/../b", "s3://main/b"), ("./", "s3://main")],
)
def test_a_prefix_is_joined_as_go_joins_paths(prefix, url):
    place = located("S3", "main", prefix, environment={})
    assert place.url == url
    open_store(place.url)


def test_variables_of_another_prefix_do_not_count(files):
    path = files(accessKeyID="id", secretAccessKey="secret")
    assert found("S3", {"AWS_APPLICATION_CREDENTIALS": path}, variables="SOURCE_").credentials is AMBIENT


def test_s3_without_variables_is_the_ambient_way():
    assert found("S3", {}).credentials is AMBIENT


def test_changed_files_are_read_again(files):
    path = files(accessKeyID="old", secretAccessKey="secret", endpoint="https://one.example.org")
    for override in (None, "https://two.example.org"):
        files(accessKeyID="old")
        place = found("S3", {"AWS_APPLICATION_CREDENTIALS": path}, endpoint=override)
        stamp = place.credentials.stamp()
        files(accessKeyID="new")
        os.utime(f"{path}/accessKeyID", ns=(1, 1))
        assert place.credentials.stamp() != stamp
        assert place.credentials.load()["accessKeyID"] == "new"


@pytest.mark.parametrize(
    ("path_style", "addressing"), [(None, "virtual"), ("true", "path"), ("false", "virtual")]
)
def test_an_override_replaces_the_endpoint_and_nothing_else(files, path_style, addressing):
    path = files(accessKeyID="id", secretAccessKey="secret", endpoint="https://old.example.org")
    if path_style:
        files(s3ForcePathStyle=path_style)
    place = found("S3", {"AWS_APPLICATION_CREDENTIALS": path}, endpoint="https://new.example.org")
    options = options_of(place)
    assert (options.endpoint, options.addressing) == ("https://new.example.org", addressing)
    assert options.prefix == "shoot--a--b/etcd-main"


def test_a_customer_s_key_goes_with_every_request(files):
    key = "x" * 32
    path = files(accessKeyID="i", secretAccessKey="s", sseCustomerKey=key, sseCustomerAlgorithm="AES256")
    options = options_of(found("S3", {"AWS_APPLICATION_CREDENTIALS": path}))
    assert options.encryption.customer_key == key.encode()


def test_a_role_comes_with_its_token(files):
    path = files(roleARN="arn:aws:iam::1:role/etcd", token="web-identity", region="eu-west-1")
    values = found("S3", {"AWS_APPLICATION_CREDENTIALS": path}).credentials.load()
    assert values == {
        "roleARN": "arn:aws:iam::1:role/etcd",
        "tokenPath": f"{path}/token",
        "region": "eu-west-1",
    }


def test_s3_works(bucket, files):
    path = files(
        accessKeyID=bucket.access_key,
        secretAccessKey=bucket.secret_key,
        region=bucket.region,
        endpoint="http://x",
    )
    place = located(
        "S3",
        "",
        "etcd",
        environment={"SOURCE_AWS_APPLICATION_CREDENTIALS": path, "SOURCE_STORAGE_CONTAINER": bucket.name},
        variables="SOURCE_",
        endpoint=bucket.endpoint,
    )
    store = open_store(place.url, credentials=place.credentials)
    store.put("key", [b"body"], condition=Create())
    assert bucket.client().get_object(Bucket=bucket.name, Key="etcd/key")["Body"].read() == b"body"


# OCS and ECS


@pytest.mark.parametrize(
    ("endpoint", "plain", "expected"),
    [
        ("s3.apps.example.org", "false", "https://s3.apps.example.org"),
        ("s3.apps.example.org", "true", "http://s3.apps.example.org"),
        ("https://s3.apps.example.org", "true", "https://s3.apps.example.org"),
        ("s3.apps.example.org", "", "https://s3.apps.example.org"),
        *(
            ("s3.apps.example.org", go, "http://s3.apps.example.org")
            for go in ("1", "t", "T\n", "TRUE", "True")
        ),
        *(("s3.apps.example.org", go, "https://s3.apps.example.org") for go in ("0", "f", "F", "FALSE")),
    ],
)
def test_ocs_is_s3_with_buckets_in_paths(files, endpoint, plain, expected):
    path = files(
        endpoint=endpoint,
        region="r",
        accessKeyID="id",
        secretAccessKey="s",
        disableSSL=plain,
        insecureSkipVerify="true",
    )
    options = options_of(
        found("OCS", {"OPENSHIFT_APPLICATION_CREDENTIALS": path}, endpoint="https://ignored")
    )
    assert (options.endpoint, options.addressing, options.insecure) == (expected, "path", True)


def test_a_switch_of_ocs_that_go_cannot_read_is_refused(files):
    path = files(endpoint="s3.example.org", accessKeyID="id", secretAccessKey="s", disableSSL="yes")
    with pytest.raises(ConfigError, match="disableSSL is 'yes'"):
        options_of(found("OCS", {"OPENSHIFT_APPLICATION_CREDENTIALS": path}))


def test_ocs_without_an_endpoint_is_refused(files):
    path = files(accessKeyID="id", secretAccessKey="s")
    with pytest.raises(ConfigError, match="the credentials lack endpoint"):
        options_of(found("OCS", {"OPENSHIFT_APPLICATION_CREDENTIALS": path}))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_ecs_works_with_its_plain_variables(bucket, prefix):
    environment = {
        "ECS_ENDPOINT": bucket.endpoint.removeprefix("http://"),
        "ECS_ACCESS_KEY_ID": bucket.access_key,
        "ECS_SECRET_ACCESS_KEY": bucket.secret_key,
        "ECS_DISABLE_SSL": "1",
    }
    place = located("ECS", bucket.name, "etcd", environment=environment, variables=prefix)
    options = options_of(place)
    assert (options.region, options.addressing) == ("US-Standard", "path")
    open_store(place.url, credentials=place.credentials).put("key", [b"body"])
    assert bucket.client().get_object(Bucket=bucket.name, Key="etcd/key")["Body"].read() == b"body"


def test_ecs_names_the_variables_that_are_missing():
    place = found("ECS", {"ECS_ACCESS_KEY_ID": "id"})
    with pytest.raises(ConfigError, match="ECS_ENDPOINT and ECS_SECRET_ACCESS_KEY are not set"):
        place.credentials.load()


# Swift and OSS


@pytest.mark.parametrize("prefix", PREFIXES)
def test_swift_falls_back_to_openstack_s_variables(container, prefix):
    environment = {
        f"{prefix}OS_AUTH_URL": container.auth,
        f"{prefix}OS_USERNAME": container.user,
        f"{prefix}OS_PASSWORD": container.password,
    }
    place = located("Swift", container.name, "etcd", environment=environment, variables=prefix)
    open_store(place.url, credentials=place.credentials).put("key", [b"body"])
    assert container.names() == ["etcd/key"]


@pytest.mark.parametrize("name", ["etcd backups", "etcd:grün", "50%25"])
def test_a_container_of_swift_may_have_any_name(container, name):
    named = replace(container, name=f"{container.name} {name}")
    named.ask("PUT", "")
    environment = {
        "OS_AUTH_URL": container.auth,
        "OS_USERNAME": container.user,
        "OS_PASSWORD": container.password,
    }
    place = located("Swift", named.name, "etcd", environment=environment)
    store = open_store(place.url, credentials=place.credentials)
    store.put("key", [b"body"])
    again = open_store(f"{store.url}?auth={container.auth}", credentials=place.credentials)
    assert b"".join(again.get("key")) == b"body"
    assert again.url == f"{store.url}?auth={container.auth}"
    assert named.names() == ["etcd/key"]


def test_swift_reads_a_directory(files):
    values = {"authURL": "https://k/v3", "domainName": "d", "tenantName": "t", "region": "r"}
    values |= {"username": "u", "password": "p"}
    path = files(**values)
    place = found("Swift", {"OPENSTACK_APPLICATION_CREDENTIALS": path, "OS_AUTH_URL": "https://other"})
    assert place.url == "swift://main/shoot--a--b/etcd-main"
    assert place.credentials.load() == values


def test_swift_without_anything_names_both_ways():
    with pytest.raises(
        ConfigError, match="neither SOURCE_OPENSTACK_APPLICATION_CREDENTIALS nor SOURCE_OS_AUTH_URL"
    ):
        found("Swift", {"OS_AUTH_URL": "https://k"}, variables="SOURCE_")


def test_oss_reads_a_json_file(json_file):
    path = json_file(
        storageEndpoint="oss-eu-central-1.aliyuncs.com", accessKeyID="id", accessKeySecret="secret"
    )
    place = found("OSS", {"ALICLOUD_APPLICATION_CREDENTIALS_JSON": path})
    assert place.url == "oss://main/shoot--a--b/etcd-main"
    assert options_of(place).endpoint == "https://s3.oss-eu-central-1.aliyuncs.com"


# Azure and Google


def test_azure_takes_its_account_from_the_credentials(files):
    path = files(storageAccount="account", storageKey="a2V5", domain="blob.core.chinacloudapi.cn")
    environment = {"AZURE_APPLICATION_CREDENTIALS": path}
    options = options_of(found("ABS", environment))
    assert (options.account, options.container, options.prefix) == (
        "account",
        "main",
        "shoot--a--b/etcd-main",
    )
    assert options.address == "https://account.blob.core.chinacloudapi.cn/main"
    options = options_of(found("ABS", environment, endpoint="http://127.0.0.1:1/account"))
    assert options.address == "http://127.0.0.1:1/account/main"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_google_uses_the_file_of_each_site(json_file, prefix):
    path = json_file(type="service_account", project_id="p", client_email="e", private_key="k")
    place = found(
        "GCS",
        {f"{prefix}GOOGLE_APPLICATION_CREDENTIALS": path},
        variables=prefix,
        endpoint="http://127.0.0.1:1/storage/v1/",
    )
    assert place.url == "gs://main/shoot--a--b/etcd-main?endpoint=http://127.0.0.1:1"
    assert json.loads(place.credentials.load()["googleCredentials"])["client_email"] == "e"
    assert found("GCS", {}).credentials is AMBIENT


# Local, and what cannot be


@pytest.mark.parametrize("provider", ["Local", ""])
def test_local_lies_in_the_home_directory(tmp_path, provider):
    environment = {"HOME": str(tmp_path)}
    place = located(provider, "", "a b/etcd", environment=environment)
    open_store(place.url, credentials=place.credentials).put("key", [b"body"])
    assert (tmp_path / "default.bkp" / "a b" / "etcd" / "key").read_bytes() == b"body"
    assert located(provider, "mine", "", environment=environment).url == f"file://{tmp_path}/mine"


def test_local_needs_a_home():
    with pytest.raises(ConfigError, match="HOME is not set"):
        found("Local", {})


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("ABS", "AZURE_APPLICATION_CREDENTIALS"),
        ("OSS", "ALICLOUD_APPLICATION_CREDENTIALS"),
        ("OCS", "OPENSHIFT_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_missing_variable_is_named(provider, variable):
    with pytest.raises(
        ConfigError, match=f"neither SECONDARY_{variable} nor SECONDARY_{variable}_JSON is set"
    ):
        found(provider, {}, variables="SECONDARY_")


@pytest.mark.parametrize("provider", ["S3", "ABS", "GCS", "Swift", "OSS", "OCS", "ECS"])
def test_a_missing_container_is_told(provider):
    with pytest.raises(ConfigError, match="no container is given") as caught:
        located(provider, "", "etcd", environment={"STORAGE_CONTAINER": "other"}, variables="SOURCE_")
    assert "SOURCE_STORAGE_CONTAINER" in caught.value.hint


@pytest.mark.parametrize("provider", ["s3", "aws", "Azure"])
def test_another_provider_is_refused(provider):
    with pytest.raises(UsageError, match="there is no storage provider"):
        found(provider, {})
