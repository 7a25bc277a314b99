"""S3 buckets: settings, locks, versions, refusals in answers that succeed, processes killed on the way."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotEmptyError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores import Backoff, Retention
from rootcellar.stores.admin import codes
from rootcellar.stores.admin.s3.documents import PLAIN
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketWish, Immutability, Outcome
from tests.stores.admin.contract import SEED, WISH
from tests.stores.admin.test_s3 import keys_in, s3_admin, unmade
from tests.stores.places import Keys, s3_store
from tests.stores.proxy import Answer, CutDown, Proxy, Reset, refusal
from tests.stores.scripts import run_script

DAY = timedelta(days=1)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
IMPATIENT = Backoff(attempts=2, deadline=10, base=0.01, throttled_base=0.01, cap=0.02)
_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def shared(seaweed):
    return seaweed.new_bucket()


@pytest.fixture(scope="module")
def locked(seaweed):
    return seaweed.new_bucket(object_lock=True)


@pytest.fixture
def prefix():
    return f"shoot--{next(_prefixes)}"


# settings


def test_hardening_keeps_what_others_have_set(seaweed_tls):
    bucket = seaweed_tls.new_bucket()
    client, admin = bucket.client(), s3_admin(bucket)
    rule = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}
    client.put_bucket_lifecycle_configuration(Bucket=bucket.name, LifecycleConfiguration={"Rules": [rule]})
    statement = {
        "Sid": "Theirs",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteBucket",
        "Resource": f"arn:aws:s3:::{bucket.name}",
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    client.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps(policy))
    done = admin.harden(WISH, admin.look())
    assert {change.aspect for change in done.done} == {
        Aspect.TRANSPORT,
        Aspect.ENCRYPTION,
        Aspect.LEFTOVERS,
    }
    assert done.unknown == (Aspect.PUBLIC_ACCESS,)  # SeaweedFS has none
    rules = client.get_bucket_lifecycle_configuration(Bucket=bucket.name)["Rules"]
    assert rule in rules
    assert {each["ID"] for each in rules} == {"theirs", "rootcellar-abort-uploads"}
    found = json.loads(client.get_bucket_policy(Bucket=bucket.name)["Policy"])
    assert [each["Sid"] for each in found["Statement"]] == ["Theirs", PLAIN, "RootcellarDenyOldTls"]
    state = admin.look()
    assert (state.encrypted, state.encrypted_transport) == (True, True)
    assert state.uploads_aborted_after == 7 * DAY


def test_over_plain_http_nobody_is_locked_out(shared):
    state = s3_admin(shared).look()
    assert state.encrypted_transport is UNKNOWN
    assert "not encrypted" in state.unsaid[Aspect.TRANSPORT]


def test_object_lock_is_set_changed_and_never_loosened(seaweed):
    bucket = unmade(seaweed)
    admin = s3_admin(bucket)
    wish = BucketWish(immutability=Immutability(4 * DAY))
    assert admin.create(wish) is Outcome.CREATED
    admin.claim(SEED)
    admin.harden(wish, admin.look())
    state = admin.look()
    assert (state.versioning, state.immutability) == (True, Immutability(4 * DAY))
    strong = BucketWish(immutability=Immutability(6 * DAY, locked=True))
    admin.harden(strong, admin.look())
    assert admin.look().immutability == strong.immutability
    told = admin.harden(wish, admin.look())
    assert [type(error) for error in told.refused] == [LockedError]
    assert admin.look().immutability == strong.immutability
    admin.delete_bucket()  # the mark was there before the lock
    assert admin.look() is None


def test_a_bucket_without_object_lock_gets_it_with_versions(seaweed):
    bucket = seaweed.new_bucket()
    admin = s3_admin(bucket)
    wish = BucketWish(immutability=Immutability(2 * DAY))
    admin.harden(wish, admin.look())
    assert (admin.look().versioning, admin.look().immutability) == (True, wish.immutability)


def test_a_store_without_object_lock_refuses_rather_than_ignores(plain_bucket):
    admin = s3_admin(plain_bucket)
    told = admin.harden(BucketWish(immutability=Immutability(DAY)), admin.look())
    assert [type(error) for error in told.refused] == [UnsupportedError]
    assert Aspect.IMMUTABILITY in told.unknown
    assert codes.codes(told.refused[0]) == (codes.CONFIGURATION,)


# whose it is


def test_somebody_elses_name_is_an_error_with_a_hint(seaweed):
    bucket = unmade(seaweed)
    with Proxy(seaweed.port) as proxy:
        proxy.on(f"PUT /{bucket.name}".encode(), refusal(409, "BucketAlreadyExists"))
        with pytest.raises(AlreadyExistsError, match="somebody else has a bucket of this name") as refused:
            s3_admin(bucket, endpoint=proxy.endpoint).create(WISH)
    assert "whose it is" in refused.value.hint


def test_somebody_elses_open_bucket_is_not_adopted(shared, seaweed):
    listed = b"<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>"
    with Proxy(seaweed.port) as proxy:
        proxy.on(b"GET / HTTP", Answer(HEAD % len(listed) + listed))
        with pytest.raises(AlreadyExistsError, match="another account's"):
            s3_admin(shared, endpoint=proxy.endpoint).create(WISH)


def test_who_may_not_list_buckets_may_adopt_the_one_he_was_given(shared, seaweed):
    with Proxy(seaweed.port) as proxy:
        proxy.on(b"GET / HTTP", refusal(403, "AccessDenied"))
        assert s3_admin(shared, endpoint=proxy.endpoint).create(WISH) is Outcome.ADOPTED


def test_a_bucket_made_by_a_request_whose_answer_was_lost_counts_as_made(seaweed):
    bucket = unmade(seaweed)
    with Proxy(seaweed.port) as proxy:
        proxy.on(f"PUT /{bucket.name}".encode(), CutDown(0))
        assert s3_admin(bucket, endpoint=proxy.endpoint).create(WISH) is Outcome.CREATED


@pytest.mark.parametrize(
    ("keys", "said", "code"),
    [
        (lambda bucket: Keys(bucket, "wrong"), "the signature does not match", codes.UNAUTHORIZED),
        (
            lambda bucket: Keys(replace(bucket, access_key="nobody")),
            "the store does not know the access key",
            codes.UNAUTHENTICATED,
        ),
    ],
)
def test_wrong_keys_are_denied_with_the_same_code_by_every_call(shared, keys, said, code):
    admin = s3_admin(shared, keys=keys(shared))
    for call in (admin.look, lambda: admin.create(WISH), lambda: admin.delete_objects("a")):
        with pytest.raises(DeniedError, match=said) as refused:
            call()
        assert codes.codes(refused.value) == (code,)


def test_where_a_bucket_lets_nobody_in_it_may_be_another_account_s(shared, seaweed):
    with Proxy(seaweed.port) as proxy:
        proxy.on(f"HEAD /{shared.name}".encode(), refusal(403, "AccessDenied"))
        proxy.on(f"GET /{shared.name}".encode(), refusal(403, "AccessDenied"))
        with pytest.raises(DeniedError, match="or the bucket is another account's") as refused:
            s3_admin(shared, endpoint=proxy.endpoint).look()
    assert codes.codes(refused.value) == (codes.UNAUTHORIZED,)


# deletion


def test_versions_and_delete_markers_go_and_the_siblings_stay(locked, prefix):
    store = s3_store(locked, prefix)
    sibling = s3_store(locked, f"{prefix}--b")
    for number in range(3):
        store.put("v2/x", [b"%d" % number])
        sibling.put("v2/x", [b"%d" % number])
    store.delete("v2/x")
    done = s3_admin(locked).delete_objects(prefix)
    assert (done.gone, done.deleted) == (True, 4)
    assert list(store.versions()) == []
    assert len(list(sibling.versions())) == 3


def test_what_is_locked_is_told_with_its_time_and_the_rest_goes(locked, prefix):
    store = s3_store(locked, prefix)
    first = datetime.now(UTC).replace(microsecond=0) + DAY
    for number in range(4):
        store.put(f"v2/{number}", [b"x"])
    store.set_retention("v2/1", Retention(first + DAY))
    store.set_retention("v2/2", Retention(first))
    held = store.put("v2/held", [b"x"]).version
    store.set_retention("v2/held", Retention(legal_hold=True), version=held)
    store.delete("v2/2")  # hidden, and still there
    admin = s3_admin(locked)
    done = admin.delete_objects(prefix)
    assert (done.complete, done.gone, done.locked, done.failures) == (True, False, 3, 0)
    assert (done.earliest, done.latest) == (first, first + DAY)
    assert done.deleted == 3
    assert f"{prefix}/" in set(admin.prefixes())
    with pytest.raises(NotEmptyError):
        admin.delete_bucket()
    store.set_retention("v2/held", Retention(), version=held)
    assert admin.delete_objects(prefix, go_on=done).deleted == 4


def test_a_folder_of_hidden_versions_alone_is_a_prefix(locked, prefix):
    store = s3_store(locked, prefix)
    store.put("x", [b"1"])
    store.delete("x")
    assert list(store.list()) == []
    assert f"{prefix}/" in set(s3_admin(locked).prefixes())


def test_more_than_a_batch_goes(shared, prefix):
    store = s3_store(shared, prefix)
    client = shared.client()
    for number in range(1100):
        client.put_object(Bucket=shared.name, Key=f"{prefix}/{number:04}", Body=b"")
    told = []
    done = s3_admin(shared).delete_objects(prefix, progress=told.append)
    assert (done.gone, done.deleted) == (True, 1100)
    assert [each.deleted for each in told] == [1000, 1100]
    assert list(store.list()) == []


def test_unfinished_uploads_are_aborted(shared, prefix):
    client = shared.client()
    for key in (f"{prefix}/v2/x", f"{prefix}--b/v2/x"):
        client.create_multipart_upload(Bucket=shared.name, Key=key)
    assert s3_admin(shared).delete_objects(prefix).gone
    left = client.list_multipart_uploads(Bucket=shared.name).get("Uploads", [])
    assert [each["Key"] for each in left if each["Key"].startswith(prefix)] == [f"{prefix}--b/v2/x"]


def test_a_key_that_an_answer_refuses_is_told_and_not_taken_for_gone(shared, seaweed, prefix, monkeypatch):
    monkeypatch.setattr("rootcellar.stores.admin.deletion.ROUNDS", 3)
    store = s3_store(shared, prefix)
    for name in ("a", "b"):
        store.put(name, [b"x"])
    body = (
        f"<DeleteResult><Deleted><Key>{prefix}/a</Key></Deleted><Error><Key>{prefix}/b</Key>"
        "<Code>MalformedKey</Code><Message>So said a test.</Message></Error></DeleteResult>"
    ).encode()
    told = []
    with Proxy(seaweed.port) as proxy:
        proxy.always(lambda said: Answer(HEAD % len(body) + body) if b"?delete" in said[:200] else None)
        admin = s3_admin(shared, endpoint=proxy.endpoint)
        with pytest.raises(StoreError, match="after 3 rounds of deleting there is still more"):
            admin.delete_objects(prefix, progress=told.append)
    assert list(told[0].examples) == [f"{prefix}/b"]
    assert (told[0].deleted, told[0].failures) == (1, 1)
    assert len(list(store.list())) == 2


def test_a_slow_down_for_one_key_is_tried_again(shared, seaweed, prefix):
    store = s3_store(shared, prefix)
    store.put("a", [b"x"])
    body = (
        f"<DeleteResult><Error><Key>{prefix}/a</Key><Code>SlowDown</Code></Error></DeleteResult>"
    ).encode()
    with Proxy(seaweed.port) as proxy:
        proxy.on(b"?delete", Answer(HEAD % len(body) + body), times=2)
        assert s3_admin(shared, endpoint=proxy.endpoint).delete_objects(prefix).gone
        assert proxy.fired == 2


def test_an_answer_that_names_no_key_deletes_nothing(shared, seaweed, prefix):
    store = s3_store(shared, prefix)
    store.put("a", [b"x"])
    body = b"<DeleteResult></DeleteResult>"
    with Proxy(seaweed.port) as proxy:
        proxy.on(b"?delete", Answer(HEAD % len(body) + body), times=99)
        admin = s3_admin(shared, endpoint=proxy.endpoint, backoff=IMPATIENT)
        with pytest.raises(TransientError, match="not confirmed"):
            admin.delete_objects(prefix)


def test_where_nothing_may_be_deleted_that_is_the_answer(shared, seaweed, prefix):
    s3_store(shared, prefix).put("a", [b"x"])
    with Proxy(seaweed.port) as proxy:
        proxy.on(b"?delete", refusal(403, "AccessDenied"), times=99)
        with pytest.raises(DeniedError):
            s3_admin(shared, endpoint=proxy.endpoint).delete_objects(prefix)


@pytest.mark.parametrize("call", ["look", "delete_bucket", "empty"])
def test_a_network_that_is_away_is_no_bucket_gone(shared, seaweed, call):
    with Proxy(seaweed.port) as proxy:
        proxy.always(lambda _: Reset())
        admin = s3_admin(shared, endpoint=proxy.endpoint, backoff=IMPATIENT)
        with pytest.raises(TransientError) as away:
            getattr(admin, call)()
        assert codes.codes(away.value) == (codes.RETRYABLE_DEPENDENCIES,)


def test_somebody_who_answers_in_the_stores_place_does_not_make_a_bucket_gone(shared, seaweed):
    page = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with Proxy(seaweed.port) as proxy:
        proxy.always(lambda _: Answer(page))
        admin = s3_admin(shared, endpoint=proxy.endpoint, backoff=IMPATIENT)
        for call in (admin.look, admin.delete_bucket):
            with pytest.raises(TransientError):
                call()


def test_a_delete_whose_answer_was_lost_has_worked(seaweed):
    bucket = seaweed.new_bucket()
    with Proxy(seaweed.port) as proxy:
        proxy.on(f"DELETE /{bucket.name} ".encode(), CutDown(0))
        s3_admin(bucket, endpoint=proxy.endpoint).delete_bucket()
    assert s3_admin(bucket).look() is None


# processes killed on the way

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from rootcellar.stores import Bandwidth, DirectoryCredentials
    from rootcellar.stores.admin.opening import open_admin
    from rootcellar.stores.admin.s3 import admin as s3
    from rootcellar.stores.admin.s3.contents import Contents
    from rootcellar.stores.admin.values import BucketWish

    url, credentials, what, moment = sys.argv[1:]
    def dying(cls, name):
        real = getattr(cls, name)
        def once(*arguments):
            if moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            real(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        setattr(cls, name, once)
    admin = open_admin(url, credentials=DirectoryCredentials(Path(credentials)))
    if what == "create":
        dying(s3.S3Admin, "_make")
        admin.create(BucketWish())
    elif what == "objects":
        dying(Contents, "remove")
        admin.delete_objects("shoot--a", rate=Bandwidth(3))
    else:
        dying(s3.S3Admin, "_remove")
        admin.delete_bucket()
"""


