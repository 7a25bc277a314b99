"""Buckets that many objects of one landscape lie in, each opened once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from rootcellar.stores.backoff import Backoff
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from rootcellar.operator.shared.place import Place
    from rootcellar.stores.protocol import Store

GIVES_UP_SOON: Final = Backoff(attempts=2, deadline=20.0)
"""For looks at a store whose answer nobody waits for."""
_MOST: Final = 64
_FRESH_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Bucket:
    """`listed` is when it last let us list, in monotonic seconds."""

    store: Store
    listed: float = float("-inf")


class Buckets:
    """For all threads.  Whoever has the same keys to the same bucket, in secrets of their own, shares one
    connection to it: to make a client of S3 takes 0.2 s of a core, which for thousands would be most.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[object, ...], _Bucket] = {}
        self._lock = Lock()

    def probe(self, place: Place, prefix: str) -> None:
        """See that what lies under a prefix can be listed.  Raises as a store does where it cannot.

        A bucket that let us list seconds ago is not asked again: when thousands of objects are worked on at
        once, this request would be a third of the work.
        """
        bucket = self._bucket(place)
        if time.monotonic() - bucket.listed < _FRESH_SECONDS:
            return
        next(iter(bucket.store.list(prefix)), None)
        bucket.listed = time.monotonic()

    def store(self, place: Place) -> Store:
        """The whole bucket, to be looked at.  Raises as `open_store`."""
        return self._bucket(place).store

    def _bucket(self, place: Place) -> _Bucket:
        known = (place.url, *sorted(place.credentials.load().items()))
        with self._lock:
            if known not in self._opened:
                if len(self._opened) >= _MOST:
                    self._opened.clear()
                store = open_store(place.url, credentials=place.credentials, backoff=GIVES_UP_SOON)
                self._opened[known] = _Bucket(store)
            return self._opened[known]
