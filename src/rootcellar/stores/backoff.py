"""When to try again, and when to stop.

Full jitter (a wait drawn evenly between nothing and a doubling bound), because many agents lose the same
store at the same moment and must not come back together.  The bound depends on what went wrong: a broken
connection is worth another try at once, a store that says "slow down" is not.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from rootcellar.errors import ThrottledError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

T = TypeVar("T")


class Clock(Protocol):
    """Where time comes from: a test brings its own."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class StoppableClock:
    """The machine's clock, whose sleep ends when `stop` is set: when another part has failed for good."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """At most `attempts` tries without progress, none begun later than `deadline` seconds after the first of
    them failed: what takes long by itself, like a part on a slow line, is tried again as well.  All times are
    seconds.
    """

    attempts: int = 7
    deadline: float = 120.0
    base: float = 0.5
    throttled_base: float = 2.0
    cap: float = 20.0

    def bound(self, error: TransientError, failures: int) -> float:
        """The longest wait after the `failures`-th failure in a row (1 is the first)."""
        base = self.throttled_base if isinstance(error, ThrottledError) else self.base
        return min(self.cap, base * 2.0 ** (failures - 1))


@dataclass(slots=True)
class Attempts:
    """The tries of one call.  Not for sharing between threads."""

    backoff: Backoff
    clock: Clock = field(default_factory=SystemClock)
    uniform: Callable[[float, float], float] = random.uniform
    failures: int = field(default=0, init=False)
    _failing_since: float = field(default=0.0, init=False)

    def progressed(self) -> None:
        """Something was achieved: a long transfer may break often, if it only gets on in between."""
        self.failures = 0

    def failed(self, error: TransientError) -> None:
        """Wait before the next try, or raise `error` when there is none."""
        now = self.clock.monotonic()
        if self.failures == 0:
            self._failing_since = now
        self.failures += 1
        if self.failures >= self.backoff.attempts:
            raise error
        wait = self.uniform(0.0, self.backoff.bound(error, self.failures))
        if now - self._failing_since + wait > self.backoff.deadline:
            raise error
        self.clock.sleep(wait)

    def run(self, work: Callable[[], T]) -> T:
        """`work`'s result; it is repeated while it raises TransientError."""
        while True:
            try:
                return work()
            except TransientError as error:
                self.failed(error)
