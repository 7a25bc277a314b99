from __future__ import annotations

import base64
import json
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.delta import DELETE, PUT, Event
from rootcellar.errors import DamagedObjectError, FormatError

TIME = "2026-07-24T09:23:23.1Z"
INT63 = st.integers(1, 2**63 - 1)


def put(revision: int, key: bytes = b"/a", value: bytes = b"x", **more) -> Event:
    fields = {"create_revision": revision, "version": 1, "time": TIME} | more
    return Event(PUT, key, value, mod_revision=revision, **fields)


def gone(revision: int, key: bytes = b"/a", **more) -> Event:
    return Event(DELETE, key, b"", 0, revision, 0, **({"time": TIME} | more))


@st.composite
def histories(draw) -> list[Event]:
    """Events of consecutive revisions, several of them in some."""
    revision = draw(st.integers(1, 2**62))
    events = []
    for size in draw(st.lists(st.integers(1, 4), max_size=12)):
        time = delta.format_time(draw(st.integers(0, 4 * 10**18)))
        for sub in range(size):
            key = draw(st.binary(min_size=1, max_size=20))
            if draw(st.booleans()):
                events.append(gone(revision, key, time=time, sub=sub))
                continue
            created = draw(st.integers(1, revision))
            version = draw(st.integers(1, revision))
            value, lease = draw(st.binary(max_size=30)), draw(st.integers(-(2**63) + 1, 2**63 - 1))
            events.append(Event(PUT, key, value, created, revision, version, lease=lease, time=time, sub=sub))
        revision += 1
    return events


def decoded(chunks, **options) -> list[Event]:
    return [event for events in delta.decode(chunks, **options) for event in events]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def element(*, wrap: dict | None = None, event: dict | None = None, **kv) -> dict:
    """One element as a dict; `kv` overrides or, with None, removes."""
    fields = {"key": "L2E=", "create_revision": 5, "mod_revision": 7, "version": 2, "value": "eA=="} | kv
    fields = {name: value for name, value in fields.items() if value is not None}
    return {"etcdEvent": {"kv": fields} | (event or {}), "time": TIME} | (wrap or {})


def array(*elements: dict, separators=(",", ":")) -> bytes:
    return json.dumps(elements, separators=separators).encode()


@given(histories(), st.integers(1, 5))
def test_events_come_back_as_they_were_written(events, batch):
    assert decoded(delta.encode(events, batch=batch)) == events


@given(histories(), st.integers(1, 50))
def test_chunks_may_end_anywhere(events, size):
    assert decoded(cut(b"".join(delta.encode(events)), size)) == events


def test_what_ebr_wrote_is_written_again_byte_for_byte(ebr_backup):
    for path in (ebr_backup.root / "v2").glob("Incr-*"):
        name = names.parse(f"v2/{path.name}")
        payload = b"".join(codecs.hash_tail(codecs.decompress([path.read_bytes()], path.suffix)))
        events = decoded([payload], name=name.name, last=name.last)
        assert events[0].mod_revision == name.start
        assert b"".join(delta.encode(events)) == payload


def test_the_spelling_is_ebrs():
    lease = 129656598510661019
    events = [
        put(7, b"/a", b"x", create_revision=5, version=2, lease=lease),
        gone(8, b"/b"),
        put(9, b"/c", b""),
    ]
    assert b"".join(delta.encode(events)) == (
        b'[{"etcdEvent":{"kv":{"key":"L2E=","create_revision":5,"mod_revision":7,"version":2,"value":"eA==",'
        b'"lease":129656598510661019}},"time":"2026-07-24T09:23:23.1Z"},'
        b'{"etcdEvent":{"type":1,"kv":{"key":"L2I=","mod_revision":8}},"time":"2026-07-24T09:23:23.1Z"},'
        b'{"etcdEvent":{"kv":{"key":"L2M=","create_revision":9,"mod_revision":9,"version":1}},'
        b'"time":"2026-07-24T09:23:23.1Z"}]'
    )


def test_pieces_of_an_encoder_make_one_array():
    encoder = delta.DeltaEncoder()
    pieces = [encoder.feed([put(5), put(6)]), encoder.feed([]), encoder.feed([put(7)]), encoder.finish()]
    assert decoded(pieces) == [put(5), put(6), put(7)]
    assert b"".join(delta.encode([])) == b"[]"


