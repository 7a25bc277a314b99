"""Versions, immutability and legal holds, against a fake: Azurite has none of them."""

from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import LockedError, NotFoundError, UnsupportedError
from rootcellar.stores import Retention
from testbed.azurite import Container
from tests.stores.clouds import azure_store
from tests.stores.fake_clouds import FakeAzureLocks
from tests.stores.places import keys_of

NOW = datetime.now(UTC).replace(microsecond=0)


def soon(**offset):
    """The same instant at each call: two calls on both sides of a second's end would differ."""
    return NOW + timedelta(**offset)


def opened(fake):
    return azure_store(Container("container", f"{fake.endpoint}/testbed", None), "main")


@pytest.fixture
def fake():
    with FakeAzureLocks() as service:
        yield service


@pytest.fixture
def store(fake):
    return opened(fake)


def test_a_container_with_versions_and_locks_is_known_as_such(fake, store):
    found = store.probe()
    assert (found.versions, found.object_lock) == (True, True)
    assert (found.conditional_create, found.conditional_replace) == (True, True)
    assert [versions for versions in fake.blobs.values() if versions] == []


def test_every_version_is_listed_newest_first(store):
    first = store.put("a", [b"first"])
    second = store.put("a", [b"second"])
    store.put("b", [b"other"])
    store.delete("a")
    found = list(store.versions())
    assert [(info.key, info.size) for info in found] == [("a", 6), ("a", 5), ("b", 5)]
    assert [info.version for info in found[:2]] == [second.version, first.version]
    assert keys_of(store.list()) == ["b"]


def test_each_version_can_be_read_and_deleted(store):
    first = store.put("a", [b"first"])
    second = store.put("a", [b"second"])
    assert b"".join(store.get("a", version=first.version)) == b"first"
    store.delete("a", version=second.version)  # the current one, which Azure deletes in two steps only
    assert [info.version for info in store.versions()] == [first.version]
    with pytest.raises(NotFoundError):
        store.stat("a", version=second.version)


@pytest.mark.parametrize("compliance", [False, True])
def test_retention_is_set_told_and_only_extended(store, compliance):
    version = store.put("a", [b"x"]).version
    assert store.retention("a") == Retention()
    kept = Retention(soon(days=1), compliance=compliance)
    store.set_retention("a", kept)
    assert store.retention("a", version=version) == kept
    with pytest.raises(LockedError, match="cannot be shortened"):
        store.set_retention("a", Retention(soon(hours=1), compliance=compliance))
    longer = Retention(soon(days=2), compliance=compliance)
    store.set_retention("a", longer)
    assert store.retention("a") == longer
    store.delete("a")
    with pytest.raises(LockedError, match="retention forbids it"):
        store.delete("a", version=version)


def test_compliance_is_never_loosened(store):
    store.put("a", [b"x"])
    store.set_retention("a", Retention(soon(days=1), compliance=True))
    with pytest.raises(LockedError, match="cannot be loosened"):
        store.set_retention("a", Retention(soon(days=2)))


def test_a_legal_hold_forbids_deletion_until_it_is_lifted(store):
    version = store.put("a", [b"x"]).version
    store.set_retention("a", Retention(legal_hold=True))
    assert store.retention("a") == Retention(legal_hold=True)
    with pytest.raises(LockedError, match="legal hold forbids it"):
        store.delete("a", version=version)
    store.set_retention("a", Retention(), version=version)
    store.delete("a", version=version)
    assert list(store.versions()) == []


def test_a_container_without_immutability_says_so():
    with FakeAzureLocks(immutable=False) as fake:
        store = opened(fake)
        store.put("a", [b"x"])
        assert not store.probe().object_lock
        with pytest.raises(UnsupportedError, match="no version-level immutability"):
            store.set_retention("a", Retention(legal_hold=True))


def test_azurite_has_neither_versions_nor_locks(azurite):
    store = azure_store(azurite.new_container())
    store.put("a", [b"x"])
    for attempt in (lambda: list(store.versions()), lambda: store.retention("a")):
        with pytest.raises(UnsupportedError):
            attempt()
