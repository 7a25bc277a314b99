"""Buckets by URL, and Gardener's secrets."""

from pathlib import Path

import pytest

from rootcellar.backup.catalogue.names import parse
from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores import open_store
from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.deletion import folder
from rootcellar.stores.admin.gcs import GcsAdmin
from rootcellar.stores.admin.local import LocalAdmin
from rootcellar.stores.admin.opening import SecretCredentials, bucket_url, open_admin
from rootcellar.stores.admin.ownership import FOLDER
from rootcellar.stores.admin.s3.admin import S3Admin
from rootcellar.stores.admin.swift import SwiftAdmin

KEYS = {"accessKeyID": b"a", "secretAccessKey": b"b", "accessKeySecret": b"b\n"}


@pytest.mark.parametrize(
    ("provider", "url", "kind"),
    [
        ("aws", "s3://seed?region=eu-1", S3Admin),
        ("S3", "s3://seed?region=eu-1", S3Admin),
        ("gcp", "gs://seed", GcsAdmin),
        ("openstack", "swift://seed?region=eu-1", SwiftAdmin),
        ("alicloud", "oss://seed?region=eu-1", S3Admin),
        ("local", "file:///buckets/seed", LocalAdmin),
    ],
)
def test_each_type_has_its_url_and_its_administration(provider, url, kind):
    assert bucket_url(provider, "seed", "eu-1", directory=Path("/buckets")) == url
    admin = open_admin(url, credentials=SecretCredentials(KEYS))
    assert isinstance(admin, kind)
    assert admin.url == url.partition("?")[0]


def test_a_container_of_azure_has_a_url_and_an_account_none():
    keys = SecretCredentials({"storageAccount": b"account", "storageKey": b"a2V5"})
    assert isinstance(open_admin("azure:///seed", credentials=keys), ContainerAdmin)
    with pytest.raises(UsageError, match="no URL for a bucket of type azure"):
        bucket_url("azure", "seed", "westeurope")


@pytest.mark.parametrize("bucket", ["", "..", "a/b", ".hidden"])
def test_a_local_bucket_stays_in_its_directory(bucket):
    with pytest.raises(UsageError):
        bucket_url("local", bucket, "", directory=Path("/buckets"))


def test_a_bucket_is_managed_without_a_prefix():
    with pytest.raises(UsageError, match="managed as a whole"):
        open_admin("s3://seed/shoot--a", credentials=SecretCredentials(KEYS))


def test_googles_file_is_found_under_gardeners_names():
    for name in ("serviceaccount.json", "credentialsConfig"):
        assert SecretCredentials({name: b'{"type": "x"}'}).load() == {"googleCredentials": '{"type": "x"}'}


def test_a_secret_that_is_no_text_is_a_config_error():
    with pytest.raises(ConfigError, match="accessKeyID of the secret is no text"):
        SecretCredentials({"accessKeyID": b"\xff"}).load()


@pytest.mark.parametrize(
    "prefix", ["", "/", "a/", "/a", "a//b", ".", "a/..", "_rootcellar", "_rootcellar/x", "a\n"]
)
def test_a_prefix_that_is_no_folder_is_refused(prefix):
    with pytest.raises(UsageError):
        folder(prefix)


def test_marks_are_nothing_to_etcd_backup_restore():
    """Also where its prefix is empty, and it lists the whole bucket."""
    assert parse(f"{FOLDER}owners/{'0' * 32}") is None


def test_no_kubernetes_name_is_the_marks_folder():
    with pytest.raises(UsageError):
        folder(FOLDER.rstrip("/"))
    assert "_" in FOLDER


def test_stores_still_open_by_their_urls(tmp_path):
    assert open_store(str(tmp_path)).url == f"file://{tmp_path}"
