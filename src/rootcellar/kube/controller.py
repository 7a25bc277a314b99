"""A controller: changes of some kinds become keys, and workers have each key reconciled.

It is level-triggered.  A reconcile is told a key and nothing of what happened to it, and is repeated until it
goes well.  Where a process begins to work, every object that is there counts as new.
"""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from rootcellar.kube.cache import Change
from rootcellar.kube.filters import everything, itself
from rootcellar.kube.pace import pace_for
from rootcellar.kube.queue import WorkQueue
from rootcellar.kube.steps import Done, Outcome, Requeue, code_of, result_of, tracing
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rootcellar.kube.filters import Filter, Mapper
    from rootcellar.kube.kinds import Key
    from rootcellar.kube.metrics import Metrics
    from rootcellar.kube.reflector import Reflector
    from rootcellar.logs import Log

__all__ = ["Controller", "Done", "Outcome", "Requeue", "Watch"]

_PATIENCE = 10.0
_GLANCE = 0.1


class Watch(NamedTuple):
    """What is watched, which of its changes count, and which keys they concern.  A reflector may be in
    several watches, also of several controllers.
    """

    reflector: Reflector[Any]
    counts: Filter = everything
    keys: Mapper = itself


class Controller:
    """`reconcile` is called in one of `workers` threads, never for one key in two at a time.

    It returns an outcome, or raises; then it is called again after a pause that grows, by what was raised
    (`pace`).  To be made before the reflectors start.

    While keys wait for `first`, a controller whose work is more urgent, a worker holds each of its own back,
    for seconds at most: what can wait is late then, but never starves.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[Key], Outcome],
        watches: Sequence[Watch],
        *,
        workers: int = 1,
        first: Controller | None = None,
    ) -> None:
        self.name = name
        self.watches = tuple(watches)
        self.queue: WorkQueue[Key] = WorkQueue()
        self._reconcile, self._first = reconcile, first
        self._is_working = False
        self._workers = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(workers)
        ]
        for watch in self.watches:
            watch.reflector.listen(lambda change, watch=watch: self._hear(watch, change))  # type: ignore[misc]

    def start(self, *, log: Log, metrics: Metrics, may_write: Callable[[], bool]) -> None:
        """Begin to work, with everything there is as new.  Once; the reflectors are synced."""
        self._log, self._metrics, self._may_write = log, metrics, may_write
        # From now on what changes is heard; what changed before is in the caches.  In between it is both.
        self._is_working = True
        for watch in self.watches:
            cache = watch.reflector.cache
            for key in cache.keys():  # noqa: SIM118  no dict
                if (raw := cache.raw(key)) is not None:
                    self._hear(watch, Change(key, None, raw))
        for worker in self._workers:
            worker.start()

    def drain(self, timeout: float) -> bool:
        """Begin nothing more; whether nothing was under way any more within `timeout` seconds."""
        self._is_working = False
        return self.queue.drain(timeout)

    @property
    def is_alive(self) -> bool:
        """Whether no worker has been lost."""
        return not self._is_working or all(worker.is_alive() for worker in self._workers if worker.ident)

    def _hear(self, watch: Watch, change: Change) -> None:
        # Before it works a process keeps no keys: by the time it does, another one has seen to most of them.
        if self._is_working and self._counts(watch, change):
            for key in self._keys(watch, change):
                self.queue.add(key)

    def _counts(self, watch: Watch, change: Change) -> bool:
        try:
            return watch.counts(change)
        except Exception as error:  # noqa: BLE001  of another shape, say: the reconcile will say what is wrong
            self._log.warning("filter-failed", controller=self.name, key=str(change.key), **told(error))
            return True

    def _keys(self, watch: Watch, change: Change) -> tuple[Key, ...]:
        try:
            return tuple(watch.keys(change))
        except Exception as error:  # noqa: BLE001  one that concerns nobody who could be found stops nobody
            self._log.warning("mapper-failed", controller=self.name, key=str(change.key), **told(error))
            return ()

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            try:
                self._give_way()
                if self._is_working:
                    self._turn(key)
            finally:
                self.queue.done(key)

    def _give_way(self) -> None:
        if self._first is None:
            return
        until = time.monotonic() + _PATIENCE
        while self._is_working and self._first.queue.depth and time.monotonic() < until:
            time.sleep(_GLANCE)

    def _turn(self, key: Key) -> None:
        began = time.monotonic()
        with tracing() as trace:
            try:
                outcome = self._reconcile(key)
            except Exception as error:  # noqa: BLE001  the one place where all errors end
                result = self._failed(key, error, trace.reached)
            else:
                result = result_of(outcome)
                self.queue.forget(key)
                if isinstance(outcome, Requeue):
                    self.queue.add_after(key, outcome.after)
        seconds = time.monotonic() - began
        self._metrics.reconciled(self.name, result, seconds, trace.taken)
        self._log.info("reconciled", controller=self.name, key=str(key), result=result, seconds=seconds)

    def _failed(self, key: Key, error: Exception, step: str) -> str:
        if not self._may_write():  # whatever it was: the process ends, and the next one begins anew
            self.queue.close()
            return "fenced"
        values = told(error)
        if values["code"] == "internal":
            values["trace"] = "".join(traceback.format_exception(error))
        seconds = self.queue.retry(key, pace_for(error))
        self._log.warning(
            "reconcile-failed", controller=self.name, key=str(key), step=step, retry_in=seconds, **values
        )
        return code_of(error)
