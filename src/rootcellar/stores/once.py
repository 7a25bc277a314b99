"""What is found out at its first use, and holds from then on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Once(Generic[T]):
    """A value that is not None.  One thread finds it while the others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: T | None = None

    def get(self, find: Callable[[], T]) -> T:
        """What `find` returned, for whoever came first.  Where it raises, whoever comes next tries again."""
        with self._lock:
            if self._found is None:
                self._found = find()
            return self._found
