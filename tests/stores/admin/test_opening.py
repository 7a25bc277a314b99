"""Buckets by URL."""

import pytest

from rootcellar.backup.catalogue.names import parse
from rootcellar.errors import UsageError
from rootcellar.stores import open_store
from rootcellar.stores.admin.azure.container import ContainerAdmin
from rootcellar.stores.admin.deletion import folder
from rootcellar.stores.admin.gcs import GcsAdmin
from rootcellar.stores.admin.local import LocalAdmin
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.admin.ownership import FOLDER
from rootcellar.stores.admin.s3.admin import S3Admin
from rootcellar.stores.admin.swift import SwiftAdmin
from tests.stores.clouds import Values

KEYS = Values({"accessKeyID": "a", "secretAccessKey": "b", "accessKeySecret": "b"})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("s3://seed?region=eu-1", S3Admin),
        ("gs://seed", GcsAdmin),
        ("swift://seed?region=eu-1", SwiftAdmin),
        ("oss://seed?region=eu-1", S3Admin),
        ("file:///buckets/seed", LocalAdmin),
    ],
)
def test_each_url_has_its_administration(url, kind):
    admin = open_admin(url, credentials=KEYS)
    assert isinstance(admin, kind)
    assert admin.url == url.partition("?")[0]


def test_the_account_of_a_container_may_be_in_the_credentials():
    keys = Values({"storageAccount": "account", "storageKey": "a2V5"})
    assert isinstance(open_admin("azure:///seed", credentials=keys), ContainerAdmin)


def test_a_bucket_is_managed_without_a_prefix():
    with pytest.raises(UsageError, match="managed as a whole"):
        open_admin("s3://seed/shoot--a", credentials=KEYS)


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
