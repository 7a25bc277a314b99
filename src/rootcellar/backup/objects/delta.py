"""The events of a delta: one JSON array in EBR's spelling, read and written as a stream.

    [{"etcdEvent":{"type":1,"kv":{"key":"L2E=","mod_revision":7}},"time":"2026-07-24T09:23:23.1Z"}, ...]

Field order and omission of zeros are Go's encoding/json over etcd's structs; byte strings are base64.
`time` is when the writer received the event.  The reader takes what Go's decoder takes (any case of names,
unknown fields, missing time, white space), but by way of a fast path for what EBR and rootcellar write: 1
MiB of the array at a time, cut where an element ends, decoded by msgspec into typed structs.

Not here: the hash tail and compression around the array (`codecs`), and etcd's records made from events.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rootcellar.backup.objects.codecs import damage
from rootcellar.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PUT: Final = 0
DELETE: Final = 1

_BLOCK: Final = 1 << 20
_ELEMENT_LIMIT: Final = 256 << 20  # etcd itself refuses requests of 2 GiB; no one sends a value near this
_INT64_MAX: Final = 2**63 - 1
_BOUNDARY: Final = b'},{"etcdEvent":'
_OUTSIDE: Final = re.compile(rb'["\[\]{},]')
_INSIDE: Final = re.compile(rb'["\\]')
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)\Z", re.ASCII)
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Event(msgspec.Struct, gc=False, frozen=True):
    """One change of one key, as etcd's watch told it.

    `sub` is the position within its revision, counted from the first event of that revision in this delta;
    a revision is never split between deltas.  A delete carries only `key` and `mod_revision`.  `time` is
    RFC 3339 as it was written, or empty.
    """

    type: int
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0
    time: str = ""
    sub: int = 0


class _KeyValue(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    key: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


class _EtcdEvent(msgspec.Struct, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    type: int = 0
    kv: _KeyValue = msgspec.field(default_factory=_KeyValue)


class _Entry(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    event: _EtcdEvent = msgspec.field(name="etcdEvent", default_factory=_EtcdEvent)
    time: str = ""


_DECODER: Final = msgspec.json.Decoder(list[_Entry])
_NOT_PLAIN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ENCODER: Final = msgspec.json.Encoder()


class DeltaEncoder:
    """Writes the array piece by piece, for a writer that cuts by size and does not hold the events."""

    def __init__(self) -> None:
        self._begun = False

    def feed(self, events: Sequence[Event]) -> bytes:
        """The JSON of these events; together with all other pieces and `finish` it is the array."""
        if not events:
            return b""
        entries = [
            _Entry(
                _EtcdEvent(
                    e.type, _KeyValue(e.key, e.create_revision, e.mod_revision, e.version, e.value, e.lease)
                ),
                e.time or _ZERO_TIME,
            )
            for e in events
        ]
        opening = b"," if self._begun else b"["
        self._begun = True
        return opening + _ENCODER.encode(entries)[1:-1]

    def finish(self) -> bytes:
        return b"]" if self._begun else b"[]"


def encode(events: Iterable[Event], *, batch: int = 1000) -> Iterator[bytes]:
    """The array as EBR would have written it, without its hash tail; `batch` events are held at a time."""
    encoder = DeltaEncoder()
    held: list[Event] = []
    for event in events:
        held.append(event)
        if len(held) >= batch:
            yield encoder.feed(held)
            held.clear()
    yield encoder.feed(held) + encoder.finish()


def decode(
    chunks: Iterable[bytes], *, name: str | None = None, last: int | None = None
) -> Iterator[list[Event]]:
    """The events in order, in lists made from about 1 MiB of JSON each; a revision may span two lists.

    Held to what etcd's history is made of: a key in every event, type put or delete, revisions that neither
    go back nor leave one out, puts with create_revision <= mod_revision and a version.  With `last`, the
    last event must have that revision.  Raises FormatError, or DamagedObjectError when the object's `name`
    is given.
    """
    revision, sub = 0, -1
    for entries in _lists(chunks, name):
        events: list[Event] = []
        append = events.append
        for entry in entries:
            event = entry.event
            kv = event.kv
            type_, key, create, mod = event.type, kv.key, kv.create_revision, kv.mod_revision
            if mod == revision:
                sub += 1
            elif mod == revision + 1 or (revision == 0 and mod > 0):
                revision, sub = mod, 0
            else:
                raise damage(name, f"an event of revision {mod} follows one of revision {revision}")
            sound = (
                0 < create <= mod and 0 < kv.version <= mod if type_ == PUT else type_ == DELETE and mod > 0
            )
            if not (sound and key and -_INT64_MAX <= kv.lease <= _INT64_MAX):
                raise damage(name, f"an event of revision {mod} is not one of etcd's: {_described(event)}")
            append(Event(type_, key, kv.value, create, mod, kv.version, kv.lease, entry.time, sub))
        if revision > _INT64_MAX:
            raise damage(name, f"revision {revision} is not an etcd revision")
        if events:
            yield events
    if last is not None and revision != last:
        raise damage(name, f"the last event has revision {revision}, not {last} as the name says")


def _described(event: _EtcdEvent) -> str:
    kv = event.kv
    return (
        f"type {event.type}, key of {len(kv.key)} bytes, created in {kv.create_revision}, "
        f"version {kv.version}, lease {kv.lease}"
    )


def first_after(events: Sequence[Event], moment: int) -> int | None:
    """Index of the first event whose revision was received after `moment` (nanoseconds, unix), or None.

    A revision is received with its first event: it is never cut.  Raises FormatError for an event without a
    time.
    """
    text, received = None, 0
    for index, event in enumerate(events):
        if event.sub:
            continue
        if event.time != text:
            text = event.time
            received = parse_time(text)
        if received > moment:
            return index
    return None


def format_time(nanoseconds: int) -> str:
    """RFC 3339 in UTC with as many digits as needed, as Go writes it."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch.  Raises FormatError for anything that is not RFC 3339, and for Go's zero
    time.
    """
    match = _RFC3339.match(text)
    if match is None or text == _ZERO_TIME:
        raise FormatError(
            f"event time {text!r} is not a moment",
            hint="this delta cannot be cut by time; name a revision instead",
        )
    try:
        moment = datetime.fromisoformat(match[1] + match[3])
    except ValueError as error:
        raise FormatError(f"event time {text!r} is not a moment", hint="name a revision instead") from error
    since = moment - _EPOCH
    return (since.days * 86400 + since.seconds) * 10**9 + int((match[2] or "0")[:9].ljust(9, "0"))


def _lists(chunks: Iterable[bytes], name: str | None) -> Iterator[list[_Entry]]:
    """Decode the array in lists.

    The fast cut is the last `},{"etcdEvent":` of a block.  No JSON string can contain it (its quote would
    end the string, and a bare word cannot follow), so in valid JSON it is made of structure.  It could
    still be structure of a deeper level; then the block has more than one bracket open, closing one does
    not make it valid, and decoding fails.  A failure is therefore not yet damage: from there on elements
    are found by counting brackets.
    """
    buffer = bytearray()
    counter: _Brackets | None = None
    cut_before = False
    for chunk in chunks:
        buffer += chunk
        if len(buffer) < _BLOCK:
            continue
        if counter is None:
            at = buffer.rfind(_BOUNDARY)
            if at > 0 and (entries := _try_decode(bytes(buffer[: at + 1]) + b"]")) is not None:
                yield entries
                del buffer[: at + 1]
                buffer[0:1] = b"["
                continue
            if at < 0 and len(buffer) < 4 * _BLOCK:
                continue
            counter = _Brackets()
        at = counter.last_comma(buffer)
        if at > 0:
            entries = _decode(bytes(buffer[:at]) + b"]", name)
            if not entries:
                raise damage(name, "the events are not valid JSON: an element is missing")
            yield entries
            del buffer[:at]
            buffer[0:1] = b"["
            counter.moved(at)
            cut_before = True
        elif len(buffer) > _ELEMENT_LIMIT:
            raise damage(name, f"one event is longer than {_ELEMENT_LIMIT >> 20} MiB")
    entries = _decode(bytes(buffer), name)
    if cut_before and not entries:
        raise damage(name, "the events are not valid JSON: an element is missing")
    yield entries


class _Brackets:
    """Finds commas between elements of the outermost array of any JSON, however the bytes arrive."""

    def __init__(self) -> None:
        self._position = 0
        self._depth = 0
        self._in_string = False
        self._comma = -1

    def last_comma(self, buffer: bytearray) -> int:
        """The last such comma so far, or -1."""
        while match := (_INSIDE if self._in_string else _OUTSIDE).search(buffer, self._position):
            at = match.start()
            byte = buffer[at]
            self._position = at + 1
            if self._in_string:
                if byte == 0x22:
                    self._in_string = False
                elif at + 1 < len(buffer):
                    self._position = at + 2
                else:
                    self._position = at
                    return self._comma
            elif byte == 0x22:
                self._in_string = True
            elif byte in b"[{":
                self._depth += 1
            elif byte in b"]}":
                self._depth -= 1
            elif self._depth == 1:
                self._comma = at
        self._position = len(buffer)
        return self._comma

    def moved(self, by: int) -> None:
        """The first `by` bytes of the buffer are gone, and its first byte now opens the array."""
        self._position -= by
        self._comma = -1


def _try_decode(array: bytes) -> list[_Entry] | None:
    try:
        return _DECODER.decode(array)
    except _NOT_PLAIN:
        pass
    try:
        return _decode_tolerantly(array)
    except (ValueError, RecursionError):
        return None


def _decode(array: bytes, name: str | None) -> list[_Entry]:
    try:
        return _DECODER.decode(array)
    except _NOT_PLAIN:
        pass
    try:
        return _decode_tolerantly(array)
    except RecursionError as error:
        raise damage(name, "the events are nested too deeply") from error
    except ValueError as error:
        raise damage(name, f"the events are not valid JSON ({error})") from error


def _decode_tolerantly(array: bytes) -> list[_Entry]:
    """As Go's decoder would: any case, unknown fields skipped, null is absent.  Raises ValueError."""
    document = json.loads(array.decode("utf-8", "replace"), parse_constant=_no_constant)
    if document is None:
        return []
    if not isinstance(document, list):
        raise ValueError("not an array")  # noqa: TRY004  one class for all that is wrong with the text
    return [_entry(_folded(element)) for element in document]


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _folded(element: Any) -> dict[str, Any]:
    """An object with its names in lower case; of several that fold alike the last wins."""
    if element is None:
        return {}
    if not isinstance(element, dict):
        raise ValueError("an object was expected")  # noqa: TRY004  as above
    return {name.casefold(): value for name, value in element.items() if value is not None}


def _entry(element: dict[str, Any]) -> _Entry:
    event = _folded(element.get("etcdevent"))
    kv = _folded(event.get("kv"))
    time = element.get("time", "")
    if not isinstance(time, str):
        raise ValueError("a time was expected")  # noqa: TRY004  as above
    return _Entry(
        _EtcdEvent(
            _integer(event, "type"),
            _KeyValue(
                _bytes(kv, "key"),
                _integer(kv, "create_revision"),
                _integer(kv, "mod_revision"),
                _integer(kv, "version"),
                _bytes(kv, "value"),
                _integer(kv, "lease"),
            ),
        ),
        time,
    )


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not -(2**63) <= value <= _INT64_MAX:
        raise ValueError(f"{name} is not a 64-bit integer")
    return value


def _bytes(fields: dict[str, Any], name: str) -> bytes:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not base64")  # noqa: TRY004  as above
    try:
        return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64") from error
