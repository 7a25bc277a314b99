"""Versions, retention and legal holds."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import LockedError, NotFoundError, UnsupportedError
from rootcellar.stores import Retention, RetryingStore
from rootcellar.stores.probing import FOLDER
from tests.stores.conformance import put_all
from tests.stores.places import QUICK, keys_of, s3_store

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def shared(seaweed):
    return seaweed.new_bucket()


@pytest.fixture(scope="module")
def shared_locked(seaweed):
    return seaweed.new_bucket(object_lock=True)


@pytest.fixture(scope="module")
def shared_plain(rclone_s3):
    return rclone_s3.new_bucket()


@pytest.fixture
def prefix():
    return f"locks-{next(_prefixes)}"


@pytest.fixture
def store(shared, prefix):
    return s3_store(shared, prefix)


@pytest.fixture
def locked(shared_locked, prefix):
    return s3_store(shared_locked, prefix)


# versions


def test_every_version_is_listed_newest_first(locked):
    first = locked.put("a/b", [b"first"])
    second = locked.put("a/b", [b"second"])
    locked.put("a-b", [b"other"])
    locked.delete("a/b")
    found = list(locked.versions())
    assert [(info.key, info.size, info.is_delete_marker) for info in found] == [
        ("a-b", 5, False),
        ("a/b", 0, True),
        ("a/b", 6, False),
        ("a/b", 5, False),
    ]
    assert [info.version for info in found[2:]] == [second.version, first.version]
    assert keys_of(locked.list()) == ["a-b"]


def test_each_version_can_be_read_and_deleted(locked):
    first = locked.put("key", [b"first"])
    second = locked.put("key", [b"second"])
    assert b"".join(locked.get("key", version=first.version)) == b"first"
    assert b"".join(locked.get("key", start=2, version=second.version)) == b"cond"
    assert locked.stat("key", version=first.version).size == 5
    locked.delete("key", version=second.version)
    assert b"".join(locked.get("key")) == b"first"
    with pytest.raises(NotFoundError):
        locked.stat("key", version=second.version)
    locked.delete("key", version=second.version)


def test_more_versions_than_a_page_are_all_listed_through_a_retry(locked):
    keys = [f"v/{number:03d}" for number in range(120)]
    for _ in range(10):
        put_all(locked, keys)
    found = list(RetryingStore(locked, QUICK).versions("v/"))
    assert keys_of(found) == [key for key in keys for _ in range(10)]
    assert len({(info.key, info.version) for info in found}) == 1200


def test_a_probe_finds_versions_and_locks_and_leaves_nothing(locked, store):
    found = locked.probe()
    assert (found.versions, found.object_lock) == (True, True)
    assert list(locked.versions()) == []
    found = store.probe()
    assert (found.versions, found.object_lock) == (False, False)


def test_versions_are_unsupported_where_there_are_none(shared_plain, prefix):
    store = s3_store(shared_plain, prefix)
    with pytest.raises(UnsupportedError):
        list(store.versions())
    assert not store.probe().versions
    assert not store.probe().object_lock


# retention and holds


def test_a_hold_forbids_deletion_until_it_is_lifted(locked):
    version = locked.put("key", [b"x"]).version
    assert locked.retention("key") == Retention()
    locked.set_retention("key", Retention(legal_hold=True), version=version)
    assert locked.retention("key", version=version) == Retention(legal_hold=True)
    with pytest.raises(LockedError, match="a legal hold forbids it"):
        locked.delete("key", version=version)
    assert b"".join(locked.get("key")) == b"x"
    locked.set_retention("key", Retention(), version=version)
    locked.delete("key", version=version)
    assert list(locked.versions()) == []


def test_retention_forbids_deletion_and_is_only_extended(locked):
    version = locked.put("key", [b"x"]).version
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    locked.set_retention("key", Retention(until), version=version)
    assert locked.retention("key") == Retention(until)
    with pytest.raises(LockedError, match=f"retention until {until:%Y-%m-%d}"):
        locked.delete("key", version=version)
    for shorter in (Retention(until - timedelta(hours=1)), Retention()):
        with pytest.raises(LockedError, match="cannot be shortened"):
            locked.set_retention("key", shorter)
    longer = until + timedelta(days=1)
    locked.set_retention("key", Retention(longer))
    assert locked.retention("key") == Retention(longer)


def test_compliance_cannot_be_loosened(locked):
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    locked.put("key", [b"x"])
    locked.set_retention("key", Retention(until, compliance=True))
    assert locked.retention("key") == Retention(until, compliance=True)
    for looser in (Retention(until), Retention(until + timedelta(days=1))):
        with pytest.raises(LockedError, match="cannot be loosened"):
            locked.set_retention("key", looser)


def test_hiding_a_locked_object_is_no_deletion(locked):
    version = locked.put("key", [b"x"]).version
    locked.set_retention("key", Retention(legal_hold=True))
    locked.delete("key")
    assert keys_of(locked.list()) == []
    assert b"".join(locked.get("key", version=version)) == b"x"


def test_retention_of_nothing_is_not_found(locked):
    with pytest.raises(NotFoundError):
        locked.retention("never/there")


def test_retention_is_unsupported_without_object_lock(store):
    store.put("key", [b"x"])
    with pytest.raises(UnsupportedError, match="no object lock"):
        store.retention("key")
    with pytest.raises(UnsupportedError, match="no object lock"):
        store.set_retention("key", Retention(legal_hold=True))


def test_a_default_retention_leaves_one_probe_that_later_ones_use(seaweed, prefix, monkeypatch):
    monkeypatch.setattr("rootcellar.stores.s3.probe.OLD", timedelta(seconds=-5))
    bucket = seaweed.new_bucket(object_lock=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    bucket.client().put_object_lock_configuration(
        Bucket=bucket.name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    for _ in range(3):
        found = s3_store(bucket, prefix).probe()
        assert (found.conditional_create, found.conditional_replace, found.conditional_multipart) == (
            True,
        ) * 3
    assert len(list(s3_store(bucket, prefix).versions(FOLDER))) == 1
