"""Gardener's codes for our errors."""

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
    UsageError,
)
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.azure.errors import AzureError
from rootcellar.stores.gcs.errors import GcsError
from rootcellar.stores.swift.errors import SwiftError


class BotoError(Exception):
    """What botocore's ClientError has."""

    def __init__(self, code, status):
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (caused(DeniedError("x"), BotoError("InvalidAccessKeyId", 403)), "ERR_INFRA_UNAUTHENTICATED"),
        (caused(DeniedError("x"), BotoError("SignatureDoesNotMatch", 403)), "ERR_INFRA_UNAUTHORIZED"),
        (caused(DeniedError("x"), BotoError("403", 403)), "ERR_INFRA_UNAUTHORIZED"),
        (caused(DeniedError("x"), BotoError("401", 401)), "ERR_INFRA_UNAUTHENTICATED"),
        (caused(DeniedError("x"), AzureError(403, "AuthenticationFailed", "")), "ERR_INFRA_UNAUTHENTICATED"),
        (caused(DeniedError("x"), AzureError(403, "AuthorizationFailed", "")), "ERR_INFRA_UNAUTHORIZED"),
        (caused(DeniedError("x"), GcsError(401, "authError", "")), "ERR_INFRA_UNAUTHENTICATED"),
        (caused(DeniedError("x"), GcsError(403, "forbidden", "")), "ERR_INFRA_UNAUTHORIZED"),
        (caused(DeniedError("x"), SwiftError(401)), "ERR_INFRA_UNAUTHENTICATED"),
        (caused(DeniedError("x"), SwiftError(403)), "ERR_INFRA_UNAUTHORIZED"),
        (DeniedError("no token", operation="sign in"), "ERR_INFRA_UNAUTHENTICATED"),
        (DeniedError("x", operation="log in"), "ERR_INFRA_UNAUTHENTICATED"),
        (DeniedError("x"), "ERR_INFRA_UNAUTHORIZED"),
        (caused(StoreError("x"), BotoError("TooManyBuckets", 400)), "ERR_INFRA_QUOTA_EXCEEDED"),
        (caused(StoreError("x"), BotoError("XMinioStorageFull", 507)), "ERR_INFRA_RESOURCES_DEPLETED"),
        (caused(ThrottledError("x"), BotoError("SlowDown", 503)), "ERR_INFRA_RATE_LIMITS_EXCEEDED"),
        (
            caused(ThrottledError("x"), BotoError("ServiceUnavailable", 503)),
            "ERR_RETRYABLE_INFRA_DEPENDENCIES",
        ),
        (TransientError("x"), "ERR_RETRYABLE_INFRA_DEPENDENCIES"),
        (LockedError("x"), "ERR_INFRA_DEPENDENCIES"),
        (NotEmptyError("x"), "ERR_INFRA_DEPENDENCIES"),
        (AlreadyExistsError("x"), "ERR_CONFIGURATION_PROBLEM"),
        (UnsupportedError("x"), "ERR_CONFIGURATION_PROBLEM"),
        (ConfigError("x"), "ERR_CONFIGURATION_PROBLEM"),
        (UsageError("x"), "ERR_CONFIGURATION_PROBLEM"),
        (StoreError("swift: too many requests"), "ERR_INFRA_RATE_LIMITS_EXCEEDED"),
        (StoreError("the bucket's quota is used up"), "ERR_INFRA_QUOTA_EXCEEDED"),
    ],
)
def test_what_a_store_said_decides(error, code):
    assert codes(error) == (code,)


def test_a_missing_bucket_is_no_configuration_problem():
    for cause in (BotoError("NoSuchBucket", 404), AzureError(404, "ContainerNotFound", "not found"), None):
        assert codes(caused(NotFoundError("no such bucket: not found"), cause)) == ()


def test_what_has_no_word_has_no_code():
    assert codes(StoreError("something odd")) == ()
    assert codes(ValueError("access denied")) == ()
