"""What lies in a bucket for nobody: told, and deleted only where that is asked for and it is surely dead."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.records import Hold
from rootcellar.operator.backupbucket.run import COLLECT
from rootcellar.operator.shared import ledger
from rootcellar.stores.admin.ownership import Marks
from rootcellar.stores.admin.values import Claim
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.stores.places import s3_store


class Left(Scene):
    """A bucket that is made, with a record of a forced deletion in it and what that left.

    `now` is of the test's beginning, not of the import: it is compared with when the store wrote.
    """

    def __init__(self, *parts):
        super().__init__(*parts)
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.past, self.future = self.now - timedelta(hours=1), self.now + timedelta(days=3)

    @property
    def dead(self):
        return f"shoot--{self.namespace}--dead--1"

    def leave(self, until, *keys):
        self.put(*(f"{self.dead}/{key}" for key in keys))
        record = ledger.Left(prefix=self.dead, locked=len(keys), since=self.now, earliest=until, latest=until)
        ledger.keep(self.ours(), record)

    def put(self, *keys):
        for key in keys:
            self.s3.put_object(Bucket=self.name, Key=key, Body=b"x")

    def take(self, *keys):
        for key in keys:
            self.s3.delete_object(Bucket=self.name, Key=key)

    def ours(self):
        return s3_store(replace(self.there, name=self.name), ledger.HOME)

    def lies(self):
        listed = self.s3.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [each["Key"] for each in listed if not each["Key"].startswith("_rootcellar/")]

    def records(self):
        return [record.prefix for record in ledger.records(self.ours())]

    def says_of(self, type_):
        """A condition's reason and message."""
        found = self.get(self.name).get("status", {}).get("conditions", [])
        return next(((each["reason"], each["message"]) for each in found if each["type"] == type_), None)

    def looked(self, reason, type_="ObjectsLeft"):
        """Give the order, and wait until the condition has this reason; its message."""
        self.ask(self.name, "reconcile")
        wait_until(lambda: (self.says_of(type_) or ("", ""))[0] == reason, f"{type_} is {reason}")
        self.stands(self.name, "Reconcile", "Succeeded")
        return self.says_of(type_)[1]


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Left(served, bucket, tmp_path)


def metrics(operator):
    return operator.manager.metrics.exposition().decode()


def test_what_forced_deletions_left_is_told_until_it_is_gone(scene):
    with scene.operator() as operator:
        scene.made()
        assert {"ObjectsLeft", "PrefixesUnnamed"}.isdisjoint(scene.conditions())
        scene.leave(scene.future, "a", "b")
        until = f"{scene.future:%Y-%m-%dT%H:%M:%SZ}"
        assert f"2 objects below {scene.dead}/ are locked until {until}." in scene.looked("Locked1")
        assert "PrefixesUnnamed" not in scene.conditions(), "it is known whose it was"
        assert f'rootcellar_bucket_left_objects{{bucket="{scene.name}"}} 2.0' in metrics(operator)

        scene.take(f"{scene.dead}/a", f"{scene.dead}/b")
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: scene.says_of("ObjectsLeft") is None, "nothing is left")
        assert scene.records() == []
        scene.leave(scene.future, "a")
        scene.delete(scene.name)
        scene.says(f"{scene.dead}/ lies in the bucket {scene.name} (1 objects below", f"until {until}")
        scene.take(f"{scene.dead}/a")
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
        wait_until(lambda: scene.name not in metrics(operator), "it is counted no more")


def test_what_was_left_is_deleted_when_its_lock_has_ended_and_somebody_asks(scene):
    neighbour = f"{scene.dead}--b/x"
    with scene.operator():
        scene.made()
        scene.leave(scene.past, "a", "b")
        scene.put(neighbour)
        told = scene.looked("MayGo1Of1")
        assert "which has passed" in told
        assert f"{COLLECT}=true" in told
        assert len(scene.lies()) == 3, "nobody has asked"
        scene.annotate(scene.name, **{COLLECT: "true"})
        wait_until(lambda: scene.lies() == [neighbour], "exactly what was left is deleted")
        wait_until(lambda: scene.says_of("ObjectsLeft") is None, "and told no more")
        assert scene.records() == []
        assert scene.conditions()["PrefixesUnnamed"] == ("True", "Unnamed1"), "which is never deleted"


def has_an_entry_elsewhere(scene):
    scene.entry(scene.dead, "another")


def has_a_source_entry(scene):
    scene.entry(f"source-{scene.dead}", "another")


def is_used_by_another_cluster(scene):
    Marks(scene.ours()).claim(Claim("another cluster", created=False, since=scene.now))


def is_locked(scene):
    ledger.keep(scene.ours(), ledger.Left(prefix=scene.dead, locked=1, since=scene.now, latest=scene.future))


def has_no_date(scene):
    """A legal hold, which only who put it can lift."""
    ledger.keep(scene.ours(), ledger.Left(prefix=scene.dead, locked=1, since=scene.now))


def was_written_to_since(scene):
    ledger.keep(scene.ours(), ledger.Left(prefix=scene.dead, locked=1, since=scene.past, latest=scene.past))


def is_held(scene):
    hold = Hold(nonce="ab12", key="v2/x", reason="the audit", by="a test", created_at=scene.now)
    body = s3_store(replace(scene.there, name=scene.name), f"{scene.dead}/etcd-main")
    documents.put_once(body, keys.hold("ab12"), hold)


@pytest.mark.parametrize(
    "lives",
    [
        has_an_entry_elsewhere,
        has_a_source_entry,
        is_used_by_another_cluster,
        is_locked,
        has_no_date,
        was_written_to_since,
        is_held,
    ],
)
def test_what_may_still_be_wanted_is_not_deleted(scene, lives):
    with scene.operator() as operator:
        scene.made()
        scene.leave(scene.past, "a")
        lives(scene)
        scene.annotate(scene.name, **{COLLECT: "true"})
        wait_until(lambda: scene.says_of("ObjectsLeft"), "it was looked at")
        operator.rest()
        assert f"{scene.dead}/a" in scene.lies()
        assert scene.records() == [scene.dead]


def test_prefixes_without_an_entry_are_told_and_left_alone(scene):
    entry = f"shoot--{scene.namespace}--a--1"
    with scene.operator() as operator:
        scene.made()
        scene.entry(entry, scene.name)
        scene.entry(f"shoot--{scene.namespace}--away--1", "another bucket")
        others = [f"shoot--{scene.namespace}--away--1/x", "shoot--nobody--1/x", "stray"]
        scene.put(f"{entry}/x", *others)
        told = scene.looked("Unnamed3", "PrefixesUnnamed")
        assert f"names shoot--nobody--1/, shoot--{scene.namespace}--away--1/, stray." in told
        assert f'rootcellar_bucket_unnamed_prefixes{{bucket="{scene.name}"}} 3.0' in metrics(operator)
        assert len(scene.lies()) == 4
        scene.take(*others)
        scene.ask(scene.name, "reconcile")
        wait_until(lambda: scene.says_of("PrefixesUnnamed") is None, "told no more")


def test_a_record_that_cannot_be_read_harms_no_bucket(scene):
    with scene.operator() as operator:
        scene.made()
        scene.put("_rootcellar/left/shoot--x--1.json")
        scene.ask(scene.name, "reconcile")
        scene.stands(scene.name, "Reconcile", "Succeeded")
        operator.rest()
        (line,) = (each for each in operator.logged if each["event"] == "leftovers-unknown")
        assert "a record of a deletion that cannot be read" in line["error"]
