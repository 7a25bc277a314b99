"""A process of controllers: their watches, the election, and an orderly end.

Watches begin at once, also where another process leads, so that taking over costs no list.  Once all are
synced this process stands for election, and only while it leads its controllers work.  At the end nothing new
is begun, what is under way is waited for, and only then the lease is released.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from rootcellar.errors import FencedError
from rootcellar.kube.client import KubeClient
from rootcellar.kube.election import Election, fenced
from rootcellar.kube.events import Events
from rootcellar.kube.gauges import Gauges
from rootcellar.kube.http import HealthServer
from rootcellar.kube.metrics import Metrics
from rootcellar.kube.reflector import Reflector
from rootcellar.kube.writes import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.kube.access import Access
    from rootcellar.kube.controller import Controller
    from rootcellar.kube.election import Terms
    from rootcellar.kube.kinds import Kind
    from rootcellar.logs import Log

T = TypeVar("T")

GRACE = 25.0
"""Seconds that reconciles under way have at an orderly end; kubelet waits 30 for a pod."""
_EVENT_SECONDS = 2.0
_SLICE = 0.1


class Manager:
    """Without `terms` this process leads from the start: nobody else may then work.  `identity` tells
    processes apart, and is `terms`' where there are some.  `listen` is host and port for probes and metrics.

    `abort` ends the process at once, where a reconcile that cannot be ended still runs while another process
    may begin to work.
    """

    def __init__(
        self,
        access: Access,
        *,
        identity: str,
        log: Log,
        terms: Terms | None = None,
        listen: tuple[str, int] | None = None,
        grace: float = GRACE,
        abort: Callable[[int], object] = os._exit,
    ) -> None:
        self.client = KubeClient(access)
        self.metrics = Metrics()
        self.controllers: list[Controller] = []
        self.reflectors: dict[str, Reflector[Any]] = {}
        self._identity, self._log, self._grace, self._abort = identity, log, grace, abort
        self._shared: dict[Kind[Any], Reflector[Any]] = {}
        self._events: list[Events] = []
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._is_ending = False
        self._election: Election | None = None
        # Of its own, so that one request that hangs leaves time for another.
        self._voice = KubeClient(access, timeout=terms.renew / 3 if terms is not None else GRACE)
        if terms is not None:
            self._election = Election(self._voice, terms, log=log, changed=self._woken.set)
        self.metrics.registry.register(Gauges(self.may_write, self.controllers, self.reflectors))
        self.http: HealthServer | None = None
        if listen is not None:
            checks = {"/healthz": self._unwell, "/readyz": self._unready}
            self.http = HealthServer(*listen, checks=checks, metrics=self.metrics.exposition)

    # before it runs

    def add(self, controller: Controller) -> None:
        """Have it work, and its reflectors follow; one that several controllers watch follows once."""
        self.controllers.append(controller)
        for watch in controller.watches:
            if watch.reflector not in self.reflectors.values():
                self._follow(watch.reflector)

    def _follow(self, reflector: Reflector[Any]) -> None:
        name, number = reflector.kind.plural, 2
        while name in self.reflectors:
            name, number = f"{reflector.kind.plural}-{number}", number + 1
        self.reflectors[name] = reflector

    def reflector(self, kind: Kind[T]) -> Reflector[T]:
        """One of all objects of a kind, the same for all controllers that ask for it."""
        if kind not in self._shared:
            self._shared[kind] = Reflector(self.client, kind)
        return self._shared[kind]

    def writer(self, manager: str) -> Writer:
        """The writes of a controller, under the name of its field manager."""
        return Writer(self.client, manager, self.may_write)

    def events(self, controller: str) -> Events:
        """The events of a controller, under its qualified name."""
        events = Events(
            self.client,
            controller,
            self._identity,
            may_write=self.may_write,
            log=self._log,
            metrics=self.metrics,
        )
        self._events.append(events)
        return events

    def may_write(self) -> bool:
        """To be asked right before each write, also of what is not Kubernetes'."""
        return self._election is None or self._election.may_write()

    # while it runs

    def stop(self, *_signal: object) -> None:
        """Have `run` end in good order; also as a handler of signals."""
        self._stopping.set()
        self._woken.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT mean `stop`.  In the main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def run(self) -> None:
        """Until `stop`.  Raises FencedError when this process led and does so no more: it has to end then."""
        if self.http is not None:
            self.http.start()
        for reflector in self.reflectors.values():
            reflector.start()
        try:
            if self._until(self._is_synced) and self._until(self._is_decided) and self._leads():
                self._work()
                self._until(self._has_lost)
            if self._has_lost():
                self._log.error("leadership-lost", identity=self._identity)
                raise fenced(self._identity)
        finally:
            self._end()

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; False where told to stop before."""
        while not self._stopping.is_set():
            if condition():
                return True
            self._woken.wait(0.2)
            self._woken.clear()
        return False

    def _is_synced(self) -> bool:
        return all(each.wait_synced(0) for each in self.reflectors.values())

    def _leads(self) -> bool:
        if self._election is None:
            return True
        if not self._election.is_started:
            self._election.start()
        return self._election.leads

    def _is_decided(self) -> bool:
        # A lease that was had too late for its own time is lost at once.
        return self._leads() or self._has_lost()

    def _has_lost(self) -> bool:
        return self._election is not None and self._election.is_lost

    def _work(self) -> None:
        for events in self._events:
            events.start()
        for controller in self.controllers:
            controller.start(log=self._log, metrics=self.metrics, may_write=self.may_write)

    def _end(self) -> None:
        # The lease is released after the last key was let go of: a crash before that leaves it to expire.
        self._is_ending = True
        drained = self._drain()
        if self._has_lost() and not drained:
            self._log.error("aborted", reason="a reconcile that cannot be ended runs on")
            self._abort(FencedError.exit_code)
        for events in self._events:
            events.stop(_EVENT_SECONDS)
        if self._election is not None:
            self._election.stop(release=drained)
        for reflector in self.reflectors.values():
            reflector.stop()
        if self.http is not None:
            self.http.stop()
        self.client.close()
        self._voice.close()
        self._log.info("stopped", drained=drained)

    def _drain(self) -> bool:
        """Whether nothing is under way any more; waits for it, but not until another process may begin."""
        for controller in self.controllers:
            controller.drain(0)
        deadline = time.monotonic() + self._grace
        while not (drained := all(each.drain(_SLICE) for each in self.controllers)):
            if self._election is not None and self._has_lost():
                deadline = min(deadline, time.monotonic() + self._election.remaining)
            if time.monotonic() >= deadline:
                break
        return drained

    # what probes ask

    def _unwell(self) -> str:
        wrong = [each.name for each in self.controllers if not each.is_alive]
        if self._election is not None and self._election.is_dead and not self._is_ending:
            wrong.append("election")
        return f"a thread has ended: {', '.join(wrong)}" if wrong else ""

    def _unready(self) -> str:
        wrong = [name for name, each in self.reflectors.items() if not each.wait_synced(0)]
        return f"not yet known: {', '.join(wrong)}" if wrong else ""