def test_events_of_one_revision_are_counted_across_lists():
    value = b"v" * 400_000
    events = [put(9, b"key%d" % n, value, sub=n) for n in range(12)]
    lists = list(delta.decode(delta.encode(events, batch=1)))
    assert len(lists) > 1
    assert [event.sub for events in lists for event in events] == list(range(12))


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(array(element(), separators=(" ,\n", " : ")), id="white space"),
        pytest.param(b"\n" + array(element()) + b"\r\n \t", id="white space around"),
        pytest.param(array(element(more={"a": [1, {"b": "}"}]})), id="an unknown field of kv"),
        pytest.param(array(element(event={"prev_kv": {"key": "eA=="}})), id="an unknown field of the event"),
        pytest.param(
            array(element(wrap={"Extra": [{"etcdEvent": {}}]})), id="an unknown field of the element"
        ),
        pytest.param(
            array(element()).replace(b'"key"', b'"KEY"').replace(b"etcdEvent", b"EtcdEvent"), id="case"
        ),
        pytest.param(array(element(event={"type": 0}, lease=0)), id="zeros spelled out"),
        pytest.param(array(element(event={"type": None}, lease=None)), id="null for a number"),
        pytest.param(array(element(value="e\r\nA==")), id="line ends in base64"),
        pytest.param(array(element(value="eA==")).replace(b"eA==", b"e\\u0041=="), id="an escape"),
    ],
)
def test_what_gos_decoder_takes_is_taken(spelled):
    expected = Event(PUT, b"/a", b"x", 5, 7, 2, time=TIME)
    assert decoded([spelled]) == decoded(cut(spelled, 1)) == [expected]


def test_a_missing_time_is_taken():
    [event] = decoded([array(element()).replace(f',"time":"{TIME}"'.encode(), b"")])
    assert event.time == ""
    with pytest.raises(FormatError, match="event time '' is not a moment"):
        delta.first_after([event], 0)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (array(element(key=None)), "revision 7 is not one of etcd's: type 0, key of 0 bytes"),
        (array(element(key="")), "key of 0 bytes"),
        (array(element(event={"type": 2})), "type 2"),
        (array(element(create_revision=8)), "created in 8"),
        (array(element(create_revision=None)), "created in 0"),
        (array(element(version=None)), "version 0"),
        (array(element(mod_revision=None)), "an event of revision 0 is not one of etcd's"),
        (array(element(event={"type": 1}, mod_revision=None)), "an event of revision 0 is not one of etcd's"),
        (array(element(mod_revision=-7)), "an event of revision -7 follows"),
        (array(element(mod_revision=2**63)), "not valid JSON|is not an etcd revision"),
        (array(element(lease=2**63)), "lease 9223372036854775808|lease is not a 64-bit integer"),
        (array(element(mod_revision=7.0)), "mod_revision is not a 64-bit integer"),
        (array(element(mod_revision=True)), "mod_revision is not a 64-bit integer"),
        (array(element(mod_revision="7")), "mod_revision is not a 64-bit integer"),
        (array(element(value="!")), "value is not base64"),
        (array(element(value="eA")), "value is not base64"),
        (array(element(value=[120])), "value is not base64"),
        (array(element(wrap={"time": 7})), "a time was expected"),
        (array(element(event={"kv": [1]})), "an object was expected"),
        (array(element(), element(mod_revision=6)), "revision 6 follows one of revision 7"),
        (array(element(), element(mod_revision=9)), "revision 9 follows one of revision 7"),
        (b'[{"etcdEvent":{"kv":{"lease":NaN}}}]', "NaN is not JSON"),
        (b'{"etcdEvent":{}}', "not an array"),
        (b"[" * 100_000, "nested too deeply|not valid JSON"),
        (b"", "not valid JSON"),
        (b"[", "not valid JSON"),
        (array(element())[:-1] + b",]", "not valid JSON"),
        (b"[," + array(element())[1:], "not valid JSON"),
        (array(element()) + b"]", "not valid JSON"),
        (array(element()) + array(element()), "not valid JSON"),
    ],
)
def test_what_etcd_cannot_have_done_is_damage(damaged, message):
    with pytest.raises(DamagedObjectError, match=message) as told:
        decoded([damaged], name="v2/Incr-1")
    assert told.value.name == "v2/Incr-1"
    with pytest.raises(FormatError):
        decoded(cut(damaged, 3))


@pytest.mark.parametrize(("events", "last"), [([put(7)], 7), ([put(7), put(8), gone(8)], 8)])
def test_the_last_event_is_the_names(events, last):
    assert len(decoded(delta.encode(events), last=last)) == len(events)
    for other in (last - 1, last + 1):
        with pytest.raises(FormatError, match=f"the last event has revision {last}, not {other}"):
            decoded(delta.encode(events), last=other)


def test_a_delta_without_events_is_not_what_its_name_says():
    assert decoded([b"[]"]) == decoded([b"null"]) == []
    with pytest.raises(FormatError, match="the last event has revision 0, not 5"):
        decoded([b"[]"], last=5)


