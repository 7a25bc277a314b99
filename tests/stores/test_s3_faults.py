"""S3Store between a broken network and a real server: what heals, what does not, and what is left behind."""

import hashlib
import itertools
import re
from datetime import timedelta

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores import Backoff, Create, ReplaceIf, RetryingStore
from rootcellar.stores.s3.options import Encryption
from tests.stores.breaking import PATIENT, probed
from tests.stores.conformance import content, put_all
from tests.stores.places import QUICK, SMALL_PART, keys_of, s3_store
from tests.stores.proxy import Answer, CutDown, CutUp, Proxy, Reset, Stall, refusal

FOREVER = float("inf")
HEADLESS = Answer(b"HTTP/1.1 200 OK\r\nContent-")
EMPTY = Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
_prefixes = itertools.count(1)


class Line:
    """A store behind a proxy, and the same one reached directly."""

    def __init__(self, bucket, proxy):
        self.bucket = bucket
        self.proxy = proxy
        self.prefix = f"line-{next(_prefixes)}"
        self.store = self.through()
        self.direct = s3_store(bucket, self.prefix)

    def through(self, **options):
        return s3_store(self.bucket, self.prefix, endpoint=self.proxy.endpoint, **options)

    def path(self, key):
        return f"/{self.bucket.name}/{self.prefix}/{key}".encode()

    def uploads(self):
        client = self.bucket.client()
        found = client.list_multipart_uploads(Bucket=self.bucket.name, Prefix=self.prefix)
        return [upload["Key"] for upload in found.get("Uploads", [])]

    def holds(self, key, body):
        found = b"".join(self.direct.get(key))
        return hashlib.sha256(found).digest() == hashlib.sha256(body).digest()


@pytest.fixture(scope="module")
def shared(seaweed):
    return seaweed.new_bucket()


@pytest.fixture(scope="module")
def shared_plain(rclone_s3):
    return rclone_s3.new_bucket()


@pytest.fixture
def line(seaweed, shared):
    with Proxy(seaweed.port) as proxy:
        yield Line(shared, proxy)


@pytest.fixture
def plain_line(rclone_s3, shared_plain):
    with Proxy(rclone_s3.port) as proxy:
        yield Line(shared_plain, proxy)


