"""What is made of credentials, and anew when they change: keys of a mounted Secret, an identity's tokens."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rootcellar.stores.credentials import Credentials

T = TypeVar("T")

_PAUSE = 30.0
"""Seconds until an identity service that was away is asked again, while the last token serves."""


class Rotating(Generic[T]):
    """What `make` makes of the values of `source`, for all threads; `good` says whether another is not due.

    Files may be missing for a moment while they are swapped: what was made of the last whole ones serves
    until the new ones are whole, and if it is let in no longer, the store will say so.  What is due, but
    `serves` a while yet, does so where whoever makes another is away.
    """

    def __init__(
        self,
        source: Credentials,
        make: Callable[[Mapping[str, str]], T],
        good: Callable[[T], bool] = lambda _: True,
        serves: Callable[[T], bool] | None = None,
    ) -> None:
        self._source = source
        self._make = make
        self._good = good
        self._serves = serves or good
        self._lock = threading.Lock()
        self._stamp: object = None
        self._made: T | None = None
        self._not_before = 0.0

    def current(self) -> T:
        """Raises what `make` raises, and ConfigError where the source has nothing yet."""
        with self._lock:
            old = self._made
            due = old is None or not self._good(old)
            if old is not None and due and not self._serves(old):
                old = None
            known = self._source.stamp() == self._stamp
            if old is not None and known and (not due or monotonic() < self._not_before):
                return old
            try:
                stamp, values = self._read()
                made = self._make(values)
            except ConfigError:
                if old is None:
                    raise
                self._stamp = object()  # that of the next ones may be the old one: a clock has its ticks
                return old
            except TransientError:
                if old is None or not known:
                    raise
                self._not_before = monotonic() + _PAUSE
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
