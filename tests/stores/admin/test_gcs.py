"""Buckets of fake-gcs-server, and what it lacks of a bucket's settings by a fake of our own."""

import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import AlreadyExistsError, ConfigError, LockedError
from rootcellar.stores.admin.gcs import GcsAdmin
from rootcellar.stores.admin.values import Aspect, BucketWish, Immutability, Outcome
from rootcellar.stores.gcs.options import GcsOptions
from testbed.gcs import GcsBucket
from testbed.server import unique
from tests.stores.admin.contract import WISH, Contract, Place
from tests.stores.clouds import Values, gcs_store
from tests.stores.fake_clouds import FakeGcsLocks, FakeService, as_json
from tests.stores.places import QUICK

DAY = timedelta(days=1)


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
        bucket = GcsBucket(unique("managed"), fake_gcs.endpoint)
        return Place(
            lambda: gcs_admin(bucket),
            lambda prefix: gcs_store(bucket, prefix),
            lambda: sorted(keys_in(bucket)),
        )


class FakeGcsManagement(FakeService):
    """One bucket with what fake-gcs-server lacks: public access prevention, retention and its lock, and the
    buckets of a project.  After Google's JSON API reference; never held against the real thing.
    """

    def __init__(self, *, ours=True):
        super().__init__()
        self.ours = ours
        self.bucket = None
        self.generation = 1
        self.meddle = 0  # changes by somebody else, each before one of ours

    def answer(self, method, path, query, headers, body):  # noqa: PLR0911 - one for each thing it knows
        said = json.loads(body) if body else {}
        if path == "/storage/v1/b":
            if method == "GET":
                listed = [self.bucket] if self.bucket and self.ours else []
                return as_json(200, {"items": listed} if listed else {})
            if self.bucket or not self.ours:
                return self._refused(409, "conflict")
            self.bucket = {"location": "US", **said}
            return self._told()
        if "/o" in path:
            return as_json(200, {"kind": "storage#objects"})
        if self.bucket is None:
            return self._refused(404, "notFound")
        if method in {"PATCH", "POST"}:
            return self._changed(query, said, lock=path.endswith("/lockRetentionPolicy"))
        return self._told()

    def _changed(self, query, said, *, lock):
        if self.meddle:
            self.meddle -= 1
            self.generation += 1
        if query["ifMetagenerationMatch"] != str(self.generation):
            return self._refused(412, "conditionNotMet")
        before = self.bucket.get("retentionPolicy") or {}
        if lock:
            before["isLocked"] = True
        for name, value in said.items():
            is_locked = name == "retentionPolicy" and before.get("isLocked")
            if is_locked and (not value or int(value["retentionPeriod"]) < int(before["retentionPeriod"])):
                return self._refused(403, "forbidden")
            self.bucket[name] = {**(self.bucket.get(name) or {}), **value} if value else None
        self.generation += 1
        return self._told()

    def _told(self):
        access = {"publicAccessPrevention": "inherited", **self.bucket.get("iamConfiguration", {})}
        said = {**self.bucket, "iamConfiguration": access, "metageneration": str(self.generation)}
        return as_json(200, said)

    @staticmethod
    def _refused(status, reason):
        error = {"code": status, "message": f"So said a fake: {reason}.", "errors": [{"reason": reason}]}
        return as_json(status, {"error": error})


@pytest.fixture
def fake():
    with FakeGcsManagement() as service:
        yield service


def admin_at(fake, **more):
    return gcs_admin(GcsBucket("managed", fake.endpoint), **more)


def test_a_bucket_is_made_where_it_was_wished_and_closed(fake):
    admin = admin_at(fake)
    wish = BucketWish(region="europe-west1")
    assert admin.create(wish) is Outcome.CREATED
    assert fake.bucket["iamConfiguration"] == {"uniformBucketLevelAccess": {"enabled": True}}
    assert fake.bucket["softDeletePolicy"] == {"retentionDurationSeconds": "0"}
    assert [change.aspect for change in admin.harden(wish, admin.look()).done] == [Aspect.PUBLIC_ACCESS]
    state = admin.look()
    assert (state.region, state.public_access_blocked) == ("europe-west1", True)
    assert fake.bucket["iamConfiguration"]["uniformBucketLevelAccess"] == {"enabled": True}


def test_somebody_elses_change_in_between_is_kept(fake):
    admin = admin_at(fake)
    admin.create(WISH)
    fake.meddle = 2
    admin.harden(BucketWish(versioning=True), admin.look())
    assert fake.meddle == 0
    assert admin.look().versioning is True


def test_retention_is_set_extended_locked_and_never_weakened(fake):
    admin = admin_at(fake)
    admin.create(WISH)
    for wanted in (
        Immutability(timedelta(hours=25)),
        Immutability(2 * DAY),
        Immutability(2 * DAY, locked=True),
    ):
        admin.harden(BucketWish(immutability=wanted), admin.look())
        assert admin.look().immutability == wanted
    told = admin.harden(BucketWish(immutability=Immutability(DAY), weaken=True), admin.look())
    assert [type(error) for error in told.refused] == [LockedError]
    admin.harden(BucketWish(immutability=Immutability(3 * DAY, locked=True)), admin.look())
    assert admin.look().immutability == Immutability(3 * DAY, locked=True)


def test_a_retention_that_is_not_locked_may_be_lifted(fake):
    admin = admin_at(fake)
    admin.create(WISH)
    admin.harden(BucketWish(immutability=Immutability(2 * DAY)), admin.look())
    admin.harden(BucketWish(weaken=True), admin.look())
    assert admin.look().immutability is None


def test_a_bucket_of_another_project_is_refused(fake):
    fake.ours = False
    with pytest.raises(AlreadyExistsError, match="in another project"):
        admin_at(fake).create(WISH)
    fake.bucket = {"location": "US"}
    with pytest.raises(AlreadyExistsError, match="in another project"):
        admin_at(fake).create(WISH)


def test_without_a_project_a_bucket_is_adopted_and_none_is_made(fake):
    with pytest.raises(ConfigError, match="in which project"):
        admin_at(fake, values={}).create(WISH)
    fake.bucket = {"location": "US"}
    assert admin_at(fake, values={}).create(WISH) is Outcome.ADOPTED


def test_the_project_is_the_service_accounts(fake):
    told = {"googleCredentials": json.dumps({"type": "service_account", "project_id": "seed"})}
    assert admin_at(fake, values=told).create(WISH) is Outcome.CREATED
    assert [query["project"] for method, _, query, _, _ in fake.asked if method == "POST"] == ["seed"]


def test_what_retention_keeps_is_told_with_its_time():
    until = datetime.now(UTC).replace(microsecond=0) + DAY
    kept = {"mode": "Unlocked", "retainUntilTime": until.isoformat()}
    with FakeGcsLocks() as locks:
        locks.make("shoot--a/x")
        locks.make("shoot--a/y", retention=kept)
        locks.make("shoot--a/z", temporaryHold=True)
        listed = locks.answer

        def answer(method, path, query, headers, body):
            if path.endswith("/o"):
                return as_json(200, {"kind": "storage#objects", "items": list(locks.objects.values())})
            return listed(method, path, query, headers, body)

        locks.answer = answer
        done = gcs_admin(GcsBucket("bucket", locks.endpoint)).delete_objects("shoot--a")
        assert (done.complete, done.gone, done.deleted, done.locked) == (True, False, 1, 2)
        assert (done.earliest, done.latest) == (until, until)
