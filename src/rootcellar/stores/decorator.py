"""What every decorator shares: it is a store, because it forwards to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from datetime import timedelta

    from rootcellar.errors import StoreError
    from rootcellar.stores.protocol import Capabilities, ObjectInfo, PutCondition, Retention, Store


class StoreDecorator:
    """Forwards all of the protocol to `inner`; a decorator overrides what it changes."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        return self.inner.url

    def probe(self) -> Capabilities:
        return self.inner.probe()

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after=after)

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        return self.inner.stat(key, version=version)

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        return self.inner.get(key, start=start, end=end, version=version, etag=etag)

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        return self.inner.put(key, chunks, condition=condition)

    def delete(self, key: str, *, version: str | None = None) -> None:
        self.inner.delete(key, version=version)

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        return self.inner.delete_many(keys)

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self.inner.versions(prefix)

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return self.inner.retention(key, version=version)

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        self.inner.set_retention(key, retention, version=version)

    def abort_leftovers(self, older_than: timedelta) -> int:
        return self.inner.abort_leftovers(older_than)


def tapped(chunks: Iterable[bytes], tap: Callable[[bytes], None]) -> Iterable[bytes]:
    """`chunks`, with `tap` called for each before it passes.  A sequence stays one, so that a retry below can
    still begin again.
    """
    if isinstance(chunks, Sequence):
        return _Tapped(chunks, tap)
    return _tapped(chunks, tap)


def _tapped(chunks: Iterable[bytes], tap: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        tap(chunk)
        yield chunk


class _Tapped(tuple[bytes, ...]):  # noqa: SLOT001 - a tuple cannot have slots
    tap: Callable[[bytes], None]

    def __new__(cls, chunks: Iterable[bytes], tap: Callable[[bytes], None]) -> Self:
        self = super().__new__(cls, chunks)
        self.tap = tap
        return self

    def __iter__(self) -> Iterator[bytes]:
        return _tapped(super().__iter__(), self.tap)
