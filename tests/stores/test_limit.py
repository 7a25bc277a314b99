import threading

import pytest

from rootcellar.errors import UsageError
from rootcellar.stores import Bandwidth, FileStore, LimitedStore
from tests.stores.conformance import content
from tests.stores.fragile import Clock


@pytest.fixture
def real(tmp_path):
    return FileStore(tmp_path)


@pytest.fixture
def clock():
    return Clock()


def test_bytes_pass_at_the_rate_once_the_burst_is_used_up(clock):
    bandwidth = Bandwidth(1000, clock=clock)
    for _ in range(10):
        bandwidth.take(500)
    assert clock.now == pytest.approx(1000 + (5000 - 1000) / 1000)


def test_a_chunk_larger_than_the_bucket_passes_and_is_paid_for(clock):
    bandwidth = Bandwidth(1000, clock=clock)
    bandwidth.take(10_000)
    assert clock.sleeps == [pytest.approx(9)]


def test_time_that_passes_unused_is_worth_one_second_at_most(clock):
    bandwidth = Bandwidth(1000, clock=clock)
    bandwidth.take(1000)
    clock.now += 3600
    bandwidth.take(1000)
    assert clock.sleeps == []
    bandwidth.take(1000)
    assert clock.sleeps == [pytest.approx(1)]


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(UsageError, match="lets nothing through"):
        Bandwidth(0)


def test_up_and_down_have_limits_of_their_own(real, clock):
    up, down = Bandwidth(1_000_000, clock=clock), Bandwidth(2_000_000, clock=clock)
    store = LimitedStore(real, upload=up, download=down)
    store.put("key", [content(1_000_000)] * 5)
    assert clock.now == pytest.approx(1000 + 4)
    assert len(b"".join(store.get("key"))) == 5_000_000
    assert clock.now == pytest.approx(1000 + 4 + 1.5)
    assert len(b"".join(LimitedStore(real).get("key"))) == 5_000_000
    assert clock.now == pytest.approx(1000 + 4 + 1.5)


def test_threads_share_one_limit():
    """Each waits for its own bytes and for those taken before: together they keep the rate."""
    clock, lock = Clock(), threading.Lock()
    waits = []

    def sleep(seconds):
        with lock:
            waits.append(seconds)

    clock.sleep = sleep
    bandwidth = Bandwidth(1000, clock=clock)
    threads = [threading.Thread(target=bandwidth.take, args=(1000,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == [pytest.approx(number) for number in range(1, 8)]
