"""One delta from a running watch: whole revisions, encoded, hashed and compressed as they come.

What is held until the cut are the compressed bytes, because a delta's name says its last revision and its
claim the hash; a limit on the uncompressed size bounds them.  Between two cuts nothing is taken off the
watch, so that a store slower than etcd's writers slows etcd's stream and does not fill our memory.

A revision is never split, and none may be missing: in the whole keyspace etcd's revisions are dense, so a
hole in a watch is a lost event (as after a compaction of the tombstone at its start) and never passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.backup.capture.publisher import Tally, utc_now
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.history import nanoseconds
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.delta import DeltaEncoder, Event, format_time
from rootcellar.errors import CompactedError, EtcdError, EtcdUnavailableError
from rootcellar.etcd.fingerprint import change_of, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rootcellar.backup.capture.gate import Gate
    from rootcellar.etcd._proto import kv_pb2
    from rootcellar.etcd.watch import Watch

EBR_BYTES = 2 << 20
"""etcdbrctl cannot replay a revision that is a request of this many bytes,"""
EBR_OPERATIONS = 10_240
"""or of more operations."""

_OPERATION_BYTES = 24  # tags and lengths around key and value in a request; an upper bound below 2 MiB
_JSON_BYTES = 160  # names and numbers around key and value in a delta, about
_RUN_BYTES = 256 << 10
_SLICE = 0.25
"""Seconds of silence after which the goal and the gate are looked at again."""


Goal = Callable[[], int | None]
"""How far to go: None while there is no end to it, then a revision that etcd has."""


@dataclass(frozen=True, slots=True)
class DeltaLimits:
    """When a delta is cut: at a size of its JSON in bytes, and at an age of its first event in seconds.

    EBR holds a whole delta in memory several times over; its own limit is 10 MiB by default.  After `idle`
    seconds without an event etcd is taken for unable to deliver what it has.
    """

    size: int = 10 << 20
    age: float = 300.0
    idle: float = 60.0


@dataclass(frozen=True, slots=True)
class Cut:
    """A delta, ready to be stored.

    `leases` are the ids that its events mention, `heavy` the revisions that etcdbrctl cannot replay,
    `last_change` the fingerprint of its last revision.  `catch_up`: its events were history when the watch
    began, so their times are later than the changes.
    """

    start: int
    last: int
    payload: Tally
    stored: Tally
    chunks: list[bytes]
    cut_at: datetime
    first_received: datetime
    last_received: datetime
    leases: frozenset[int]
    heavy: tuple[int, ...]
    last_change: str
    catch_up: bool


@dataclass(slots=True)
class _Growing:
    """A delta under way."""

    start: int
    begun: float
    first_received: datetime
    last_received: datetime
    size: int = 0
    leases: set[int] = field(default_factory=set)
    heavy: list[int] = field(default_factory=list)


class Cutter:
    """Cuts a watch of the whole keyspace, which begins at revision `start`, into deltas.

    No delta ends where the gate does not admit it; once one is cut, the gate is to be left.  Revisions up to
    `history` were there when the watch began.
    """

    def __init__(
        self,
        watch: Watch,
        start: int,
        *,
        history: int,
        gate: Gate,
        limits: DeltaLimits,
        suffix: str = names.GZIP,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.position = start - 1
        """The last revision that was taken."""
        self._watch = watch
        self._history = history
        self._gate = gate
        self._limits = limits
        self._suffix = suffix
        self._clock = clock
        self._events: Sequence[kv_pb2.Event] = ()
        self._at = 0
        self._received = clock()
        self._revision: Sequence[kv_pb2.Event] = ()
        self._failure: EtcdError | None = None
        self._silent_since: float | None = None

    def next(self, goal: Goal) -> Cut | None:
        """The delta that comes next, ending at the goal or before at a limit; None when there.

        Raises what the watch and the goal raise, once all that came before it has been cut; CompactedError
        for a hole.
        """
        while True:
            target = goal()
            if target is not None and self.position >= target:
                return None
            if self._failure is not None:
                raise self._failure
            if self._at < len(self._events) or self._fill(target):
                break
        start = self.position + 1
        growing = _Growing(start, time.monotonic(), self._received, self._received)
        payload, stored = Tally(), Tally()
        chunks = list(stored.through(codecs.compress(self._payload(growing, payload, goal), self._suffix)))
        return Cut(
            start=start,
            last=self.position,
            payload=payload,
            stored=stored,
            chunks=chunks,
            cut_at=max(self._clock(), self._received),
            first_received=growing.first_received,
            last_received=growing.last_received,
            leases=frozenset(growing.leases),
            heavy=tuple(growing.heavy),
            last_change=fingerprint(map(change_of, self._revision)),
            catch_up=start <= self._history,
        )

    def _payload(self, growing: _Growing, payload: Tally, goal: Goal) -> Iterator[bytes]:
        """The JSON of this delta, then its hash."""
        encoder = DeltaEncoder()
        ended = False
        while not ended:
            try:
                target = goal()
                if self._is_due(growing, 0, target):
                    break
                if growing.size >= self._limits.size and self._gate.is_shut:
                    self._gate.wait(_SLICE)
                    continue
                if self._at >= len(self._events) and not self._fill(target):
                    continue
            except EtcdError as error:
                self._end_with(error, growing)
                break
            run, ended = self._run(growing, target)
            piece = encoder.feed(run)
            growing.size += len(piece)
            payload.add(piece)
            yield piece
        closing = encoder.finish()
        payload.add(closing)
        yield closing
        yield payload.digest

    def _fill(self, target: int | None) -> bool:
        """Have events at hand; False when none came for a moment."""
        batch = self._watch.get(_SLICE)
        if batch is None or not batch.events:
            self._bear_silence(target)
            return False
        self._silent_since = None
        self._events, self._at = batch.events, 0
        # A clock that is set back must not make a later change look earlier.
        self._received = max(self._clock(), self._received)
        return True

    def _bear_silence(self, target: int | None) -> None:
        """Raises when etcd, which says that there is more, has not brought it for too long."""
        if target is None or self.position >= target:
            self._silent_since = None
            return
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since >= self._limits.idle:
            raise EtcdUnavailableError(
                f"etcd has brought nothing behind revision {self.position}"
                f" for {self._limits.idle:.0f} s, though it says that there is more",
                hint="look at the member's load and its disk, then try again",
            )

    def _run(self, growing: _Growing, target: int | None) -> tuple[list[Event], bool]:
        """The next of the events at hand, in whole revisions, and whether the delta ends with them."""
        events, received = self._events, format_time(nanoseconds(self._received) or 0)
        run: list[Event] = []
        written, due = 0, False
        while self._at < len(events) and written < _RUN_BYTES and not due:
            revision = events[self._at].kv.mod_revision
            end = self._at + 1
            while end < len(events) and events[end].kv.mod_revision == revision:
                end += 1
            if revision != self.position + 1:
                hole = f"etcd no longer tells what revisions {self.position + 1} to {revision - 1} changed"
                self._end_with(CompactedError(hole, hint="take a new full"), growing)
                due = True
                break
            self._revision = events[self._at : end]
            weight = 0
            for event in self._revision:
                kv = event.kv
                run.append(
                    Event(
                        event.type,
                        kv.key,
                        kv.value,
                        kv.create_revision,
                        revision,
                        kv.version,
                        kv.lease,
                        received,
                    )
                )
                weight += len(kv.key) + len(kv.value) + _OPERATION_BYTES
                if kv.lease:
                    growing.leases.add(kv.lease)
            if weight >= EBR_BYTES or len(self._revision) > EBR_OPERATIONS:
                growing.heavy.append(revision)
            self._at, self.position = end, revision
            written += weight * 4 // 3 + _JSON_BYTES * len(self._revision)
            due = self._is_due(growing, written, target)
        growing.last_received = self._received
        return run, due

    def _end_with(self, error: EtcdError, growing: _Growing) -> None:
        """What came before an error is whole and may be all there ever is: end the delta there if it can."""
        if self.position < growing.start or not self._gate.admits(self.position):
            raise error
        self._failure = error

    def _is_due(self, growing: _Growing, written: int, target: int | None) -> bool:
        if self.position < growing.start:
            return False
        reached = target is not None and self.position >= target
        late = time.monotonic() - growing.begun >= self._limits.age
        large = growing.size + written >= self._limits.size
        return (reached or late or large) and self._gate.admits(self.position)
