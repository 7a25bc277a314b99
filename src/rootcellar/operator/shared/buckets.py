"""Buckets that many objects of one landscape lie in, each opened once."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from rootcellar.stores.backoff import Backoff
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from rootcellar.operator.shared.place import Place
    from rootcellar.stores.protocol import Store

GIVES_UP_SOON: Final = Backoff(attempts=2, deadline=20.0)
"""For looks at a store whose answer nobody waits for."""
_MOST: Final = 64
_FRESH_SECONDS: Final = 5.0


class Buckets:
    """For all threads.  Whoever has the same keys to the same bucket, in secrets of their own, shares one
    connection to it: to make a client of S3 takes 0.2 s of a core, which for thousands would be most.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[object, ...], Store] = {}
        self._listed: WeakKeyDictionary[Store, float] = WeakKeyDictionary()
        self._lock = Lock()

    def probe(self, place: Place, prefix: str) -> None:
        """See that what lies under a prefix can be listed.  Raises as a store does where it cannot.

        A bucket that let us list seconds ago is not asked again: when thousands of objects are worked on at
        once, this request would be a third of the work.
        """
        store = self.store(place)
        if time.monotonic() - self._listed.get(store, -_FRESH_SECONDS) < _FRESH_SECONDS:
            return
        next(iter(store.list(prefix)), None)
        self._listed[store] = time.monotonic()

    def store(self, place: Place) -> Store:
        """The whole bucket, to be looked at.  Raises as `open_store`."""
        known = (place.url, *sorted(place.credentials.load().items()))
        with self._lock:
            if known not in self._opened:
                if len(self._opened) >= _MOST:
                    self._opened.clear()
                self._opened[known] = open_store(
                    place.url, credentials=place.credentials, backoff=GIVES_UP_SOON
                )
            return self._opened[known]
