"""Keys in byte order from stores that list in another one.

AWS lists a bucket flat, in the byte order of whole keys.  Servers that keep objects in directories
(SeaweedFS) walk those: `a/x` comes before `a-b`, although `-` sorts before `/`.  Where two names differ
right after a shared beginning, the two orders part, and a flat listing cannot be put right once it has been
passed on.  So we list one directory at a time (delimiter `/`), where the orders differ in one way only: a
directory may come before names that sort before its slash.  It is held back until the names have gone past
it.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of one directory, in the store's own order: whole keys with what belongs to them, and
    directories as whole keys with their slash.
    """

    objects: Iterable[tuple[str, T]]
    directories: Iterable[str]


def walk(
    pages: Callable[[str, str], Iterator[Page[T]]], prefix: str, after: str = ""
) -> Iterator[tuple[str, T]]:
    """What `pages(prefix, start_after)` give, and below, in byte order; only keys that sort after `after`.

    Holds a page for each level of directories.
    """
    if not after.startswith(prefix) and after.encode() > prefix.encode():
        return
    low = after.encode()
    for key, found in _ordered(pages(prefix, _start(prefix, after)), prefix):
        raw = key.encode()
        if found:
            if raw > low:
                yield key, found[0]
        elif raw > low or low.startswith(raw):
            yield from walk(pages, key, after)


def _ordered(pages: Iterator[Page[T]], prefix: str) -> Iterator[tuple[str, tuple[()] | tuple[T]]]:
    """Objects as (key, (item,)) and directories as (key, ()), by their keys' bytes."""
    waiting: list[tuple[bytes, int, str, tuple[()] | tuple[T]]] = []
    arrival = itertools.count()  # several versions of one key stay in the store's order
    passed = b""
    for page in pages:
        bound = b""
        for key, item in page.objects:
            heapq.heappush(waiting, (key.encode(), next(arrival), key, (item,)))
            bound = max(bound, key.encode())
        for key in page.directories:
            if key != prefix:
                heapq.heappush(waiting, (key.encode(), next(arrival), key, ()))
                bound = max(bound, key[:-1].encode())
        # Whatever comes now has a name greater than all in this page, in either order.
        while waiting and waiting[0][0] <= bound:
            passed = _passed(passed, waiting[0][0])
            yield heapq.heappop(waiting)[2:]
    while waiting:
        passed = _passed(passed, waiting[0][0])
        yield heapq.heappop(waiting)[2:]


def _passed(before: bytes, now: bytes) -> bytes:
    if now < before:
        raise UnsupportedError(
            "the store does not list its keys in order", hint="use a general purpose bucket"
        )
    return now


def _start(prefix: str, after: str) -> str:
    """Where a store may begin to list so that, in either order, nothing behind `after` is missed; "" for the
    first key.

    Needed are the directory that `after` lies in, and directories whose name `after` continues with a
    character below the slash.  All of them begin with what is left of the first such character.
    """
    if not after.startswith(prefix):
        return ""
    name = after[len(prefix) :].partition("/")[0]
    low = next((place for place, character in enumerate(name) if character < "/"), len(name))
    return prefix + name[: low - 1] if low > 1 else ""
