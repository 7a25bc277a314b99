from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.objects import pipeline
from rootcellar.backup.objects.pipeline import ahead, download
from rootcellar.errors import NotFoundError, TransientError


def stages():
    return [thread for thread in threading.enumerate() if thread.name == "ahead"]


@given(st.lists(st.integers(), max_size=50), st.integers(1, 5))
def test_items_arrive_in_order(items, depth):
    assert list(ahead(items, depth)) == items
    assert stages() == []


def test_no_more_than_the_depth_is_produced_ahead():
    produced = threading.Semaphore(0)
    count = 0

    def source():
        nonlocal count
        while True:
            count += 1
            produced.release()
            yield count

    stream = ahead(source(), depth=3)
    assert next(stream) == 1
    for _ in range(5):  # one is taken, three wait, one is at the door
        assert produced.acquire(timeout=10)
    assert not produced.acquire(timeout=0.3)
    assert count == 5
    stream.close()


class SourceError(Exception):
    pass


def test_an_error_is_raised_behind_the_items_before_it():
    def source():
        yield 1
        yield 2
        raise SourceError

    stream = ahead(source())
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(SourceError):
        next(stream)
    assert stages() == []


def test_an_error_at_the_closing_of_the_source_is_raised_and_does_not_hang():
    class Source:
        def __iter__(self):
            return iter([1])

        def close(self):
            raise SourceError

    stream = ahead(Source())
    assert next(stream) == 1
    with pytest.raises(SourceError):
        next(stream)


def test_whoever_stops_reading_stops_and_closes_the_source():
    closed = threading.Event()

    def source():
        try:
            while True:
                yield bytes(1000)
        finally:
            closed.set()

    stream = ahead(source())
    next(stream)
    stream.close()
    assert closed.is_set()
    assert stages() == []


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(pipeline, "RANGE", 1000)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 2000, 2001, 12_345])
def test_an_object_of_any_size_comes_whole(store, small_ranges, size):
    data = bytes(number % 251 for number in range(size))
    store.put("an/object", [data])
    assert b"".join(download(store, "an/object", size)) == data


class Faulty:
    """A store whose read of one range fails."""

    def __init__(self, store, start):
        self.store = store
        self.start = start
        self.read = []

    def stat(self, key):
        return self.store.stat(key)

    def get(self, key, *, start=0, end=None, etag=None):
        self.read.append(start)
        if start == self.start:
            raise TransientError("cut off")
        return self.store.get(key, start=start, end=end, etag=etag)


def test_a_range_that_fails_ends_the_download_with_its_error(store, small_ranges):
    store.put("an/object", [bytes(50_000)])
    faulty = Faulty(store, 7000)
    stream = download(faulty, "an/object", 50_000)
    with pytest.raises(TransientError, match="cut off"):
        list(stream)
    assert max(faulty.read) <= 7000 + pipeline.PARALLEL_RANGES * 1000


def test_a_download_never_mixes_an_object_with_its_successor(store, small_ranges):
    store.put("an/object", [b"a" * 50_000])
    stream = download(store, "an/object", 50_000)
    assert next(stream) == b"a" * 1000
    store.put("an/object", [b"b" * 50_000])
    with pytest.raises(NotFoundError):
        list(stream)


def test_a_download_that_is_given_up_leaves_no_thread(store, small_ranges):
    store.put("an/object", [bytes(50_000)])
    stream = download(store, "an/object", 50_000)
    next(stream)
    stream.close()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("download")] == []


def test_an_object_that_is_gone_is_told(store, small_ranges):
    for size in (10, 50_000):
        with pytest.raises(NotFoundError):
            list(download(store, "no/object", size))
