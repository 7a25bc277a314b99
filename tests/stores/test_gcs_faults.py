"""GcsStore between a broken network and fake-gcs-server: what heals, what does not, and what is left."""

import hashlib
import itertools
import json

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
)
from rootcellar.stores import Backoff, Create, ReplaceIf, RetryingStore
from testbed.gcs_fake_uploads import FakeUploads
from tests.stores.breaking import PATIENT, probed
from tests.stores.clouds import gcs_store
from tests.stores.conformance import content
from tests.stores.places import QUICK, SMALL_PART, keys_of
from tests.stores.proxy import Answer, CutDown, CutUp, Proxy, Reset, Stall

FOREVER = float("inf")
_prefixes = itertools.count(1)


def refusal(status, reason, message="so said a test"):
    error = {"code": status, "message": message, "errors": [{"reason": reason}]}
    body = json.dumps({"error": error}).encode()
    return Answer(
        b"HTTP/1.1 %d Test\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)
    )


class Line:
    """A store behind a proxy, and the same one reached directly."""

    def __init__(self, server, bucket, proxy):
        self.server = server
        self.bucket = bucket
        self.proxy = proxy
        self.prefix = f"line-{next(_prefixes)}"
        self.store = self.through()
        self.direct = gcs_store(bucket, self.prefix)

    def through(self, **options):
        return gcs_store(self.bucket, self.prefix, endpoint=self.proxy.endpoint, **options)

    def path(self, key):
        return f"/storage/v1/b/{self.bucket.name}/o/{self.prefix}%2F{key}".encode()

    def unfinished(self):
        return [session for session in self.server.unfinished() if self.prefix.encode() in session.metadata]

    def holds(self, key, body):
        found = b"".join(self.direct.get(key))
        return hashlib.sha256(found).digest() == hashlib.sha256(body).digest()


@pytest.fixture(scope="module")
def server(fake_gcs):
    with FakeUploads(fake_gcs) as front:
        yield front


@pytest.fixture(scope="module")
def shared(server):
    return server.new_bucket()


@pytest.fixture
def line(server, shared):
    with Proxy(server.port) as proxy:
        yield Line(server, shared, proxy)