BREAKS = [
    CutUp(0),
    CutUp(3_000),
    CutUp(2_000_000),
    CutDown(0),
    CutDown(20),
    Reset(),
    refusal(503, "SlowDown"),
    refusal(500, "InternalError"),
    refusal(400, "RequestTimeout"),
    refusal(400, "BadDigest"),
    refusal(409, "OperationAborted"),
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
    line.proxy.on(b"PUT " + line.path("key"), fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


@pytest.mark.parametrize("fault", BREAKS, ids=named)
def test_one_broken_part_is_sent_again_and_no_other(line, fault):
    body = content(3 * SMALL_PART + 99)
    line.proxy.on(b"partNumber=2", fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)
    assert line.uploads() == []
    sent = [line.proxy.seen.count(f"partNumber={number} ".encode()) for number in (1, 2, 3, 4)]
    assert sent == [1, 3, 1, 1]


@pytest.mark.parametrize(
    "fault", [CutUp(0), CutUp(100), CutDown(0), Reset(), refusal(503, "SlowDown")], ids=named
)
@pytest.mark.parametrize("request_line", [b"?uploads", b"?uploadId="])
def test_beginning_and_completing_an_upload_survive(line, request_line, fault):
    body = content(SMALL_PART + 99)
    line.proxy.on(b"POST " + line.path("key") + request_line, fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


def test_a_completion_that_fails_inside_a_200_is_repeated(line):
    body = content(SMALL_PART + 99)
    line.proxy.on(b"POST " + line.path("key") + b"?uploadId=", refusal(200, "InternalError"), times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


def test_a_completion_whose_answer_was_lost_is_known_by_its_mark(plain_line):
    """This server has forgotten the upload when it is asked again."""
    body = content(SMALL_PART + 99)
    plain_line.proxy.on(b"POST " + plain_line.path("key") + b"?uploadId=", CutDown(0))
    said = plain_line.store.put("key", iter([body]))
    assert plain_line.proxy.fired == 1
    assert plain_line.holds("key", body)
    assert said.etag == plain_line.direct.stat("key").etag


@pytest.mark.parametrize("size", [5, SMALL_PART + 5])
def test_a_create_whose_answer_was_lost_has_won(line, size):
    """The second attempt is refused, by the object that the first has made."""
    line.store.probe()
    for verb in (
        b"PUT " + line.path("key") + b"?x-id=PutObject",
        b"POST " + line.path("key") + b"?uploadId=",
    ):
        line.proxy.on(verb, CutDown(0))
    line.proxy.on(b"PUT " + line.path("key") + b" HTTP", CutDown(0))
    said = line.store.put("key", [content(size)], condition=Create())
    assert line.proxy.fired == 1
    assert line.holds("key", content(size))
    assert (said.key, said.size, said.etag) == ("key", size, line.direct.stat("key").etag)


def test_a_replacement_whose_answer_was_lost_has_won(line):
    old = line.direct.put("key", [b"old"])
    line.store.probe()
    line.proxy.on(b"PUT " + line.path("key"), CutDown(0))
    said = line.store.put("key", [b"new"], condition=ReplaceIf(old.etag))
    assert line.proxy.fired == 1
    assert said.etag == line.direct.stat("key").etag != old.etag


def test_a_replacement_of_what_is_gone_has_lost(line):
    """AWS says so with a 404."""
    line.store.probe()
    line.proxy.on(b"PUT " + line.path("key"), refusal(404, "NoSuchKey"))
    with pytest.raises(AlreadyExistsError, match="removed by another"):
        line.store.put("key", [b"new"], condition=ReplaceIf("gone"))
    assert line.proxy.fired == 1


def test_an_account_that_may_only_write_can_put_a_large_object(line):
    line.proxy.on(b"HEAD ", refusal(403, "AccessDenied"), times=FOREVER)
    said = line.store.put("key", iter([content(SMALL_PART + 1)]))
    assert line.proxy.fired == 1
    assert said.size == SMALL_PART + 1
    assert line.holds("key", content(SMALL_PART + 1))


def test_a_store_that_lost_bytes_is_not_believed(line):
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: "e"\r\nConnection: close\r\n'
    head += b"Last-Modified: Sat, 21 Nov 2026 09:00:00 GMT\r\n"

    def with_our_mark(seen):
        return head + re.search(rb"x-amz-meta-rootcellar-put: \w+", seen)[0] + b"\r\n\r\n"

    line.proxy.on(b"HEAD ", Answer(with_our_mark))
    with pytest.raises(StoreError, match=f"the store holds 7 of {SMALL_PART + 1} bytes"):
        line.store.put("key", iter([content(SMALL_PART + 1)]))


def test_a_create_that_never_arrived_loses_against_another(line):
    line.store.probe()
    line.direct.put("key", [b"new"])
    line.proxy.on(b"PUT " + line.path("key"), Reset())
    with pytest.raises(AlreadyExistsError):
        line.store.put("key", [b"new"], condition=Create())
    assert line.proxy.fired == 1


@pytest.mark.parametrize("pattern", [b"partNumber=1", b"partNumber=3", b"?uploadId="])
def test_a_put_that_cannot_be_mended_is_told_and_aborted(line, pattern):
    pattern = pattern if pattern.startswith(b"part") else b"POST " + line.path("key") + pattern
    line.proxy.on(pattern, refusal(500, "InternalError"), times=FOREVER)
    with pytest.raises(TransientError, match="an error inside the store"):
        line.store.put("key", iter([content(3 * SMALL_PART)]))
    assert line.uploads() == []
    assert keys_of(line.direct.list()) == []


def test_a_refused_part_is_not_sent_again(line):
    line.proxy.on(b"partNumber=2", refusal(403, "AccessDenied"), times=FOREVER)
    with pytest.raises(DeniedError, match="access denied"):
        line.store.put("key", iter([content(4 * SMALL_PART)]))
    assert line.proxy.fired == 1
    assert line.uploads() == []


def test_an_upload_that_cannot_be_aborted_is_told_and_removed_later(line):
    line.proxy.on(b"partNumber=2", refusal(403, "AccessDenied"), times=FOREVER)
    line.proxy.on(b"DELETE ", Reset(), times=FOREVER)
    with pytest.raises(DeniedError) as caught:
        line.store.put("key", iter([content(2 * SMALL_PART)]))
    assert any("left behind" in note for note in caught.value.__notes__)
    assert line.uploads() == [f"{line.prefix}/key"]
    line.proxy.clear()
    assert line.store.abort_leftovers(timedelta(hours=1)) == 0
    assert line.store.abort_leftovers(timedelta(0)) == 1
    assert line.uploads() == []


def test_a_silent_store_is_left_after_the_timeout(line):
    store = line.through(timeout=0.5, backoff=PATIENT)  # a busy server takes longer at times, too
    line.proxy.on(b"PUT " + line.path("key"), Stall(), times=2)
    store.put("key", [b"body"])
    assert line.proxy.fired == 2
    assert line.holds("key", b"body")


def test_a_throttled_put_gives_up_in_the_end(line):
    store = line.through(backoff=Backoff(attempts=3, throttled_base=0.01))
    line.proxy.on(b"PUT " + line.path("key"), refusal(503, "SlowDown"), times=FOREVER)
    with pytest.raises(ThrottledError, match="asks to slow down"):
        store.put("key", [b"body"])
    assert line.proxy.fired == 3


# probes


@pytest.mark.parametrize(
    ("fault", "left"),
    [(refusal(500, "InternalError"), 0), (refusal(503, "SlowDown"), 0), (CutDown(0), 1)],
    ids=["error", "slow", "lost"],
)
def test_a_probe_survives_one_break_of_each_request_and_leaves_no_object(line, fault, left):
    """An upload whose begin was answered to nobody is for `abort_leftovers`."""
    found, broken = probed(line.store, line.proxy, fault)
    assert found == line.direct.probe()
    assert broken == 11
    assert keys_of(line.direct.list()) == []
    assert len(line.uploads()) == left


def test_a_create_that_needs_a_probe_first_survives_a_break_in_it(line):
    """Its bytes come from a stream that nobody can rewind, and none of them is taken before the probe."""
    line.proxy.on(b"catalogue/probe/", refusal(500, "InternalError"), times=3)
    RetryingStore(line.store, QUICK).put("key", iter([b"body"]), condition=Create())
    assert line.proxy.fired == 3
    assert b"".join(line.direct.get("key")) == b"body"


# downloads


@pytest.mark.parametrize("after", [300, 70_000, 2_000_000])
def test_a_broken_download_goes_on_where_it_broke(line, after):
    body = content(7_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET " + line.path("key"), CutDown(after), times=3)
    store = RetryingStore(line.store, QUICK)
    assert b"".join(store.get("key")) == body
    assert line.proxy.fired == 3
    if after > 300:
        assert line.proxy.seen.count(b"Range: bytes=") == 3
        assert line.proxy.seen.count(b"If-Match: ") == 3


def test_a_broken_ranged_download_gives_its_bytes_and_no_others(line):
    body = content(7_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET " + line.path("key"), CutDown(1_000_000), times=3)
    assert b"".join(line.store.get("key", start=1_000_001, end=6_000_007)) == body[1_000_001:6_000_007]
    assert line.proxy.fired == 3


def test_a_download_that_gets_on_may_break_more_often_than_an_attempt_is_repeated(line):
    body = content(6_000_000)
    line.direct.put("key", [body])
    line.proxy.on(b"GET " + line.path("key"), CutDown(400_000), times=12)
    assert QUICK.attempts < 12
    assert b"".join(line.store.get("key")) == body
    assert line.proxy.fired == 12


def test_a_download_that_breaks_before_its_first_byte_is_for_the_caller_to_repeat(line):
    line.direct.put("key", [b"body"])
    line.proxy.on(b"GET " + line.path("key"), Reset(), times=2)
    with pytest.raises(TransientError, match="no connection"):
        list(line.store.get("key"))
    assert b"".join(RetryingStore(line.store, QUICK).get("key")) == b"body"
    assert line.proxy.fired == 2


def test_a_download_that_never_gets_on_fails_in_the_end(line):
    line.direct.put("key", [content(3_000_000)])
    line.proxy.on(b"GET " + line.path("key"), CutDown(1_500_000))
    line.proxy.on(b"GET " + line.path("key"), Reset(), times=FOREVER)
    with pytest.raises(TransientError):
        list(line.store.get("key"))
    assert line.proxy.fired == 1 + QUICK.attempts - 1


@pytest.mark.parametrize("kind", ["line", "plain_line"])
def test_bytes_of_two_objects_are_never_mixed(kind, request):
    """Also where the server ignores If-Match, and sends the rest of the other object."""
    line = request.getfixturevalue(kind)
    line.direct.put("key", [b"old!" * 1_000_000])
    line.proxy.on(b"GET " + line.path("key"), CutDown(2_000_000))
    chunks = line.store.get("key")
    first = next(chunks)
    line.direct.put("key", [b"new!" * 1_000_000])
    read = [first]
    with pytest.raises(NotFoundError, match="replaced by another object"):
        read.extend(chunks)
    assert set(b"".join(read)) == set(b"old!")


def test_an_object_deleted_under_the_reader_is_not_found(line):
    line.direct.put("key", [content(4_000_000)])
    line.proxy.on(b"GET " + line.path("key"), CutDown(2_000_000))
    chunks = line.store.get("key")
    next(chunks)
    line.direct.delete("key")
    with pytest.raises(NotFoundError):
        list(chunks)


def test_a_server_that_ignores_ranges_is_read_past(line):
    whole = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: "e"\r\nConnection: close\r\n\r\n0123456789'
    line.proxy.on(b"GET " + line.path("key"), Answer(whole), times=FOREVER)
    assert b"".join(line.store.get("key", start=3, end=6)) == b"345"
    assert b"".join(line.store.get("key", start=8)) == b"89"


# listing and deleting


def test_a_listing_goes_on_after_a_break(line):
    keys = [f"a/{number:04d}" for number in range(30)]
    put_all(line.direct, keys)
    for fault in (Reset(), CutDown(0), CutDown(500), refusal(503, "SlowDown"), HEADLESS, EMPTY):
        line.proxy.on(b"list-type=2", fault)
        assert keys_of(RetryingStore(line.store, QUICK).list()) == keys
    assert line.proxy.fired == 6


@pytest.mark.parametrize("fault", [HEADLESS, EMPTY], ids=["headless", "empty"])
def test_an_answer_that_lacks_its_body_is_never_believed(line, fault):
    """urllib3 and botocore take both for a success that says nothing."""
    line.direct.put("a", [b"x"])
    for attempt in (
        lambda: list(line.store.list()),
        lambda: list(line.store.versions()),
        lambda: line.store.abort_leftovers(timedelta(0)),
        lambda: line.store.retention("a"),
        line.store.probe,
    ):
        line.proxy.on(b" /" + line.bucket.name.encode(), fault, times=FOREVER)
        with pytest.raises(TransientError, match="cut short"):
            attempt()
        line.proxy.clear()
    line.proxy.on(b"?delete", fault)
    failed = line.store.delete_many(["a"])
    assert {key: type(error) for key, error in failed.items()} == {"a": TransientError}


def test_deleting_many_survives(line):
    keys = [f"a/{number:04d}" for number in range(30)]
    put_all(line.direct, keys)
    line.proxy.on(b"?delete", CutDown(0))
    line.proxy.on(b"?delete", Reset())
    assert RetryingStore(line.store, QUICK).delete_many(keys) == {}
    assert line.proxy.fired == 2
    assert keys_of(line.direct.list()) == []


def test_a_key_that_could_not_be_deleted_is_told_with_its_reason(line):
    put_all(line.direct, ["a", "b"])
    body = (
        f"<DeleteResult><Error><Key>{line.prefix}/a</Key><Code>AccessDenied</Code></Error>"
        f"<Error><Key>{line.prefix}/b</Key><Code>InternalError</Code></Error></DeleteResult>"
    ).encode()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    line.proxy.on(b"?delete", Answer(head + body))
    failed = RetryingStore(line.store, QUICK).delete_many(["a", "b"])
    assert {key: type(error) for key, error in failed.items()} == {"a": DeniedError}
    assert keys_of(line.direct.list()) == ["a"]


def test_a_server_without_delete_objects_is_asked_one_by_one(line):
    put_all(line.direct, ["a", "b", "c"])
    line.proxy.on(b"?delete", refusal(501, "NotImplemented"), times=FOREVER)
    assert line.store.delete_many(["a", "c", "never/there"]) == {}
    assert keys_of(line.direct.list()) == ["b"]


# what errors mean

MEANINGS = [
    (403, "AccessDenied", DeniedError, "a policy forbids"),
    (403, "InvalidAccessKeyId", DeniedError, "look at the access key"),
    (403, "SignatureDoesNotMatch", DeniedError, "look at the secret key"),
    (403, "RequestTimeTooSkewed", DeniedError, "set this machine's clock"),
    (400, "ExpiredToken", DeniedError, "get a fresh token"),
    (404, "NoSuchBucket", NotFoundError, "create it"),
    (404, "NoSuchKey", NotFoundError, ""),
    (404, "SomethingOdd", NotFoundError, ""),
    (403, "SomethingOdd", DeniedError, ""),
    (412, "PreconditionFailed", NotFoundError, "read it again"),
    (403, "ObjectLocked", LockedError, ""),
    (501, "NotImplemented", UnsupportedError, ""),
    (405, "MethodNotAllowed", UnsupportedError, ""),
    (403, "InvalidObjectState", StoreError, "archive"),
    (503, "SlowDown", ThrottledError, ""),
    (429, "SomethingOdd", ThrottledError, ""),
    (500, "SomethingOdd", TransientError, ""),
    (504, "SomethingOdd", TransientError, ""),
    (400, "SomethingOdd", StoreError, ""),
]


@pytest.mark.parametrize(("status", "code", "kind", "hint"), MEANINGS)
def test_an_answer_becomes_the_error_that_it_means(line, status, code, kind, hint):
    line.proxy.on(b"GET " + line.path("key"), refusal(status, code))
    with pytest.raises(StoreError) as caught:
        list(line.store.get("key"))
    assert type(caught.value) is kind
    assert hint in (caught.value.hint or "")
    assert str(caught.value).startswith(f"s3://{line.bucket.name}/{line.prefix}/key: ")
    assert not str(caught.value).endswith(".")


def test_an_error_that_lost_its_body_is_not_taken_at_its_number(line):
    """A 404 may mean that there is no such object, no such bucket, or no such setting."""
    line.direct.put("key", [b"x"])
    line.proxy.on(b" " + line.path("key"), Answer(b"HTTP/1.1 404 Not Found\r\nServer: x\r\nConte"), times=2)
    for attempt in (
        lambda: list(line.store.get("key")),
        lambda: line.store.delete("key"),
    ):
        with pytest.raises(TransientError, match="cut short"):
            attempt()
    assert b"".join(line.direct.get("key")) == b"x"


@pytest.mark.filterwarnings("ignore::dateutil.parser.UnknownTimezoneWarning")  # half a "GMT"
def test_an_answer_cut_at_any_byte_is_transient_or_right(line):
    line.direct.put("key", [b"0123456789"])
    modified = line.direct.stat("key").modified
    attempts = [
        (lambda: b"".join(line.store.get("key")), b"0123456789"),
        (lambda: keys_of(line.store.list()), ["key"]),
        (lambda: line.store.stat("key").size, 10),
        (lambda: line.store.stat("none"), NotFoundError),
        (lambda: list(line.store.get("none")), NotFoundError),
        (lambda: line.store.retention("key"), UnsupportedError),
    ]

    def outcome(attempt):
        try:
            return attempt()
        except StoreError as error:
            return type(error)

    for after in range(1, 900, 13):
        line.proxy.on(b" /" + line.bucket.name.encode(), CutDown(after), times=FOREVER)
        for attempt, right in attempts:
            assert outcome(attempt) in (TransientError, right), (right, after)
        line.proxy.clear()
    assert line.store.stat("key").modified == modified


def test_a_machine_whose_clock_is_off_is_told_the_stores(line):
    body = b"<Error><Code>RequestTimeTooSkewed</Code><ServerTime>2026-11-21T09:00:00Z</ServerTime></Error>"
    head = b"HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    line.proxy.on(b"GET " + line.path("key"), Answer(head + body))
    with pytest.raises(DeniedError, match="the store's says 2026-11-21T09:00:00Z"):
        list(line.store.get("key"))


# what goes over the wire


def test_every_upload_carries_an_md5_and_no_trailing_checksum(line):
    line.store.put("small", [b"x"])
    line.store.put("large", [content(SMALL_PART + 1)])
    line.store.delete_many(["small", "large"])
    heads = line.proxy.seen.split(b"\r\n\r\n")
    uploads = [head for head in heads if b"PUT /" in head or b"?delete" in head]
    assert len(uploads) == 4
    for head in uploads:
        assert b"Content-MD5: " in head
    assert b"x-amz-checksum" not in line.proxy.seen
    assert b"aws-chunked" not in line.proxy.seen


def test_checksums_are_sent_where_the_store_is_said_to_take_them(line):
    store = line.through(checksum="when_supported")
    body = content(SMALL_PART + 1)
    store.put("small", [b"x"])
    store.put("large", [body])
    assert line.proxy.seen.count(b"x-amz-checksum-crc32: ") >= 3
    assert b"Content-MD5" not in line.proxy.seen
    assert b"".join(store.get("small")) == b"x"
    assert line.holds("large", body)


@pytest.mark.parametrize(
    ("encryption", "headers"),
    [
        (Encryption("AES256"), [b"x-amz-server-side-encryption: AES256"]),
        (
            Encryption("aws:kms", "key-7"),
            [b"x-amz-server-side-encryption: aws:kms", b"x-amz-server-side-encryption-aws-kms-key-id: key-7"],
        ),
    ],
)
def test_encryption_is_asked_for_in_small_and_large_puts(line, encryption, headers):
    line.proxy.on(b"PUT ", refusal(403, "AccessDenied"))
    line.proxy.on(b"POST ", refusal(403, "AccessDenied"))
    store = line.through(encryption=encryption)
    for size in (1, SMALL_PART + 1):
        with pytest.raises(DeniedError):
            store.put("key", [content(size)])
    for header in headers:
        assert line.proxy.seen.lower().count(header.lower() + b"\r\n") == 2
