import itertools
from datetime import UTC, datetime

import pytest

from rootcellar.errors import DeniedError, NotFoundError, TransientError, UsageError
from rootcellar.stores import (
    Backoff,
    Create,
    FileStore,
    LimitedStore,
    MeteredStore,
    ObjectInfo,
    Retention,
    RetryingStore,
)
from rootcellar.stores.backoff import Attempts
from rootcellar.stores.decorator import StoreDecorator
from tests.stores.conformance import content, exploding, put_all
from tests.stores.fragile import BROKEN, SLOW, Clock, ForgetfulDeletes, Fragile
from tests.stores.places import keys_of


@pytest.fixture
def real(tmp_path):
    return FileStore(tmp_path)


@pytest.fixture
def clock():
    return Clock()


def longest(low, high):
    assert low == 0.0
    return high


def retrying(store, clock, backoff=None):
    return RetryingStore(store, backoff, clock=clock, uniform=longest)


# when


def test_the_wait_doubles_up_to_a_cap(clock):
    attempts = Attempts(Backoff(attempts=8, deadline=1e9, base=1, cap=10), clock, longest)
    for _ in range(7):
        attempts.failed(BROKEN)
    assert clock.sleeps == [1, 2, 4, 8, 10, 10, 10]
    with pytest.raises(TransientError, match="broken"):
        attempts.failed(BROKEN)


def test_a_throttled_call_waits_longer(clock):
    attempts = Attempts(Backoff(base=0.2, throttled_base=2), clock, longest)
    attempts.failed(SLOW)
    attempts.failed(BROKEN)
    assert clock.sleeps == [2, 0.4]


def test_the_wait_is_drawn_from_all_of_the_span(clock):
    drawn = []

    def draw(low, high):
        drawn.append((low, high))
        return low

    attempts = Attempts(Backoff(base=1), clock, draw)
    attempts.failed(BROKEN)
    attempts.failed(BROKEN)
    assert drawn == [(0.0, 1.0), (0.0, 2.0)]


def test_no_try_begins_after_the_deadline(clock):
    attempts = Attempts(Backoff(attempts=100, deadline=10, base=4, cap=4), clock, longest)
    attempts.failed(BROKEN)
    attempts.failed(BROKEN)
    with pytest.raises(TransientError):
        attempts.failed(BROKEN)
    assert clock.now == 1008


def test_what_takes_longer_than_the_deadline_is_tried_again(clock):
    def part():
        clock.now += 121
        if clock.sleeps:
            return "stored"
        raise BROKEN

    assert Attempts(Backoff(deadline=120), clock, longest).run(part) == "stored"


def test_progress_begins_the_count_anew(clock):
    attempts = Attempts(Backoff(attempts=2, deadline=10, base=6, cap=6), clock, longest)
    for _ in range(5):
        attempts.failed(BROKEN)
        attempts.progressed()
    attempts.failed(BROKEN)
    with pytest.raises(TransientError):
        attempts.failed(BROKEN)


# what


def test_a_call_is_repeated_until_it_succeeds(real, clock):
    real.put("key", [b"x"])
    assert retrying(Fragile(real, BROKEN, SLOW, BROKEN), clock).stat("key").size == 1
    retrying(Fragile(real, BROKEN, BROKEN), clock).delete("key")
    assert keys_of(real.list()) == []


@pytest.mark.parametrize("error", [DeniedError("no"), NotFoundError("none"), UsageError("what")])
def test_what_will_not_change_is_not_repeated(real, clock, error):
    fragile = Fragile(real, error, error)
    with pytest.raises(type(error)):
        retrying(fragile, clock).stat("key")
    assert clock.sleeps == []
    assert len(fragile.failures) == 1


def test_the_last_error_is_raised_when_no_try_is_left(real, clock):
    with pytest.raises(TransientError, match="the third"):
        retrying(Fragile(real, BROKEN, BROKEN, TransientError("the third")), clock, Backoff(attempts=3)).stat(
            "key"
        )


def test_a_listing_goes_on_behind_the_last_key(real, clock):
    keys = [f"{number:02d}" for number in range(20)]
    put_all(real, keys)
    fragile = Fragile(real, BROKEN, BROKEN, BROKEN, after=7)
    assert keys_of(retrying(fragile, clock).list()) == keys
    assert fragile.calls == [("list", ""), ("list", "06"), ("list", "13"), ("list", "19")]


def test_a_download_is_repeated_until_its_first_byte(real, clock):
    body = content(3_000_000)
    real.put("key", [body])
    fragile = Fragile(real, BROKEN, BROKEN)
    assert b"".join(retrying(fragile, clock).get("key")) == body
    assert fragile.calls == [("get", 0)] * 3


def test_a_download_that_has_begun_is_not_continued_with_what_may_be_another_object(real, clock):
    real.put("key", [content(3_000_000)])
    chunks = retrying(Fragile(real, BROKEN, after=1), clock).get("key")
    next(chunks)
    with pytest.raises(TransientError, match="broken"):
        next(chunks)
    assert clock.sleeps == []


