"""AzureStore between a broken network and Azurite: what heals, what does not, and what is left behind."""

import hashlib
import itertools
import re

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
)
from rootcellar.stores import Backoff, Create, ReplaceIf, RetryingStore
from tests.stores.breaking import PATIENT, probed
from tests.stores.clouds import azure_store
from tests.stores.conformance import content
from tests.stores.places import QUICK, SMALL_PART, keys_of
from tests.stores.proxy import Answer, CutDown, CutUp, Proxy, Reset, Stall

FOREVER = float("inf")
_prefixes = itertools.count(1)


def refusal(status, code):
    head = (
        f"HTTP/1.1 {status} Test\r\nx-ms-error-code: {code}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    return Answer(head.encode())


class Line:
    """A store behind a proxy, and the same one reached directly."""

    def __init__(self, server, container, proxy):
        self.container = container
        self.proxy = proxy
        self.prefix = f"line-{next(_prefixes)}"
        self.endpoint = server.endpoint.replace(f":{server.port}", f":{proxy.port}")
        self.store = self.through()
        self.direct = azure_store(container, self.prefix)

    def through(self, **options):
        return azure_store(self.container, self.prefix, endpoint=self.endpoint, **options)

    def path(self, key):
        return f"/{self.container.account}/{self.container.name}/{self.prefix}/{key}".encode()

    def holds(self, key, body):
        found = b"".join(self.direct.get(key))
        return hashlib.sha256(found).digest() == hashlib.sha256(body).digest()


@pytest.fixture(scope="module")
def shared(azurite):
    return azurite.new_container()


@pytest.fixture
def line(azurite, shared):
    with Proxy(azurite.port) as proxy:
        yield Line(azurite, shared, proxy)


BREAKS = [
    CutUp(0),
    CutUp(3_000),
    CutUp(2_000_000),
    CutDown(0),
    CutDown(20),
    Reset(),
    refusal(503, "ServerBusy"),
    refusal(500, "InternalError"),
    refusal(500, "OperationTimedOut"),
    refusal(400, "Md5Mismatch"),
    Answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    Answer(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    Answer(b"HTTP/1.1 201 Created\r\nContent-"),
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
def test_one_broken_block_is_sent_again_and_no_other(line, fault):
    body = content(3 * SMALL_PART + 99)
    # A name is six random bytes and the number: in base64 the second one ends like this.
    line.proxy.on(b"AAAAQ%3D%3D", fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)
    numbers = [seen[-6:-4] for seen in re.findall(rb"blockid=([\w%-]+) HTTP", bytes(line.proxy.seen))]
    assert len(numbers) == 6


@pytest.mark.parametrize(
    "fault", [CutUp(0), CutUp(100), CutDown(0), Reset(), refusal(503, "ServerBusy")], ids=named
)
def test_a_commit_survives(line, fault):
    body = content(SMALL_PART + 99)
    line.proxy.on(b"comp=blocklist", fault, times=2)
    line.store.put("key", iter([body]))
    assert line.proxy.fired == 2
    assert line.holds("key", body)


@pytest.mark.parametrize("size", [5, SMALL_PART + 5])
def test_a_create_whose_answer_was_lost_has_won(line, size):
    """The second attempt is refused, by the object that the first has made."""
    line.proxy.on(b"x-ms-meta-rootcellarput", CutDown(0))
    said = line.store.put("key", [content(size)], condition=Create())
    assert line.proxy.fired == 1
    assert line.holds("key", content(size))
    assert (said.key, said.size, said.etag) == ("key", size, line.direct.stat("key").etag)


def test_a_replacement_whose_answer_was_lost_has_won(line):
    old = line.direct.put("key", [b"old"])
    line.proxy.on(b"PUT " + line.path("key"), CutDown(0))
    said = line.store.put("key", [b"new"], condition=ReplaceIf(old.etag))
    assert line.proxy.fired == 1
    assert said.etag == line.direct.stat("key").etag != old.etag


def test_a_create_that_never_arrived_loses_against_another(line):
    line.direct.put("key", [b"new"])
    line.proxy.on(b"PUT " + line.path("key"), Reset())
    with pytest.raises(AlreadyExistsError):
        line.store.put("key", [b"new"], condition=Create())
    assert line.proxy.fired == 1


@pytest.mark.parametrize(("condition", "error"), [(None, StoreError), (Create(), AlreadyExistsError)])
def test_a_put_whose_blocks_another_writer_took_away_has_lost(line, condition, error):
    """Whoever commits first drops all other blocks under the key."""
    line.proxy.on(b"comp=blocklist", refusal(400, "InvalidBlockList"))
    with pytest.raises(error, match="another") as caught:
        line.store.put("key", [content(SMALL_PART + 1)], condition=condition)
    assert not caught.value.retryable
    assert line.proxy.fired == 1
    assert keys_of(line.direct.list()) == []


@pytest.mark.parametrize("pattern", [b"comp=block&", b"comp=blocklist"])
def test_a_put_that_cannot_be_mended_leaves_nothing_visible(line, pattern):
    line.proxy.on(pattern, refusal(500, "InternalError"), times=FOREVER)
    with pytest.raises(TransientError, match="an error inside the store"):
        line.store.put("key", iter([content(3 * SMALL_PART)]))
    assert keys_of(line.direct.list()) == []
    line.direct.put("key", [content(2 * SMALL_PART)])  # what was left behind is in nobody's way
    assert line.holds("key", content(2 * SMALL_PART))


def test_a_refused_block_is_not_sent_again(line):
    line.proxy.on(b"AAAAQ%3D%3D", refusal(403, "AuthorizationPermissionMismatch"), times=FOREVER)
    with pytest.raises(DeniedError, match="access denied"):
        line.store.put("key", iter([content(4 * SMALL_PART)]))
    assert line.proxy.fired == 1


def test_an_account_that_may_only_write_can_put_a_large_object(line):
    line.proxy.on(b"HEAD ", refusal(403, "AuthorizationPermissionMismatch"), times=FOREVER)
    said = line.store.put("key", iter([content(SMALL_PART + 1)]))
    assert line.proxy.fired == 1
    assert said.size == SMALL_PART + 1
    assert line.holds("key", content(SMALL_PART + 1))


def test_a_store_that_lost_bytes_is_not_believed(line):
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: "e"\r\nConnection: close\r\n'
    head += b"Last-Modified: Sat, 21 Nov 2026 09:00:00 GMT\r\n"

    def with_our_mark(seen):
        return head + re.search(rb"x-ms-meta-rootcellarput: \w+", seen)[0] + b"\r\n\r\n"

    line.proxy.on(b"HEAD ", Answer(with_our_mark))
    with pytest.raises(StoreError, match=f"the store holds 7 of {SMALL_PART + 1} bytes"):
        line.store.put("key", iter([content(SMALL_PART + 1)]))


def test_a_silent_store_is_left_after_the_timeout(line):
    store = line.through(timeout=0.5, backoff=PATIENT)  # a busy server takes longer at times, too
    line.proxy.on(b"PUT " + line.path("key"), Stall(), times=2)
    store.put("key", [b"body"])
    assert line.proxy.fired == 2
    assert line.holds("key", b"body")


def test_a_throttled_put_gives_up_in_the_end(line):
    store = line.through(backoff=Backoff(attempts=3, throttled_base=0.01))
    line.proxy.on(b"PUT " + line.path("key"), refusal(503, "ServerBusy"), times=FOREVER)
    with pytest.raises(ThrottledError, match="asks to slow down"):
        store.put("key", [b"body"])
    assert line.proxy.fired == 3


# probes


@pytest.mark.parametrize(
    "fault",
    [refusal(500, "InternalError"), refusal(503, "ServerBusy"), CutDown(0)],
    ids=["error", "slow", "lost"],
)
def test_a_probe_survives_one_break_of_each_request_and_leaves_no_object(line, fault):
    found, broken = probed(line.store, line.proxy, fault)
    assert found == line.direct.probe()
    assert broken == 9
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
        assert line.proxy.seen.count(b"If-Match: ") == 3


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


# listings


def test_a_listing_without_its_body_is_not_believed(line):
    line.direct.put("key", [b"x"])
    line.proxy.on(b"comp=list", Answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"))
    with pytest.raises(TransientError, match="cannot be read"):
        list(line.store.list())
    assert keys_of(line.store.list()) == ["key"]


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "ContainerNotFound", NotFoundError),
        (403, "AuthenticationFailed", DeniedError),
        (429, "TooManyRequests", ThrottledError),
        (409, "SomethingNew", StoreError),
    ],
)
def test_a_refusal_is_told_as_what_it_is(line, status, code, error):
    line.proxy.on(b"comp=list", refusal(status, code))
    with pytest.raises(StoreError) as caught:
        list(line.store.list())
    assert type(caught.value) is error
    assert code in str(caught.value.__cause__)
