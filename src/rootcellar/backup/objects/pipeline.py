"""Stages of a stream that run at the same time, with bounded memory between them.

Decompression, hashing and file I/O release the interpreter lock, so a thread per stage uses the cores that
are there.  An error in a stage is raised where its output is consumed; whoever stops consuming stops the
stage.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from rootcellar.stores.protocol import Store

T = TypeVar("T")

RANGE = 8 << 20
PARALLEL_RANGES = 4
_POLL = 0.2


class _Ahead(Generic[T]):
    """A queue from one producing thread to its consumer, which may stop early."""

    def __init__(self, depth: int) -> None:
        self._queue: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(depth)
        self._stopped = threading.Event()

    def produce(self, items: Iterable[T]) -> None:
        error: BaseException | None = None
        try:
            try:
                for item in items:
                    if not self._offer((item, None, False)):
                        break
            finally:
                if (close := getattr(items, "close", None)) is not None:
                    close()
        except BaseException as caught:  # noqa: BLE001  # raised again where the items are consumed
            error = caught
        self._offer((None, error, True))

    def _offer(self, entry: tuple[T | None, BaseException | None, bool]) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(entry, timeout=_POLL)
            except queue.Full:
                continue
            return True
        return False

    def consume(self) -> Iterator[T]:
        while True:
            item, error, ended = self._queue.get()
            if error is not None:
                raise error
            if ended:
                return
            yield item  # type: ignore[misc]  # only the last entry has no item

    def stop(self) -> None:
        self._stopped.set()


def ahead(items: Iterable[T], depth: int = 4) -> Generator[T, None, None]:
    """`items`, produced in a thread of its own, up to `depth` of them ahead of the consumer."""
    stage: _Ahead[T] = _Ahead(depth)
    thread = threading.Thread(target=stage.produce, args=(items,), name="ahead", daemon=True)
    thread.start()
    try:
        yield from stage.consume()
    finally:
        stage.stop()
        thread.join()


def download(store: Store, key: str, size: int) -> Iterator[bytes]:
    """An object's bytes in order, fetched as PARALLEL_RANGES ranges at a time.  Memory: those ranges.

    All are of one object: where another takes its place meanwhile, NotFoundError.
    """
    if size <= 2 * RANGE:
        yield from store.get(key)
        return
    etag = store.stat(key).etag
    ranges = iter(range(0, size, RANGE))
    with ThreadPoolExecutor(PARALLEL_RANGES, thread_name_prefix="download") as pool:
        under_way: deque[Future[bytes]] = deque()

        def start_next() -> None:
            for at in ranges:
                under_way.append(pool.submit(_range, store, key, at, min(at + RANGE, size), etag))
                return

        try:
            for _ in range(PARALLEL_RANGES):
                start_next()
            while under_way:
                data = under_way.popleft().result()
                start_next()
                yield data
        finally:
            for future in under_way:
                future.cancel()


def _range(store: Store, key: str, start: int, end: int, etag: str | None) -> bytes:
    return b"".join(store.get(key, start=start, end=end, etag=etag))
