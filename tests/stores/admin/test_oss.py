"""OSS through its S3 interface: a fake in front of SeaweedFS, which knows no locks and no versions."""

from datetime import timedelta

import pytest

from rootcellar.errors import UnsupportedError
from rootcellar.stores import oss
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketWish, Immutability, Outcome
from tests.stores.admin.contract import SEED, WISH
from tests.stores.admin.test_s3 import keys_in, s3_admin, unmade
from tests.stores.fake_oss import FakeOss
from tests.stores.places import s3_store


@pytest.fixture
def fake(seaweed):
    with FakeOss(seaweed) as fake:
        yield fake


def test_a_bucket_lives_and_ends(seaweed, fake):
    bucket = unmade(seaweed)
    reached = {"endpoint": fake.endpoint, "scheme": "oss", "create_header": oss.FORBID_OVERWRITE}
    admin = s3_admin(bucket, **reached)
    assert admin.url == f"oss://{bucket.name}"
    assert admin.create(WISH) is Outcome.CREATED
    assert admin.create(WISH) is Outcome.ADOPTED
    assert admin.claim(SEED) == SEED
    store = s3_store(bucket, **reached)
    for key in ("shoot--a/v2/x", "shoot--a--b/v2/x"):
        store.put(key, [b"x"])
    assert admin.delete_objects("shoot--a").gone
    assert [key for key in keys_in(bucket) if not key.startswith("_")] == ["shoot--a--b/v2/x"]
    assert admin.empty().gone
    admin.delete_bucket()
    assert admin.look() is None


def test_a_lock_that_cannot_be_set_is_refused_and_not_forgotten(seaweed, fake):
    bucket = seaweed.new_bucket()
    admin = s3_admin(bucket, endpoint=fake.endpoint, scheme="oss")
    state = admin.look()
    assert state.immutability is UNKNOWN
    told = admin.harden(BucketWish(immutability=Immutability(timedelta(days=2))), state, dry_run=True)
    assert [type(error) for error in told.refused] == [UnsupportedError]
    assert Aspect.IMMUTABILITY in told.unknown
