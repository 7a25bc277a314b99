import pytest

from rootcellar.errors import DeniedError, NotFoundError, UnsupportedError
from rootcellar.stores import FileStore, Meter, MeteredStore
from tests.stores.conformance import content, exploding
from tests.stores.fragile import BROKEN, Clock, ForgetfulDeletes, Ticking


@pytest.fixture
def real(tmp_path):
    return FileStore(tmp_path)


def test_calls_bytes_and_errors_are_counted(real):
    store = MeteredStore(real)
    store.put("a", [b"12345"])
    store.put("b", iter([b"12", b"34"]))
    list(store.get("a", start=1))
    for _ in range(2):
        with pytest.raises(NotFoundError):
            store.stat("nothing")
    with pytest.raises(NotFoundError):
        list(store.get("nothing"))
    with pytest.raises(ZeroDivisionError):
        store.put("c", exploding(b"123", error=ZeroDivisionError))
    store.delete_many(["a"])
    found = store.meter.read()
    assert (found.uploaded, found.downloaded) == (12, 4)
    assert {verb: reading.calls for verb, reading in found.verbs.items()} == {
        "put": 3,
        "get": 2,
        "stat": 2,
        "delete_many": 1,
    }
    assert {verb: reading.errors for verb, reading in found.verbs.items() if reading.errors} == {
        "stat": {"not-found": 2},
        "get": {"not-found": 1},
        "put": {"other": 1},
    }


def test_a_reading_is_a_value_that_stays(real):
    store = MeteredStore(real)
    store.put("a", [b"x"])
    before = store.meter.read()
    store.put("a", [b"x"])
    assert before.verbs["put"].calls == 1
    assert store.meter.read().verbs["put"].calls == 2


def test_stores_may_share_a_meter(real, tmp_path):
    meter = Meter()
    MeteredStore(real, meter).put("a", [b"x"])
    MeteredStore(FileStore(tmp_path / "other"), meter).put("a", [b"x"])
    assert meter.read().verbs["put"].calls == 2


def test_the_time_of_a_slow_reader_or_source_is_not_the_stores(real):
    clock = Clock()
    store = MeteredStore(real, Meter(clock.monotonic))

    def slowly():
        for _ in range(3):
            clock.now += 100
            yield b"x" * (2 << 20)
        clock.now += 100

    store.put("key", slowly())
    for _ in store.get("key"):
        clock.now += 100
    for _ in store.list():
        clock.now += 100
    assert {reading.seconds for reading in store.meter.read().verbs.values()} == {0.0}


def test_the_time_in_the_store_is_added_up(real):
    store = MeteredStore(real, Meter(Ticking().monotonic))
    store.delete("a")
    store.delete("b")
    assert store.meter.read().verbs["delete"].seconds == 2
    assert store.meter.read().verbs["delete"].slowest == 1


def test_a_reader_who_stops_early_has_made_one_call_and_no_error(real):
    store = MeteredStore(real)
    real.put("key", [content(3_000_000)])
    chunks = store.get("key")
    next(chunks)
    chunks.close()
    reading = store.meter.read()
    assert reading.verbs["get"].calls == 1
    assert reading.verbs["get"].errors == {}
    assert reading.downloaded == 1 << 20


def test_keys_that_could_not_be_deleted_count_as_errors(real):
    store = MeteredStore(ForgetfulDeletes(real, {"a": DeniedError("no"), "b": BROKEN}))
    store.delete_many(["a", "b", "c"])
    assert store.meter.read().verbs["delete_many"].errors == {"denied": 1, "transient": 1}


def test_what_a_store_cannot_do_is_counted_too(real):
    store = MeteredStore(real)
    for attempt in (lambda: list(store.versions()), lambda: store.retention("key")):
        with pytest.raises(UnsupportedError, match="a file store has no"):
            attempt()
    verbs = store.meter.read().verbs
    assert verbs["versions"].errors == verbs["retention"].errors == {"unsupported": 1}
