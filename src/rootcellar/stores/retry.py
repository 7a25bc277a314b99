"""Trying again.

Only TransientError is worth it, and only what can be begun again is begun again:

* calls that read, delete or set are repeated as they are
* a listing goes on behind the last key it gave
* a put is repeated while nothing of its chunks was consumed, or when they are a sequence.  A conditional
  put is never repeated once its bytes may have arrived: the second attempt would lose against the first
* a get is repeated until its first byte.  After that it goes on from the byte reached only when the caller
  has pinned the object (`version` or `etag`): else the rest could be of another object.  The providers pin
  and resume by themselves, so what breaks here is beyond them
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rootcellar.errors import StoreError, TransientError
from rootcellar.stores.backoff import Attempts, Backoff, Clock, SystemClock
from rootcellar.stores.decorator import StoreDecorator

if TYPE_CHECKING:
    from datetime import timedelta

    from rootcellar.stores.protocol import Capabilities, ObjectInfo, PutCondition, Retention, Store

T = TypeVar("T")

BATCH = 1000
"""Keys of a delete_many that are tried and retried together; also what one S3 request takes."""


class RetryingStore(StoreDecorator):
    """`inner`, with every call tried as often as `backoff` allows."""

    def __init__(
        self,
        inner: Store,
        backoff: Backoff | None = None,
        *,
        clock: Clock | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(inner)
        self._backoff = backoff or Backoff()
        self._clock = clock or SystemClock()
        self._uniform = uniform

    def _attempts(self) -> Attempts:
        return Attempts(self._backoff, self._clock, self._uniform)

    def _run(self, work: Callable[[], T]) -> T:
        return self._attempts().run(work)

    def probe(self) -> Capabilities:
        return self._run(self.inner.probe)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        attempts = self._attempts()
        while True:
            try:
                for info in self.inner.list(prefix, after=after):
                    after = info.key
                    attempts.progressed()
                    yield info
            except TransientError as error:
                attempts.failed(error)
            else:
                return

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        return self._run(lambda: self.inner.stat(key, version=version))

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        attempts = self._attempts()
        begun = False
        while True:
            try:
                for chunk in self.inner.get(key, start=start, end=end, version=version, etag=etag):
                    begun = True
                    start += len(chunk)
                    attempts.progressed()
                    yield chunk
            except TransientError as error:
                if begun and version is None and etag is None:
                    raise
                attempts.failed(error)
            else:
                return

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        attempts = self._attempts()
        repeatable = isinstance(chunks, Sequence) and condition is None
        source = chunks if repeatable else _Untouched(chunks)
        while True:
            try:
                return self.inner.put(key, source, condition=condition)
            except TransientError as error:
                if isinstance(source, _Untouched) and source.touched:
                    raise
                attempts.failed(error)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self._run(lambda: self.inner.delete(key, version=version))

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        rest = iter(keys)
        failed: dict[str, StoreError] = {}
        while batch := list(itertools.islice(rest, BATCH)):
            failed.update(self._delete_batch(batch))
        return failed

    def _delete_batch(self, batch: Sequence[str]) -> dict[str, StoreError]:
        attempts = self._attempts()
        failed: dict[str, StoreError] = {}
        while True:
            try:
                result = self.inner.delete_many(batch)
            except TransientError as error:
                attempts.failed(error)
                continue
            failed |= result
            passing = {key: error for key, error in result.items() if isinstance(error, TransientError)}
            if not passing:
                return failed
            try:
                attempts.failed(next(iter(passing.values())))
            except TransientError:
                return failed
            batch = tuple(passing)
            for key in batch:
                del failed[key]

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        attempts = self._attempts()
        last = b""
        seen: set[str | None] = set()  # versions of `last` already given
        while True:
            try:
                for info in self.inner.versions(prefix):
                    key = info.key.encode()
                    if key < last or (key == last and info.version in seen):
                        continue
                    if key != last:
                        last, seen = key, set()
                    seen.add(info.version)
                    attempts.progressed()
                    yield info
            except TransientError as error:
                attempts.failed(error)
            else:
                return

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return self._run(lambda: self.inner.retention(key, version=version))

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        self._run(lambda: self.inner.set_retention(key, retention, version=version))

    def abort_leftovers(self, older_than: timedelta) -> int:
        return self._run(lambda: self.inner.abort_leftovers(older_than))


class _Untouched:
    """Chunks that know whether anybody has begun to take them."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.touched = False

    def __iter__(self) -> Iterator[bytes]:
        self.touched = True  # runs with the first next(), not with iter()
        yield from self._chunks
