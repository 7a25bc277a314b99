"""A delta's events as rows of etcd's `key` bucket: what an etcd that had lived through them would hold.

A watch event carries the whole stored record, and its position within its revision is the sub revision, so
the history comes back record for record: a tombstone keeps the key alone, everything else is the KeyValue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.objects import delta
from rootcellar.mvcc.record import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rootcellar.backup.objects.delta import Event

SUB_BITS = 32


@dataclass(frozen=True, slots=True)
class Window:
    """Which events of a delta are wanted: revisions above `above`, up to `upto`, received by `moment` (unix
    ns).

    Of those at or below `compact_revision` only each key's newest is.
    """

    above: int
    upto: int | None = None
    moment: int | None = None
    compact_revision: int = -1


def wanted(lists: Iterable[list[Event]], window: Window) -> Iterator[list[Event]]:
    """The events between the window's bounds, superseded ones included.  Ends early where the window ends."""
    for events in lists:
        end = len(events)
        stop = False
        if window.moment is not None:
            cut = delta.first_after(events, window.moment)
            if cut is not None:
                end, stop = cut, True
        if window.upto is not None and events[-1].mod_revision > window.upto:
            end = min(end, next(i for i, event in enumerate(events) if event.mod_revision > window.upto))
            stop = True
        begin = 0
        if events[0].mod_revision <= window.above:
            begin = next((i for i, event in enumerate(events) if event.mod_revision > window.above), end)
        if begin < end:
            yield events[begin:end]
        if stop:
            return


def newest_below(lists: Iterable[list[Event]], window: Window, newest: dict[bytes, int]) -> int:
    """Note in `newest` the last event of each key at or below the window's compact revision.

    Returns the last revision seen, the compact revision at most.
    """
    limit, reached = window.compact_revision, 0
    for events in wanted(lists, window):
        for event in events:
            if event.mod_revision > limit:
                return limit
            newest[event.key] = event.mod_revision << SUB_BITS | event.sub
        reached = events[-1].mod_revision
    return reached


@dataclass(slots=True)
class RowBlock:
    """Rows in order, with what else their events tell: leases attached and the last revision and time."""

    keys: list[bytes]
    values: list[bytes]
    leases: set[int]
    first_revision: int
    last_revision: int
    last_time: str
    events: int


def blocks(lists: Iterable[list[Event]], window: Window, newest: Mapping[bytes, int]) -> Iterator[RowBlock]:
    """The rows of a delta, one block per list of events.

    `newest` says, for each key that the chain touches at or below the window's compact revision, which event
    is its last one there (main << SUB_BITS | sub); the others there are superseded and left out.
    """
    compacted = window.compact_revision
    for events in wanted(lists, window):
        last = events[-1]
        kept = events
        if events[0].mod_revision <= compacted:
            kept = [
                event
                for event in events
                if event.mod_revision > compacted
                or (
                    newest[event.key] == event.mod_revision << SUB_BITS | event.sub
                    and (event.type == delta.PUT or event.mod_revision == compacted)
                )
            ]
        keys, values = _rows(kept)
        leases = {event.lease for event in kept if event.lease}
        yield RowBlock(
            keys, values, leases, events[0].mod_revision, last.mod_revision, last.time, len(events)
        )


def _rows(events: list[Event]) -> tuple[list[bytes], list[bytes]]:
    """Row keys and values.  Written out rather than composed: this runs once per event of a chain."""
    keys: list[bytes] = []
    values: list[bytes] = []
    number = uvarint
    main, prefix, first = -1, b"", b""
    zero = bytes(8)
    for event in events:
        mod = event.mod_revision
        if mod != main:
            main = mod
            prefix = mod.to_bytes(8, "big") + b"_"
            first = prefix + zero
        row = first if event.sub == 0 else prefix + event.sub.to_bytes(8, "big")
        key = event.key
        if event.type:
            keys.append(row + b"t")
            values.append(b"\x0a" + number(len(key)) + key)
            continue
        value = event.value
        keys.append(row)
        head = b"\x0a%b%b\x10%b\x18%b\x20%b" % (
            number(len(key)),
            key,
            number(event.create_revision),
            number(mod),
            number(event.version),
        )
        if value:
            head = b"%b\x2a%b%b" % (head, number(len(value)), value)
        if event.lease:
            head += b"\x30" + number(event.lease)
        values.append(head)
    return keys, values