def test_a_large_delta_is_decoded_in_bounded_memory():
    def chunks():
        yield from delta.encode(put(n + 1, b"key%d" % n, b"v" * 300) for n in range(120_000))

    tracemalloc.start()
    try:
        size = sum(map(len, chunks()))
        tracemalloc.reset_peak()
        count = sum(len(events) for events in delta.decode(chunks()))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert size > 60 << 20
    assert count == 120_000


@pytest.mark.parametrize("spelling", ["ebr", "spaced", "nested", "cased"])
def test_large_deltas_of_any_spelling_come_back(spelling):
    events = [put(n + 1, b"key%d" % n, b"},{" * 100, sub=0) for n in range(20_000)]
    payload = b"".join(delta.encode(events))
    if spelling == "spaced":
        payload = payload.replace(b'},{"etcdEvent"', b'} ,\n {"etcdEvent"')
    elif spelling == "nested":
        # The boundary that the fast path looks for, one level too deep, and inside a string as well.
        inner = b',"more":[{"etcdEvent":{}},{"etcdEvent":{}}],"text":"\\"},{\\"etcdEvent\\":\\\\"}'
        payload = payload.replace(b'Z"}', b'Z"' + inner)
    elif spelling == "cased":
        payload = payload.replace(b'"mod_revision"', b'"Mod_Revision"')
    assert len(payload) > 5 << 20
    for size in (1 << 16, 1 << 20, 1 << 24):
        assert decoded(cut(payload, size)) == events


def test_one_event_may_be_larger_than_a_block():
    events = [put(5, value=b"v" * (9 << 20)), put(6), put(7, value=b"w" * (3 << 20))]
    assert decoded(cut(b"".join(delta.encode(events)), 1 << 18)) == events


@pytest.mark.parametrize("tail", [b",]", b"]]", b"", b"] x", b',{"etcdEvent":]'])
def test_damage_far_into_a_large_delta_is_noticed(tail):
    events = (put(n + 1, b"key", b"v" * 300) for n in range(10_000))
    payload = b"".join(delta.encode(events))[:-1] + tail
    for spelled in (payload, payload.replace(b'},{"etcdEvent"', b'} , {"etcdEvent"')):
        with pytest.raises(DamagedObjectError, match=r"Incr-1: the events are not valid JSON"):
            decoded(cut(spelled, 1 << 18), name="Incr-1")


def test_an_endless_event_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(delta, "_ELEMENT_LIMIT", 16 << 20)

    def endless():
        yield b'[{"etcdEvent":{"kv":{"value":"'
        while True:
            yield b"A" * (1 << 20)

    with pytest.raises(FormatError, match="one event is longer than 16 MiB"):
        decoded(endless())


@given(st.binary(max_size=60), st.integers(0, 400))
def test_mutated_deltas_end_in_events_or_a_format_error(noise, at):
    payload = bytearray(array(element(), element(mod_revision=8)))
    payload[at : at + len(noise)] = noise
    try:
        for event in decoded([bytes(payload)]):
            assert isinstance(event.key, bytes)
            assert event.key
    except FormatError:
        pass


@given(st.integers(0, 253402300799 * 10**9))
def test_moments_come_back_to_the_nanosecond(moment):
    assert delta.parse_time(delta.format_time(moment)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("2026-07-24T11:23:23.5+02:00", 1784885003500000000),
        ("2026-07-24T09:23:23.5Z", 1784885003500000000),
        ("1969-12-31T23:59:59.5Z", -500000000),
    ],
)
def test_moments_are_read_with_their_offset(text, moment):
    assert delta.parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    ["", "0001-01-01T00:00:00Z", "yesterday", "2026-07-24", "2026-13-01T00:00:00Z", "2026-07-24T09:23:23"],
)
def test_what_is_not_a_moment_is_refused_with_a_way_out(text):
    with pytest.raises(FormatError, match="is not a moment") as told:
        delta.parse_time(text)
    assert "name a revision instead" in told.value.hint


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), max_size=10), st.integers(-1, 21))
def test_a_revision_is_after_a_moment_by_its_first_event(revisions, moment):
    events = [
        put(number + 1, sub=sub, time=delta.format_time(received + sub))
        for number, (size, received) in enumerate(revisions)
        for sub in range(size)
    ]
    kept = events[: delta.first_after(events, moment)]
    received = {event.mod_revision: delta.parse_time(event.time) for event in reversed(events)}
    expected = []
    for event in events:
        if received[event.mod_revision] > moment:
            break
        expected.append(event)
    assert kept == expected


def test_events_are_small_and_untouched_by_the_garbage_collector():
    """A restore holds tens of thousands of them at a time."""
    assert msgspec.structs.fields(Event)[-1].name == "sub"
    assert Event.__struct_config__.gc is False
    assert base64.b64encode(put(1).key) == b"L2E="
