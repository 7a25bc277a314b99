"""Keys that wait for a worker: each once, none with two workers, and one that fails later and later.

What a key stands for is looked up by the worker, so it does not matter how often it was added, nor why.  The
rules are those of client-go's work queue, but for one: a key that is handed out forgets that it was to come
again later, because whoever works on it decides that anew.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.kube.pace import EXPONENTIAL, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")

_SLACK = 64


class WorkQueue(Generic[K]):
    """For all threads.  `clock` is monotonic seconds; `chance` in [0, 1) makes the jitter of pauses."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock, self._chance = clock, chance
        self._changed = threading.Condition()
        self._line: deque[K] = deque()
        self._since: dict[K, float] = {}
        """Of those in the line: when they were added."""
        self._running: set[K] = set()
        self._again: dict[K, float] = {}
        """Added while with a worker: when.  They go to the end of the line once he is done."""
        self._later: dict[K, float] = {}
        """When a key is to be added by itself."""
        self._heap: list[tuple[float, int, K]] = []
        """The same in order, with entries that do not count any more."""
        self._turns = count()
        self._failures: dict[K, Counter[Pace]] = {}
        self._closed = False
        self.retries = 0
        """How often `retry` was called."""

    def add(self, key: K) -> None:
        """Have it worked on: soon, or once more where a worker has it now."""
        with self._changed:
            self._add(key, self._clock())

    def add_after(self, key: K, seconds: float) -> None:
        """Have it worked on then, unless it is sooner: of several moments the earliest counts."""
        with self._changed:
            at = self._clock() + seconds
            if self._closed or self._later.get(key, at + 1) <= at:
                return
            self._later[key] = at
            heapq.heappush(self._heap, (at, next(self._turns), key))
            if len(self._heap) > 2 * len(self._later) + _SLACK:
                self._heap = [each for each in self._heap if self._later.get(each[2]) == each[0]]
                heapq.heapify(self._heap)
            self._changed.notify()

    def retry(self, key: K, pace: Pace = EXPONENTIAL) -> float:
        """Have it worked on after a pause, which grows until `forget`; the seconds.  Each pace has its own
        count, so that one error between others neither shortens nor lengthens their pauses.  Between three
        quarters and the whole of its length, so that what failed together does not come back together.
        """
        with self._changed:
            counts = self._failures.setdefault(key, Counter())
            times = counts[pace]
            counts[pace] += 1
            self.retries += 1
            length = min(pace.longest, pace.first * 2.0 ** min(times, 60))
        seconds = length * (0.75 + self._chance() / 4)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """It went well: the next pause is a first one."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self, timeout: float | None = None) -> K | None:
        """The next key, which is then the caller's until `done`.  None when there is none within `timeout`
        seconds, or once the queue is closed.
        """
        with self._changed:
            deadline = None if timeout is None else self._clock() + timeout
            while not self._closed:
                now = self._clock()
                self._promote(now)
                if self._line:
                    return self._hand_out()
                if deadline is not None and deadline <= now:
                    return None
                moments = [self._heap[0][0]] if self._heap else []
                moments += [] if deadline is None else [deadline]
                self._changed.wait(min(moments) - now if moments else None)
            return None

    def done(self, key: K) -> None:
        """The worker lets go of it."""
        with self._changed:
            self._running.discard(key)
            since = self._again.pop(key, None)
            if since is not None:
                self._add(key, since)
            if self._closed:
                self._changed.notify_all()

    def close(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def drain(self, timeout: float) -> bool:
        """Close, and wait until no worker has a key; whether that was so within `timeout` seconds."""
        self.close()
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker now."""
        with self._changed:
            self._promote(self._clock())
            return len(self._line) + len(self._again)

    @property
    def oldest(self) -> float:
        """Seconds that the one of them has waited that waits longest; 0 where none does."""
        with self._changed:
            moments = [*self._since.values(), *self._again.values()]
            return max(0.0, self._clock() - min(moments)) if moments else 0.0

    @property
    def running(self) -> int:
        """Keys that are with a worker."""
        with self._changed:
            return len(self._running)

    # with the lock held

    def _add(self, key: K, since: float) -> None:
        if self._closed or key in self._since:
            return
        if key in self._running:
            self._again.setdefault(key, since)
            return
        self._since[key] = since
        self._line.append(key)
        self._changed.notify()

    def _promote(self, now: float) -> None:
        """Put those in the line whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._later.get(key) == at:
                del self._later[key]
                self._add(key, at)

    def _hand_out(self) -> K:
        key = self._line.popleft()
        del self._since[key]
        self._later.pop(key, None)
        self._running.add(key)
        return key
