"""Buckets of fake-gcs-server, and what it lacks of a bucket's settings by a fake of our own."""

import itertools
import json
import urllib.request

import pytest

from rootcellar.stores.admin.gcs import GcsAdmin
from rootcellar.stores.gcs.options import GcsOptions
from testbed.gcs import GcsBucket
from tests.stores.admin.contract import Contract, Place
from tests.stores.clouds import Values, gcs_store
from tests.stores.places import QUICK

_names = itertools.count(1)

PROJECT = {"projectID": "testbed"}


def gcs_admin(bucket, *, values=PROJECT, **options):
    return GcsAdmin(
        GcsOptions(bucket.name, endpoint=bucket.endpoint, **options), Values(dict(values)), backoff=QUICK
    )


def keys_in(bucket):
    with urllib.request.urlopen(f"{bucket.endpoint}/storage/v1/b/{bucket.name}/o", timeout=30) as answer:
        return [each["name"] for each in json.load(answer).get("items", [])]


class TestFakeGcs(Contract):
    @pytest.fixture
    def place(self, fake_gcs):
        bucket = GcsBucket(f"managed-{next(_names)}", fake_gcs.endpoint)
        return Place(
            lambda: gcs_admin(bucket),
            lambda prefix: gcs_store(bucket, prefix),
            lambda: sorted(keys_in(bucket)),
        )