BREAKS = [
    CutUp(0),
    CutUp(3_000),
    CutUp(2_000_000),
    CutDown(0),
    CutDown(20),
    Reset(),
    refusal(429, "rateLimitExceeded"),
    refusal(403, "userRateLimitExceeded"),
    refusal(500, "backendError"),
    refusal(409, "conflict"),
    Answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    Answer(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    Answer(b"HTTP/1.1 200 OK\r\nContent-"),
    Answer(b"this is no HTTP\r\n\r\n"),
]


def named(fault):
    return f"{type(fault).__name__} {getattr(fault, 'after', '')}{getattr(fault, 'data', b'')[9:12].decode()}"


# uploads


@pytest.mark.parametrize("fault", BREAKS, ids=named)
def test_a_small_put_survives(line, fault):
    body = content(3_000_000)
    line.proxy.on(b"uploadType=multipart", fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


@pytest.mark.parametrize("fault", BREAKS, ids=named)
@pytest.mark.parametrize("part", [b"bytes 5242880-10485759/", b"/15728739"])
def test_an_upload_goes_on_from_where_it_was_cut(line, part, fault):
    body = content(3 * SMALL_PART + 99)
    line.proxy.on(part, fault)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 1
    assert line.holds("key", body)
    assert line.unfinished() == []
    # The first part went once; of a cut one, only what the store did not have.
    assert line.proxy.seen.count(b"bytes 0-5242879/") == 1


def test_what_the_store_has_is_not_sent_again(line):
    body = content(2 * SMALL_PART + 99)
    line.proxy.on(b"bytes 5242880-10485759/", CutUp(3_000_000))
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 1
    assert line.holds("key", body)
    assert line.proxy.seen.count(b"bytes */") == 1
    rest = line.proxy.seen.partition(b"bytes */")[2]
    start = int(rest.partition(b"Content-Range: bytes ")[2].partition(b"-")[0])
    assert start % (256 << 10) == 0
    assert SMALL_PART + 2_000_000 < start <= SMALL_PART + 3_000_000


@pytest.mark.parametrize("fault", [CutUp(0), CutUp(100), CutDown(0), Reset(), BREAKS[6]], ids=named)
def test_beginning_an_upload_survives(line, fault):
    body = content(SMALL_PART + 99)
    line.proxy.on(b"uploadType=resumable", fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


@pytest.mark.parametrize("size", [5, SMALL_PART + 5])
def test_a_create_whose_answer_was_lost_has_won(line, size):
    line.proxy.on(b"uploadType=multipart", CutDown(0))
    line.proxy.on(b"-5242884/5242885", CutDown(0))
    said = line.store.put("key", [content(size)], condition=Create())
    assert line.proxy.fired == 1
    assert line.holds("key", content(size))
    assert (said.key, said.size, said.etag) == ("key", size, line.direct.stat("key").etag)


def test_a_replacement_whose_answer_was_lost_has_won(line):
    old = line.direct.put("key", [b"old"])
    line.proxy.on(b"uploadType=multipart", CutDown(0))
    said = line.store.put("key", [b"new"], condition=ReplaceIf(old.etag))
    assert line.proxy.fired == 1
    assert said.etag == line.direct.stat("key").etag != old.etag


def test_a_create_that_never_arrived_loses_against_another(line):
    line.direct.put("key", [b"new"])
    line.proxy.on(b"uploadType=multipart", Reset())
    with pytest.raises(AlreadyExistsError):
        line.store.put("key", [b"new"], condition=Create())
    assert line.proxy.fired == 1


def test_an_upload_that_the_store_has_forgotten_is_not_begun_again(line):
    """Its bytes are gone: only whoever has them can put again."""
    line.proxy.on(b"bytes 5242880-", refusal(410, "gone"))
    with pytest.raises(StoreError, match="the upload has ended") as caught:
        line.store.put("key", iter([content(2 * SMALL_PART)]))
    assert not caught.value.retryable
    assert keys_of(line.direct.list()) == []
    assert line.unfinished() == []


def test_a_put_that_cannot_be_mended_is_told_and_cancelled(line):
    line.proxy.on(b"Content-Range: bytes ", refusal(500, "backendError"), times=FOREVER)
    with pytest.raises(TransientError, match="an error inside the store"):
        line.store.put("key", iter([content(3 * SMALL_PART)]))
    assert line.unfinished() == []
    assert keys_of(line.direct.list()) == []


def test_an_upload_that_cannot_be_cancelled_is_told(line):
    line.proxy.on(b"bytes 5242880-", refusal(403, "forbidden"), times=FOREVER)
    line.proxy.on(b"DELETE ", Reset(), times=FOREVER)
    with pytest.raises(DeniedError, match="access denied") as caught:
        line.store.put("key", iter([content(2 * SMALL_PART)]))
    assert any("left behind" in note for note in caught.value.__notes__)
    assert len(line.unfinished()) == 1
    assert keys_of(line.direct.list()) == []


def test_bytes_that_were_damaged_on_the_way_are_not_kept(line):
    said = {
        "name": f"{line.prefix}/key",
        "size": "4",
        "updated": "2026-11-21T18:00:00Z",
        "crc32c": "AAAAAA==",
    }
    body = json.dumps({**said, "generation": "17"}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    line.proxy.on(b"uploadType=multipart", Answer(head + body))
    with pytest.raises(StoreError, match="damaged on the way"):
        line.store.put("key", [b"body"])
    assert b"DELETE " + line.path("key") + b"?generation=17" in line.proxy.seen


def test_a_silent_store_is_left_after_the_timeout(line):
    store = line.through(timeout=0.5, backoff=PATIENT)  # a busy server takes longer at times, too
    line.proxy.on(b"uploadType=multipart", Stall(), times=2)
    store.put("key", [b"body"])
    assert line.proxy.fired == 2
    assert line.holds("key", b"body")


def test_a_throttled_put_gives_up_in_the_end(line):
    store = line.through(backoff=Backoff(attempts=3, throttled_base=0.01))
    line.proxy.on(b"uploadType=multipart", refusal(429, "rateLimitExceeded"), times=FOREVER)
    with pytest.raises(ThrottledError, match="asks to slow down"):
        store.put("key", [b"body"])
    assert line.proxy.fired == 3


# probes


@pytest.mark.parametrize(
    "fault",
    [refusal(500, "backendError"), refusal(429, "rateLimitExceeded"), CutDown(0)],
    ids=["error", "slow", "lost"],
)
def test_a_probe_survives_one_break_of_each_request_and_leaves_no_object(line, fault):
    found, broken = probed(line.store, line.proxy, fault)
    assert found == line.direct.probe()
    assert broken == 10
    assert keys_of(line.direct.list()) == []


# downloads


@pytest.mark.parametrize("after", [300, 70_000, 2_000_000])
def test_a_broken_download_goes_on_where_it_broke(line, after):
    body = content(7_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET " + line.path("key"), CutDown(after), times=3)
    assert b"".join(RetryingStore(line.store, QUICK).get("key")) == body
    assert line.proxy.fired == 3
    if after > 300:
        assert line.proxy.seen.count(b"Range: bytes=") == 3
        assert line.proxy.seen.count(b"&generation=") == 3


def test_a_broken_ranged_download_gives_its_bytes_and_no_others(line):
    body = content(7_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET " + line.path("key"), CutDown(1_000_000), times=3)
    assert b"".join(line.store.get("key", start=1_000_001, end=6_000_007)) == body[1_000_001:6_000_007]
    assert line.proxy.fired == 3


def test_a_download_that_never_gets_on_fails_in_the_end(line):
    line.direct.put("key", [content(3_000_000)])
    line.proxy.on(b"GET " + line.path("key"), CutDown(1_500_000))
    line.proxy.on(b"GET " + line.path("key"), Reset(), times=FOREVER)
    with pytest.raises(TransientError, match="no connection"):
        list(line.store.get("key"))
    assert line.proxy.fired == 1 + QUICK.attempts - 1


def test_bytes_of_two_objects_are_never_mixed(line):
    line.direct.put("key", [b"old!" * 1_000_000])
    line.proxy.on(b"GET " + line.path("key"), CutDown(2_000_000))
    chunks = line.store.get("key")
    read = [next(chunks)]
    line.direct.put("key", [b"new!" * 1_000_000])
    with pytest.raises(NotFoundError, match="replaced by another object"):
        read.extend(chunks)
    assert set(b"".join(read)) == set(b"old!")


# listings and refusals


def test_a_listing_without_its_body_is_not_believed(line):
    line.direct.put("key", [b"x"])
    line.proxy.on(b"maxResults=", Answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"))
    with pytest.raises(TransientError, match="cannot be read"):
        list(line.store.list())
    assert keys_of(line.store.list()) == ["key"]


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (404, "notFound", "The specified bucket does not exist.", NotFoundError),
        (401, "authError", "Invalid Credentials", DeniedError),
        (403, "retentionPolicyNotMet", "Object is subject to bucket's retention policy", LockedError),
        (403, "objectUnderActiveHold", "Object is under active Temporary hold", LockedError),
        (429, "rateLimitExceeded", "The rate limit was exceeded.", ThrottledError),
        (503, "backendError", "We encountered an internal error.", ThrottledError),
        (400, "invalid", "Invalid argument.", StoreError),
    ],
)
def test_a_refusal_is_told_as_what_it_is(line, status, reason, message, error):
    line.proxy.on(b"DELETE ", refusal(status, reason, message))
    with pytest.raises(StoreError) as caught:
        line.store.delete("key")
    assert type(caught.value) is error
    assert reason in str(caught.value.__cause__)
