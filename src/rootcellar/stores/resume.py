"""One get over HTTP: a stream that survives broken connections, and is of one object only.

The provider's `ask` opens the object at a byte and holds it to the one that its first answer pinned.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rootcellar.errors import TransientError
from rootcellar.stores.wire import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.stores.backoff import Attempts
    from rootcellar.stores.wire import Stream


def resumed(
    ask: Callable[[int, int | None], Stream | None],
    start: int,
    end: int | None,
    attempts: Attempts,
    where: str,
) -> Iterator[bytes]:
    """Bytes [start, end).  A break before the first byte is raised (whoever asks can ask again), a later one
    is mended.
    """
    position = start
    while end is None or position < end:
        try:
            stream = ask(position, end)
            if stream is None:
                return
            with contextlib.closing(stream):
                skip = 0 if stream.status == 206 else position  # a server without ranges sends it all
                ends = position - skip + stream.length
                end = ends if end is None else min(ends, end)
                while position < end:
                    chunk = _some(stream, min(CHUNK, skip or end - position), where)
                    if skip:
                        skip -= len(chunk)
                        continue
                    position += len(chunk)
                    attempts.progressed()
                    yield chunk
        except TransientError as error:
            if position == start:
                raise
            attempts.failed(error)


def _some(stream: Stream, size: int, where: str) -> bytes:
    chunk = stream.read(size)
    if not chunk:
        raise TransientError(f"{where}: cut short", operation="get")
    return chunk
