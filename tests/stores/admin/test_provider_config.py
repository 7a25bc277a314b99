"""Gardener's BackupBucketConfig of each provider, decoded and compared."""

from datetime import timedelta

import pytest

from rootcellar.errors import ConfigError
from rootcellar.stores.admin.provider_config import (
    ProviderConfig,
    Rotation,
    check_endpoint,
    decode,
    duration,
)
from rootcellar.stores.admin.values import Immutability

DAY = timedelta(days=1)


def config(provider, **fields):
    version = f"{provider.lower()}.provider.extensions.gardener.cloud/v1alpha1"
    return {"apiVersion": version, "kind": "BackupBucketConfig", **fields}


def immutable(**fields):
    return {"retentionType": "bucket", "retentionPeriod": "96h", **fields}


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp", "alicloud", "openstack", "local", "S3"])
def test_no_config_means_nothing_is_asked_for(provider):
    assert decode(provider, None) == ProviderConfig()


@pytest.mark.parametrize(
    ("provider", "fields", "found"),
    [
        ("aws", {"immutability": immutable(mode="compliance")}, Immutability(4 * DAY, locked=True)),
        ("aws", {"immutability": immutable(mode="governance")}, Immutability(4 * DAY)),
        ("azure", {"immutability": immutable()}, Immutability(4 * DAY)),
        ("azure", {"immutability": immutable(locked=True)}, Immutability(4 * DAY, locked=True)),
        ("gcp", {"immutability": immutable(retentionPeriod="25h30m")}, Immutability(timedelta(hours=25.5))),
        ("alicloud", {"immutability": immutable(retentionPeriod=2)}, Immutability(2 * DAY)),
        ("aws", {}, None),
        ("S3", {"immutability": immutable(mode="compliance")}, Immutability(4 * DAY, locked=True)),
    ],
)
def test_each_providers_immutability_is_read(provider, fields, found):
    assert decode(provider, config(provider, **fields)).immutability == found


@pytest.mark.parametrize("provider", ["S3", "openstack", "local"])
@pytest.mark.parametrize("raw", [config("aws", immutability=immutable(mode="compliance")), {"any": 1}, []])
def test_what_other_extensions_never_read_is_taken_and_not_read_either(provider, raw):
    assert decode(provider, raw) == ProviderConfig(is_unread=True)


def test_azures_cloud_and_rotation_are_read():
    said = config(
        "azure",
        cloudConfiguration={"name": "AzureChina"},
        rotationConfig={"rotationPeriodDays": 2, "expirationPeriodDays": 3},
    )
    assert decode("azure", said) == ProviderConfig(cloud="AzureChina", rotation=Rotation(2 * DAY, 3 * DAY))


@pytest.mark.parametrize(
    ("provider", "fields"),
    [
        ("aws", {"immutability": immutable(mode="governance", retentionPeriod="25h")}),  # no whole days
        ("aws", {"immutability": immutable(mode="governance", retentionPeriod="1h")}),
        ("aws", {"immutability": immutable(mode="strict")}),
        ("aws", {"immutability": immutable()}),  # no mode
        ("aws", {"immutability": immutable(mode="governance", locked=True)}),
        ("aws", {"immutability": {**immutable(mode="governance"), "retentionType": "object"}}),
        ("aws", {"immutabilty": immutable(mode="governance")}),
        ("S3", {"immutabilty": immutable(mode="governance")}),
        ("azure", {"immutability": immutable(locked="false")}),
        ("azure", {"cloudConfiguration": {"name": "AzureMoon"}}),
        ("azure", {"rotationConfig": {"rotationPeriodDays": 1}}),
        ("azure", {"rotationConfig": {"rotationPeriodDays": 5, "expirationPeriodDays": 5}}),
        ("gcp", {"immutability": immutable(retentionPeriod="600s")}),
        ("gcp", {"store": {"endpointOverride": "http://storage.example.org"}}),
        ("gcp", {"store": {"endpointOverride": "https://[::1"}}),
        ("gcp", {"store": {"endpointOverride": "https://user:secret@storage.example.org"}}),
        ("gcp", {"store": {"endpoint": "https://storage.example.org"}}),
        ("alicloud", {"immutability": immutable(retentionPeriod=0)}),
        ("alicloud", {"immutability": immutable(retentionPeriod="2d")}),
    ],
)
def test_what_cannot_be_meant_is_refused(provider, fields):
    with pytest.raises(ConfigError):
        decode(provider, config(provider, **fields))


def test_anothers_config_is_refused():
    for said in (config("gcp"), {**config("aws"), "kind": "InfrastructureConfig"}, [], "x", {}):
        with pytest.raises(ConfigError):
            decode("aws", said)


def test_what_is_stored_already_may_have_fields_that_nobody_knows():
    said = config("gcp", old=1, immutability=immutable(locked=True))
    assert decode("gcp", said, strict=False).immutability == Immutability(4 * DAY, locked=True)
    with pytest.raises(ConfigError, match="unknown field 'old'"):
        decode("gcp", said)


def test_an_endpoint_must_be_on_the_operators_list():
    said = "https://storage.me-central2.rep.example"
    check_endpoint(said, ["https://storage.me-central2.rep.example/"])
    check_endpoint(None, [])
    with pytest.raises(ConfigError, match="not allowed here"):
        check_endpoint(said, [])


@pytest.mark.parametrize(
    ("text", "seconds"), [("24h", 86400), ("1h30m", 5400), ("0.5h", 1800), ("1.5s", 1.5), ("2m3ms", 120.003)]
)
def test_durations_are_gos(text, seconds):
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "24", "h", "1d", "-1h", "1h x", " 1h"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError):
        duration(text)
