"""Buckets of SeaweedFS, with versions and locks, and of rclone, without."""

import pytest

from rootcellar.stores.admin.s3.admin import S3Admin
from rootcellar.stores.s3.options import S3Options
from testbed.s3 import Bucket
from testbed.server import unique
from tests.stores.admin.contract import Contract, Place
from tests.stores.places import QUICK, Keys, s3_store


def unmade(server):
    """A bucket that is not there yet."""
    return Bucket(unique("managed"), server.endpoint, server.ca)


def s3_admin(bucket, *, backoff=QUICK, keys=None, **options):
    settings = {
        "endpoint": bucket.endpoint,
        "region": bucket.region,
        "ca_file": str(bucket.ca) if bucket.ca else None,
        **options,
    }
    return S3Admin(S3Options(bucket.name, **settings), keys or Keys(bucket), backoff=backoff)


def keys_in(bucket):
    return [each["Key"] for each in bucket.client().list_objects_v2(Bucket=bucket.name).get("Contents", [])]


def s3_place(server):
    bucket = unmade(server)
    return Place(
        lambda: s3_admin(bucket), lambda prefix: s3_store(bucket, prefix), lambda: sorted(keys_in(bucket))
    )


class TestSeaweed(Contract):
    @pytest.fixture
    def place(self, seaweed):
        return s3_place(seaweed)


class TestRclone(Contract):
    @pytest.fixture
    def place(self, rclone_s3):
        return s3_place(rclone_s3)