@pytest.fixture
def killed(seaweed, tmp_path):
    """Runs a deed on a bucket in a process that is killed before or after its decisive request."""

    def run(bucket, what, moment):
        for name, value in (("accessKeyID", bucket.access_key), ("secretAccessKey", bucket.secret_key)):
            (tmp_path / name).write_text(value)
        url = f"s3://{bucket.name}?endpoint={bucket.endpoint}&region={bucket.region}"
        done = run_script(KILLED, url, tmp_path, what, moment)
        assert done.returncode == -9, done.stderr

    return run


def test_a_killed_creation_is_repeated(seaweed, killed):
    bucket = unmade(seaweed)
    killed(bucket, "create", "after")
    admin = s3_admin(bucket)
    assert admin.create(WISH) is Outcome.ADOPTED
    assert admin.claim(SEED) == SEED
    admin.delete_bucket()


def test_a_killed_deletion_is_repeated(seaweed, killed):
    bucket = seaweed.new_bucket()
    for number in range(5):
        s3_store(bucket, "shoot--a").put(f"{number}", [b"x"])
    s3_store(bucket, "shoot--a--b").put("x", [b"x"])
    killed(bucket, "objects", "after")
    assert len(keys_in(bucket)) == 3
    assert s3_admin(bucket).delete_objects("shoot--a").gone
    assert keys_in(bucket) == ["shoot--a--b/x"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_end_is_repeated(seaweed, killed, moment):
    bucket = unmade(seaweed)
    admin = s3_admin(bucket)
    admin.create(WISH)
    admin.claim(SEED)
    killed(bucket, "bucket", moment)
    if moment == "before":  # empty, and nobody's
        assert (admin.claims(), list(admin.prefixes())) == ((), [])
    admin.delete_bucket()
    assert admin.look() is None


# prefixes

NAMES = st.text("ab-.", min_size=1, max_size=4).filter(lambda name: name.strip(".") == name)


@pytest.fixture(scope="module")
def plain(rclone_s3):
    """A bucket without versions, its administration, and a client behind its back, for all examples."""
    bucket = rclone_s3.new_bucket()
    return bucket.name, s3_admin(bucket), bucket.client()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(others=st.lists(NAMES, max_size=4, unique=True), target=NAMES)
def test_no_prefix_touches_another(plain, others, target):
    name, admin, client = plain
    root = f"property-{next(_prefixes)}"
    keys = {f"{root}/{each}/{tail}" for each in [*others, target] for tail in ("v2/x", target)}
    for key in keys:
        client.put_object(Bucket=name, Key=key, Body=b"")
    assert admin.delete_objects(f"{root}/{target}").gone
    listed = client.list_objects_v2(Bucket=name, Prefix=f"{root}/").get("Contents", [])
    below = f"{root}/{target}/"
    assert {each["Key"] for each in listed} == {key for key in keys if not key.startswith(below)}
