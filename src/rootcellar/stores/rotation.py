"""What is made of credentials, and anew when they change: keys of a mounted Secret, an identity's tokens."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rootcellar.stores.credentials import Credentials

T = TypeVar("T")


class Rotating(Generic[T]):
    """What `make` makes of the values of `source`, for all threads; `good` says whether it still serves.

    Files may be missing for a moment while they are swapped: what was made of the last whole ones serves
    until the new ones are whole, and if it is let in no longer, the store will say so.
    """

    def __init__(
        self,
        source: Credentials,
        make: Callable[[Mapping[str, str]], T],
        good: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._source = source
        self._make = make
        self._good = good
        self._lock = threading.Lock()
        self._stamp: object = None
        self._made: T | None = None

    def current(self) -> T:
        """Raises what `make` raises, and ConfigError where the source has nothing yet."""
        with self._lock:
            old = self._made
            if old is not None and not self._good(old):
                old = None
            if old is not None and self._source.stamp() == self._stamp:
                return old
            try:
                stamp, values = self._read()
                made = self._make(values)
            except ConfigError:
                if old is None:
                    raise
                self._stamp = object()  # that of the next ones may be the old one: a clock has its ticks
                return old
            self._made, self._stamp = made, stamp
            return made

    def refused(self, made: T) -> None:
        """The store does not take it any more: make another one next time."""
        with self._lock:
            if self._made is made:
                self._made = None

    def _read(self) -> tuple[object, Mapping[str, str]]:
        while True:  # until nobody changed the files while they were read
            stamp = self._source.stamp()
            values = self._source.load()
            if self._source.stamp() == stamp:
                return stamp, values
