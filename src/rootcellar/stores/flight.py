"""The requests of one put: parts sent a few at a time, and none under way any more once it has failed."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from rootcellar.errors import StoreError
from rootcellar.stores.backoff import Attempts, Backoff, StoppableClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_PARALLEL: Final = 4
_WINDOW: Final = 128 << 20
"""Bytes in flight: parts grow with the object, and then fewer of them fly at once."""


class Flight:
    """Of the object at `where`."""

    def __init__(self, where: str, backoff: Backoff) -> None:
        self._where = where
        self._backoff = backoff
        self._stop = Event()

    def attempts(self) -> Attempts:
        """Tries without a wait once the put has failed."""
        return Attempts(self._backoff, StoppableClock(self._stop))

    def repeat(self, send: Callable[[], T], operation: str = "put") -> T:
        """`send`, repeated as long as the put has not failed."""

        def once() -> T:
            if self._stop.is_set():
                raise StoreError(f"{self._where}: given up", operation=operation)
            return send()

        return self.attempts().run(once)

    def send_all(
        self, parts: Iterator[tuple[bytearray, bool]], send: Callable[[int, bytearray], T]
    ) -> list[T]:
        """What `send` returns for the number (from 1) and the bytes of each part, in their order.  Several
        threads call it.  Where it raises, or `parts` does, the put has failed.
        """
        done: dict[int, T] = {}
        flying: dict[Future[T], tuple[int, int]] = {}

        def land(room: int) -> None:
            while flying and (len(flying) >= _PARALLEL or sum(size for _, size in flying.values()) > room):
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    number, _ = flying.pop(future)
                    done[number] = future.result()

        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rootcellar-put") as threads:
            try:
                for number, (body, _) in enumerate(parts, 1):
                    land(_WINDOW - len(body))
                    flying[threads.submit(send, number, body)] = (number, len(body))
                land(-1)
            except BaseException:
                # A part that arrives after whoever tidies up has done so would stay: so those under way are
                # waited for, but not tried again, and those waiting are not begun.
                self._stop.set()
                threads.shutdown(wait=True, cancel_futures=True)
                raise
        return [done[number] for number in sorted(done)]

    def resume(self) -> None:
        """Let requests be tried again after all: those that tidy up."""
        self._stop.clear()
