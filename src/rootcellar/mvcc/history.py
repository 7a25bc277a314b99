"""Reading a database file as etcd answers a Range: the keys at a revision, and the past of one key.

The `key` bucket is in revision order and has no index by key; etcd builds one in memory when it starts.  So
a read here is a scan of the rows up to its revision.  Rows outside the wanted range are passed over as
arrays, and what is kept is one small entry per live key of the range (its key, and where its record lies:
some 100 bytes beside the key); records are read from the file's map when somebody looks at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from rootcellar.errors import CompactedError, UsageError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.record import KeyValue, decode, decode_key
from rootcellar.mvcc.revision import Revision
from rootcellar.mvcc.rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rootcellar.bolt.file import BoltFile, Buffer
    from rootcellar.bolt.tree import Integers
    from rootcellar.mvcc.rows import Rows

_FILTER_WORDS = 8
"""Rows are told apart by this many times 8 bytes of their keys before any key is made a Python object."""
_SIZE_BITS = 24
_LARGE = (1 << _SIZE_BITS) - 1
_GONE = 0


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `start` on and below `end`; `end` None: all from `start` on."""

    start: bytes = b""
    end: bytes | None = None

    @classmethod
    def prefix(cls, prefix: bytes) -> Self:
        """All keys that begin with `prefix`."""
        stem = prefix.rstrip(b"\xff")
        return cls(prefix, stem[:-1] + bytes([stem[-1] + 1]) if stem else None)

    @classmethod
    def single(cls, key: bytes) -> Self:
        """One key."""
        return cls(key, key + b"\0")

    @property
    def is_everything(self) -> bool:
        return not self.start and self.end is None

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def for_etcd(self) -> tuple[bytes, bytes]:
        """Key and range end of a call that means the same."""
        return self.start or b"\0", b"\0" if self.end is None else self.end


EVERYTHING = KeyRange()


class Entry:
    """A live key and where its record lies.  Valid while its file is open."""

    __slots__ = ("_buffer", "_end", "_start", "key")

    def __init__(self, key: bytes, buffer: Buffer, start: int, end: int) -> None:
        self.key = key
        self._buffer, self._start, self._end = buffer, start, end

    @property
    def stored(self) -> bytes:
        """The record as it lies in the file."""
        return self._buffer[self._start : self._end]

    @property
    def record(self) -> KeyValue:
        """The record, read anew each time.  Raises RecordError."""
        return decode(self.stored)

    def is_same(self, other: Entry) -> bool:
        """Whether both records are the same, byte for byte.  Costs nothing where they are one row."""
        here = (self._buffer is other._buffer, self._start, self._end) == (True, other._start, other._end)
        return here or self.stored == other.stored


class Version(NamedTuple):
    """A key as one change left it.  Of a deletion the record holds the key and its mod_revision alone."""

    record: KeyValue
    is_deletion: bool


@dataclass(frozen=True, slots=True)
class Scanned:
    """Rows of a scan, in revision order: the key each is about, and which rows of `rows` they are."""

    rows: Rows
    index: Integers
    keys: list[bytes]

    def is_deletion(self) -> NDArray[np.bool_]:
        return self.rows.is_tombstone[self.index]

    def records(self) -> tuple[Integers, Integers]:
        """Where each row's record begins and ends, as offsets into the file's buffer."""
        return self.rows.elements.values[self.index], self.rows.elements.ends[self.index]

    def sizes(self) -> Integers:
        """Bytes of each row: its row key and its record, without what bbolt spends on an element."""
        return self.rows.elements.ends[self.index] - self.rows.elements.keys[self.index]


