"""Engine calls, which block, in threads of their own.

A thread cannot be ended.  Whoever no longer waits for one abandons it: what it comes to is dropped, and as a
daemon it does not keep the process from ending.  So a store that hangs wedges nothing.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(name: str, call: Callable[[], T], *, drop: Callable[[T], object] | None = None) -> T:
    """What `call` returns or raises.  `drop` is given its result if nobody waits for it any more."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # cancelled: abandoned
            if error is None and drop is not None:
                threading.Thread(target=drop, args=(result,), name=f"{name}-drop", daemon=True).start()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # a result, where there is no error

    def body() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits
            # asyncio gives these two a meaning of its own.
            failure = RuntimeError(repr(error)) if isinstance(error, StopIteration | SystemExit) else error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is gone: so is everybody who waited
            return

    threading.Thread(target=body, name=name, daemon=True).start()
    return await future


def within(seconds: float, name: str, call: Callable[[], T]) -> T:
    """What `call` returns or raises, for one who has no loop.  Raises TimeoutError after so many seconds."""
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits
            future.set_exception(error)

    threading.Thread(target=body, name=name, daemon=True).start()
    return future.result(seconds)
