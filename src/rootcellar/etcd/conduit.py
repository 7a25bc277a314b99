"""A bounded hand-over from one thread to another.

What `queue.Queue` lacks before Python 3.13 and a pipeline needs: either side can end it.  A closed conduit
frees a producer that waits for room; a failed one gives the consumer the producer's error, after what came
before it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Conduit(Generic[T]):
    """At most `room` items wait in it."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Hand an item over, waiting for room.  False once nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._room)
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """The producer has no more; with an error, because it failed."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """The consumer wants no more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """The next item.  Raises TimeoutError, the producer's error, or EOFError at the end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._ended or self._closed, timeout):
                raise TimeoutError
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            if self._error is not None:
                raise self._error
            raise EOFError