@pytest.mark.parametrize("pin", ["etag", "version"])
def test_a_pinned_download_goes_on_at_the_byte_reached(real, clock, pin):
    body = content(5_000_000)
    etag = real.put("key", [body]).etag
    fragile = Fragile(real, BROKEN, BROKEN, after=2)
    pinned = {"etag": etag} if pin == "etag" else {"version": "ignored below"}
    read = b"".join(retrying(fragile, clock).get("key", start=100, end=4_500_000, **pinned))
    assert read == body[100:4_500_000]
    assert fragile.calls == [("get", 100), ("get", 100 + (2 << 20)), ("get", 100 + (4 << 20))]


def test_a_put_of_an_untouched_iterator_is_repeated(real, clock):
    fragile = Fragile(real, BROKEN, BROKEN)
    retrying(fragile, clock).put("key", iter([b"some", b"thing"]))
    assert b"".join(real.get("key")) == b"something"
    assert len(fragile.calls) == 3


def test_a_put_of_a_touched_iterator_is_not_repeated(real, clock):
    fragile = Fragile(real, BROKEN, after=1)
    with pytest.raises(TransientError, match="broken"):
        retrying(fragile, clock).put("key", iter([b"some", b"thing"]))
    assert len(fragile.calls) == 1
    assert clock.sleeps == []


@pytest.mark.parametrize("chunks", [[b"some", b"thing"], (b"some", b"thing")])
@pytest.mark.parametrize("wrap", [lambda store: store, LimitedStore, MeteredStore])
def test_a_put_of_a_sequence_is_repeated_as_a_whole(real, clock, chunks, wrap):
    fragile = Fragile(real, BROKEN, BROKEN)
    wrap(retrying(fragile, clock)).put("key", chunks)
    assert b"".join(real.get("key")) == b"something"
    assert len(fragile.calls) == 3


def test_a_conditional_put_that_may_have_arrived_is_not_repeated(real, clock):
    fragile = Fragile(real, BROKEN, after=1)
    with pytest.raises(TransientError, match="broken"):
        retrying(fragile, clock).put("key", [b"some"], condition=Create())
    assert len(fragile.calls) == 1
    untouched = Fragile(real, BROKEN)
    retrying(untouched, clock).put("key", [b"some"], condition=Create())
    assert len(untouched.calls) == 2


def test_an_error_of_the_source_is_not_repeated(real, clock):
    with pytest.raises(TransientError, match="of the source"):
        retrying(real, clock).put("key", exploding(b"some", error=TransientError("of the source")))
    assert clock.sleeps == []


def test_only_keys_that_failed_for_now_are_deleted_again(real, clock):
    put_all(real, ["a", "b", "c"])
    denied = DeniedError("never")
    store = ForgetfulDeletes(real, BROKEN, {"a": BROKEN, "b": denied, "c": SLOW}, {"a": BROKEN})
    assert retrying(store, clock).delete_many(["a", "b", "c"]) == {"b": denied}
    assert store.batches == [["a", "b", "c"], ["a", "b", "c"], ["a", "c"], ["a"]]
    assert keys_of(real.list()) == ["b"]


def test_keys_that_fail_for_good_are_told_with_their_reason(real, clock):
    store = ForgetfulDeletes(real, *[{"a": BROKEN}] * 9)
    assert retrying(store, clock, Backoff(attempts=3)).delete_many(["a", "b"]) == {"a": BROKEN}
    assert len(store.batches) == 3


def test_keys_are_deleted_in_batches_of_a_thousand(real, clock):
    store = ForgetfulDeletes(real)
    assert retrying(store, clock).delete_many(str(number) for number in range(2500)) == {}
    assert [len(batch) for batch in store.batches] == [1000, 1000, 500]


class Versioned(StoreDecorator):
    """Lists versions as it is told, and breaks once at each of the given places."""

    def __init__(self, inner, infos, *breaks):
        super().__init__(inner)
        self.infos = infos
        self.breaks = list(breaks)

    def versions(self, prefix=""):
        for number, info in enumerate(self.infos):
            if number in self.breaks:
                self.breaks.remove(number)
                raise BROKEN
            yield info


def test_versions_go_on_behind_the_last_one(real, clock):
    versions = [("a", "3"), ("a", "2"), ("a", "1"), ("b", "5"), ("b", "4"), ("c", "9")]
    infos = [ObjectInfo(key, 1, datetime.now(UTC), version=version) for key, version in versions]
    for breaks in itertools.combinations(range(6), 3):
        assert list(retrying(Versioned(real, infos, *breaks), clock).versions()) == infos


def test_every_verb_is_repeated(real, clock):
    class Stubborn:
        """Fails each verb once."""

        def __init__(self):
            self.failed = set()

        def __getattr__(self, verb):
            def call(*_, **__):
                if verb not in self.failed:
                    self.failed.add(verb)
                    raise BROKEN
                return verb

            return call

    store = retrying(Stubborn(), clock)
    assert store.probe() == "probe"
    assert store.retention("key") == "retention"
    store.set_retention("key", Retention())
    assert store.abort_leftovers(None) == "abort_leftovers"
    assert len(clock.sleeps) == 4
