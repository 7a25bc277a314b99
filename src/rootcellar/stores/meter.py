"""Counting what passes: calls, bytes, errors by class, time.

The time of a call is the time spent inside the store: a reader that takes its time between two chunks, or a
slow source of a put, does not make the store look slow.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rootcellar.errors import RootcellarError, StoreError
from rootcellar.stores.decorator import StoreDecorator, tapped

if TYPE_CHECKING:
    from datetime import timedelta

    from rootcellar.stores.protocol import Capabilities, ObjectInfo, PutCondition, Retention, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VerbReading:
    """What one verb has done so far.  `errors` counts by code (`rootcellar.errors`); `seconds` is the sum."""

    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0


@dataclass(frozen=True, slots=True)
class MeterReading:
    """All verbs by name, and the bytes of objects that went up and came down."""

    verbs: dict[str, VerbReading]
    uploaded: int
    downloaded: int


class Meter:
    """The counters.  Several stores may share one; safe from several threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._verbs: dict[str, VerbReading] = {}
        self._bytes: Counter[str] = Counter()

    def read(self) -> MeterReading:
        """A copy of the counters as they are now."""
        with self._lock:
            return MeterReading(dict(self._verbs), self._bytes["up"], self._bytes["down"])

    def count(self, direction: str, size: int) -> None:
        """Add bytes that went "up" or "down"."""
        with self._lock:
            self._bytes[direction] += size

    def ended(self, verb: str, seconds: float, errors: Iterable[BaseException] = ()) -> None:
        """Add one finished call."""
        codes = Counter(error.code if isinstance(error, RootcellarError) else "other" for error in errors)
        with self._lock:
            old = self._verbs.get(verb, VerbReading())
            self._verbs[verb] = VerbReading(
                calls=old.calls + 1,
                errors=dict(Counter(old.errors) + codes),
                seconds=old.seconds + seconds,
                slowest=max(old.slowest, seconds),
            )


class MeteredStore(StoreDecorator):
    """`inner`, with every call counted in `meter`."""

    def __init__(self, inner: Store, meter: Meter | None = None) -> None:
        super().__init__(inner)
        self.meter = meter or Meter()

    def _timed(self, verb: str, work: Callable[[], T], *, waited: Callable[[], float] = float) -> T:
        errors: list[BaseException] = []
        begun = self.meter.monotonic()
        try:
            return work()
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            self.meter.ended(verb, self.meter.monotonic() - begun - waited(), errors)

    def _stream(self, verb: str, begin: Callable[[], Iterator[T]]) -> Iterator[T]:
        inside = 0.0
        errors: list[BaseException] = []
        items: Iterator[T] | None = None
        try:
            while True:
                begun = self.meter.monotonic()
                try:
                    if items is None:
                        items = begin()
                    item = next(items)
                except StopIteration:
                    return
                except BaseException as error:
                    errors.append(error)
                    raise
                finally:
                    inside += self.meter.monotonic() - begun
                yield item
        finally:
            self.meter.ended(verb, inside, errors)

    def probe(self) -> Capabilities:
        return self._timed("probe", self.inner.probe)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self._stream("list", lambda: self.inner.list(prefix, after=after))

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        return self._timed("stat", lambda: self.inner.stat(key, version=version))

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        def begin() -> Iterator[bytes]:
            return self.inner.get(key, start=start, end=end, version=version, etag=etag)

        for chunk in self._stream("get", begin):
            self.meter.count("down", len(chunk))
            yield chunk

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        if isinstance(chunks, Sequence):
            ready = tapped(chunks, lambda chunk: self.meter.count("up", len(chunk)))
            return self._timed("put", lambda: self.inner.put(key, ready, condition=condition))
        source = _Source(chunks, self.meter)
        return self._timed(
            "put",
            lambda: self.inner.put(key, source, condition=condition),
            waited=lambda: source.waited,
        )

    def delete(self, key: str, *, version: str | None = None) -> None:
        self._timed("delete", lambda: self.inner.delete(key, version=version))

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        failed: dict[str, StoreError] = {}
        begun = self.meter.monotonic()
        try:
            failed = self.inner.delete_many(keys)
        except StoreError as error:
            self.meter.ended("delete_many", self.meter.monotonic() - begun, [error])
            raise
        self.meter.ended("delete_many", self.meter.monotonic() - begun, failed.values())
        return failed

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._stream("versions", lambda: self.inner.versions(prefix))

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return self._timed("retention", lambda: self.inner.retention(key, version=version))

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        self._timed("set_retention", lambda: self.inner.set_retention(key, retention, version=version))

    def abort_leftovers(self, older_than: timedelta) -> int:
        return self._timed("abort_leftovers", lambda: self.inner.abort_leftovers(older_than))


class _Source:
    """Chunks that are counted, with the seconds spent waiting for them."""

    def __init__(self, chunks: Iterable[bytes], meter: Meter) -> None:
        self._chunks = chunks
        self._meter = meter
        self.waited = 0.0

    def __iter__(self) -> Iterator[bytes]:
        begun = self._meter.monotonic()
        for chunk in self._chunks:
            self.waited += self._meter.monotonic() - begun
            self._meter.count("up", len(chunk))
            yield chunk
            begun = self._meter.monotonic()
        self.waited += self._meter.monotonic() - begun
