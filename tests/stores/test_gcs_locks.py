"""Generations on fake-gcs-server; retention and holds against a fake: the server ignores both."""

from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import LockedError, UnsupportedError
from rootcellar.stores import Retention
from testbed.gcs import GcsBucket
from tests.stores.clouds import gcs_store
from tests.stores.fake_clouds import FakeGcsLocks
from tests.stores.places import keys_of

NOW = datetime.now(UTC).replace(microsecond=0)


def soon(**offset):
    """The same instant at each call: two calls on both sides of a second's end would differ."""
    return NOW + timedelta(**offset)


@pytest.fixture
def fake():
    with FakeGcsLocks() as service:
        service.make("main/a")
        yield service


@pytest.fixture
def store(fake):
    return gcs_store(GcsBucket("bucket", fake.endpoint), "main")


# generations


def test_every_generation_is_listed_newest_first_and_can_be_read(fake_gcs):
    store = gcs_store(fake_gcs.new_bucket(versioned=True), "main")
    first = store.put("a", [b"first"])
    second = store.put("a", [b"second"])
    store.put("b", [b"other"])
    store.delete("a")
    found = list(store.versions())
    assert [(info.key, info.size) for info in found] == [("a", 6), ("a", 5), ("b", 5)]
    assert [info.version for info in found[:2]] == [second.version, first.version]
    assert keys_of(store.list()) == ["b"]
    assert b"".join(store.get("a", version=first.version)) == b"first"
    assert store.stat("a", version=second.version).size == 6


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bucket_tells_whether_it_keeps_generations(fake_gcs, versioned):
    store = gcs_store(fake_gcs.new_bucket(versioned=versioned))
    assert store.probe().versions == versioned


# retention and holds


@pytest.mark.parametrize("compliance", [False, True])
def test_retention_is_set_told_and_only_extended(store, compliance):
    assert store.retention("a") == Retention()
    kept = Retention(soon(days=1), compliance=compliance)
    store.set_retention("a", kept)
    assert store.retention("a") == kept
    with pytest.raises(LockedError, match="cannot be shortened"):
        store.set_retention("a", Retention(soon(hours=1), compliance=compliance))
    longer = Retention(soon(days=2), compliance=compliance)
    store.set_retention("a", longer)
    assert store.retention("a") == longer
    with pytest.raises(LockedError, match="retention forbids it"):
        store.delete("a")


def test_compliance_is_never_loosened(store):
    store.set_retention("a", Retention(soon(days=1)))
    store.set_retention("a", Retention(soon(days=1), compliance=True))
    with pytest.raises(LockedError, match="cannot be loosened"):
        store.set_retention("a", Retention(soon(days=2)))


def test_a_hold_forbids_deletion_until_it_is_lifted(store):
    store.set_retention("a", Retention(legal_hold=True))
    assert store.retention("a") == Retention(legal_hold=True)
    with pytest.raises(LockedError, match="a hold forbids it"):
        store.delete("a")
    store.set_retention("a", Retention())
    store.delete("a")


def test_a_hold_that_an_event_would_end_counts_and_is_lifted_too(fake, store):
    fake.make("main/b", eventBasedHold=True)
    assert store.retention("b").legal_hold
    store.set_retention("b", Retention())
    assert not store.retention("b").legal_hold


def test_the_policy_of_the_bucket_shows_in_its_objects(fake, store):
    fake.make("main/b", retentionExpirationTime=soon(days=3).isoformat())
    assert store.retention("b").until == soon(days=3)
    fake.make("main/c", retentionExpirationTime=soon(days=-3).isoformat())
    assert store.retention("c") == Retention()


def test_a_bucket_without_object_retention_takes_holds_only():
    with FakeGcsLocks(retention=False) as fake:
        fake.make("a")
        store = gcs_store(GcsBucket("bucket", fake.endpoint))
        store.set_retention("a", Retention(legal_hold=True))
        assert store.retention("a").legal_hold
        with pytest.raises(UnsupportedError, match="no object retention"):
            store.set_retention("a", Retention(soon(days=1), legal_hold=True))
