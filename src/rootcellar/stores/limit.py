"""A bandwidth limit, so that backups leave room on a thin line.

One `Bandwidth` may be shared by many stores, calls and threads: together they stay below its rate.  The
limit is on the bytes of objects as they pass to and from the store's caller; a provider that gathers them
into parts sends each part as fast as the line allows, and the average holds.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rootcellar.errors import UsageError
from rootcellar.stores.backoff import Clock, SystemClock
from rootcellar.stores.decorator import StoreDecorator, tapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.stores.protocol import ObjectInfo, PutCondition, Store


class Bandwidth:
    """A token bucket of `rate` bytes per second that holds at most one second's worth.

    Taking more than is there puts it in debt, and whoever took waits until the debt is paid: so a chunk
    larger than the bucket passes too, and waiting callers keep their order.
    """

    def __init__(self, rate: float, *, clock: Clock | None = None) -> None:
        if rate <= 0:
            raise UsageError(f"a limit of {rate} bytes per second lets nothing through")
        self.rate = rate
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tokens = rate
        self._at = self._clock.monotonic()

    def take(self, size: int) -> None:
        """Wait until `size` bytes may pass."""
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self.rate, self._tokens + (now - self._at) * self.rate) - size
            self._at = now
            wait = -self._tokens / self.rate
        if wait > 0:
            self._clock.sleep(wait)


class LimitedStore(StoreDecorator):
    """`inner`, slowed down to `upload` and `download`; None is no limit."""

    def __init__(
        self, inner: Store, *, upload: Bandwidth | None = None, download: Bandwidth | None = None
    ) -> None:
        super().__init__(inner)
        self._upload = upload
        self._download = download

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        for chunk in self.inner.get(key, start=start, end=end, version=version, etag=etag):
            if self._download:
                self._download.take(len(chunk))
            yield chunk

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        upload = self._upload
        if upload:
            chunks = tapped(chunks, lambda chunk: upload.take(len(chunk)))
        return self.inner.put(key, chunks, condition=condition)