class Keyspace:
    """The keys of an open file at one revision."""

    def __init__(self, file: BoltFile, revision: int | None = None) -> None:
        """At `revision` (default: the last).  Raises CompactedError, UsageError (a future revision) as etcd
        refuses such a read; RecordError, BoltError.
        """
        meta = StoreMeta.read(file)
        self.last_revision = meta.revision
        self.compact_revision = meta.compact_revision
        at = meta.revision if revision is None else Revision(revision)
        if at > meta.revision:
            raise UsageError(
                f"revision {at} is in the future: the last one here is {meta.revision}",
                hint=f"choose revision {meta.revision} or an earlier one",
            )
        if at < meta.compact_revision:
            raise CompactedError(
                f"revision {at} was compacted away (compacted at {meta.compact_revision})",
                hint=f"choose revision {meta.compact_revision} or a later one, or an older backup",
            )
        self.revision = at
        self._rows = KeyRows(file)

    def live(self, within: KeyRange = EVERYTHING) -> Iterator[Entry]:
        """The live keys in key order, as a Range answers them.  Raises RecordError, BoltError."""
        newest, large = self._newest(within)
        buffer = self._rows.tree.buffer
        for key in sorted(newest):
            start, size = divmod(newest[key], 1 << _SIZE_BITS)
            yield Entry(key, buffer, start, start + (large[start] if size == _LARGE else size))

    def get(self, key: bytes) -> Entry | None:
        """One live key, or None.  Raises RecordError, BoltError."""
        return next(self.live(KeyRange.single(key)), None)

    def history(self, key: bytes) -> Iterator[Version]:
        """What happened to a key up to this revision, oldest first.  Raises RecordError, BoltError.

        It begins with what the key was at the compact revision: what came before that may still lie in the
        file, but with holes.
        """
        before: Version | None = None
        for scanned in self.scan(KeyRange.single(key)):
            starts, ends = scanned.records()
            mains = scanned.rows.mains[scanned.index]
            for main, gone, start, end in zip(
                mains.tolist(), scanned.is_deletion().tolist(), starts.tolist(), ends.tolist(), strict=True
            ):
                record = decode(self._rows.tree.buffer[start:end])
                version = Version(KeyValue(record.key, mod_revision=main) if gone else record, gone)
                if main <= self.compact_revision:
                    before = None if gone and main < self.compact_revision else version
                    continue
                if before is not None:
                    yield before
                    before = None
                yield version
        if before is not None:
            yield before

    def scan(self, within: KeyRange = EVERYTHING) -> Iterator[Scanned]:
        """All rows of these keys up to the revision, superseded ones and deletions too, in revision order.

        Raises RecordError, BoltError.
        """
        for rows in self._rows:
            count = int(np.searchsorted(rows.mains, self.revision, "right"))
            scanned = _scanned(rows, count, within)
            if scanned.keys:
                yield scanned
            if count < len(rows):
                return

    def _newest(self, within: KeyRange) -> tuple[dict[bytes, int], dict[int, int]]:
        """Where the record of each live key lies: offset << 24 | size, and the sizes that do not fit."""
        newest: dict[bytes, int] = {}
        large: dict[int, int] = {}
        for scanned in self.scan(within):
            starts, ends = scanned.records()
            sizes = ends - starts
            gone = scanned.is_deletion()
            for at in np.flatnonzero(sizes >= _LARGE).tolist():
                large[int(starts[at])] = int(sizes[at])
            places = np.where(gone, _GONE, starts << _SIZE_BITS | np.minimum(sizes, _LARGE))
            newest.update(zip(scanned.keys, places.tolist(), strict=True))
            for at in np.flatnonzero(gone).tolist():
                if newest.get(scanned.keys[at]) == _GONE:
                    del newest[scanned.keys[at]]
        return newest, large


def _scanned(rows: Rows, count: int, within: KeyRange) -> Scanned:
    """Those of the first `count` rows that are about a key of the range."""
    elements, tree = rows.elements, rows.tree
    values, ends = elements.values[:count], elements.ends[:count]
    # A record begins with tag 0x0a, then the key's size in one byte, or two from 128 on.
    head = tree.key_words(values, ends, 1)[0]
    first = (head >> np.uint64(48) & np.uint64(0xFF)).astype(np.int64)
    second = (head >> np.uint64(40) & np.uint64(0xFF)).astype(np.int64)
    short = first < 0x80
    starts = values + np.where(short, 2, 3)
    stops = starts + np.where(short, first, first & 0x7F | second << 7)
    plain = (head >> np.uint64(56) == 0x0A) & (short | (second < 0x80)) & (stops <= ends)
    index = np.arange(count)
    if not within.is_everything:
        index = np.flatnonzero(~plain | _may_lie(tree.key_words(starts, stops, _words(within)), within))
    buffer = tree.buffer
    spans = zip(starts[index].tolist(), stops[index].tolist(), plain[index].tolist(), strict=True)
    keys = [
        buffer[a:b] if is_plain else decode_key(buffer[int(values[row]) : int(ends[row])])
        for row, (a, b, is_plain) in zip(index.tolist(), spans, strict=True)
    ]
    if not within.is_everything:
        kept = [at for at, key in enumerate(keys) if key in within]
        index, keys = index[kept], [keys[at] for at in kept]
    return Scanned(rows, index, keys)


def _words(within: KeyRange) -> int:
    longest = max(len(within.start), len(within.end or b""))
    return min(-(-longest // 8), _FILTER_WORDS)


def _may_lie(words: NDArray[np.uint64], within: KeyRange) -> NDArray[np.bool_]:
    """Whether each key, known by its first bytes padded with zeros, can lie in the range.

    Cutting and padding keep the order of keys, but for making some equal.
    """
    count, possible = words.shape[0], np.ones(words.shape[1], np.bool_)
    for bound, is_start in ((within.start, True), (within.end, False)):
        if bound is None:
            continue
        limit = np.frombuffer(bound[: 8 * count].ljust(8 * count, b"\0"), ">u8").astype(np.uint64)
        beyond = np.zeros(words.shape[1], np.bool_)
        for column, edge in zip(words[::-1], limit[::-1], strict=True):
            outside = column < edge if is_start else column > edge
            beyond = outside | ((column == edge) & beyond)
        possible &= ~beyond
    return possible
