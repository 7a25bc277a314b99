"""What Swift keeps in memcached, kept in its own process: whether an account and a container are there.

Without it, each request asks for both again, which makes it three.  One server has one process here, so
nobody else needs to see it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Cache:
    """The part of Swift's MemcacheRing that its proxy and its TempAuth call."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, float]] = {}

    def get(self, key: str, **_: Any) -> Any:
        value, ends = self._kept.get(key, (None, 0.0))
        return value if ends > time.monotonic() else None

    def set(self, key: str, value: Any, time: float = 0, **_: Any) -> None:
        self._kept[key] = (value, _now() + time if time else float("inf"))

    def delete(self, key: str, **_: Any) -> None:
        self._kept.pop(key, None)


_now = time.monotonic


def filter_factory(_global: dict[str, str], **_: str) -> Callable[[Any], Any]:
    """As PasteDeploy wants it."""
    cache = Cache()

    def wrap(application: Any) -> Any:
        def ask(environment: dict[str, Any], start: Any) -> Iterable[bytes]:
            environment["swift.cache"] = cache
            found: Iterable[bytes] = application(environment, start)
            return found

        return ask

    return wrap
