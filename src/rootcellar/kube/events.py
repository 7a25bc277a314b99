"""Events: what a person sees with `kubectl describe` (events.k8s.io/v1).

They are told from a reconcile and sent by a thread of their own: an event is in nobody's way.  One that is
repeated becomes a series of the first, which is written now and then; an object that tells too much is
held back.  What cannot be sent is counted and dropped.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from rootcellar.errors import KubeNotFoundError, RootcellarError
from rootcellar.kube.kinds import untyped
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Meta
    from rootcellar.kube.metrics import Metrics
    from rootcellar.logs import Log

_EVENTS = untyped("events.k8s.io", "v1", "events")
SERIES_SECONDS = 360.0
"""Without a repetition for so long a series is over, as in client-go."""
REFRESH_SECONDS = 60.0
"""Between two writes of one series."""
BURST, REFILL_SECONDS = 20, 60.0
"""New events of one object: so many at once, then one in so many seconds."""
_KEPT = 2000
_WAITING = 1000
_NOTE = 1024


class Regarding(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    meta: Meta


class _Told(NamedTuple):
    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str

    def identity(self) -> tuple[str, ...]:
        return (self.regarding.kind, self.regarding.meta.uid, *self[1:])


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    last: float
    written: float


@dataclass(slots=True)
class _Bucket:
    left: float = BURST
    at: float = 0.0


class Events:
    """For all threads.  `controller` is a qualified name, `instance` that of this process.  Bounded in
    memory; nothing is sent where this process does not lead.
    """

    def __init__(
        self,
        client: KubeClient,
        controller: str,
        instance: str,
        *,
        may_write: Callable[[], bool],
        log: Log,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._controller, self._instance = client, controller, instance
        self._may_write, self._log, self._metrics, self._clock = may_write, log, metrics, clock
        self._waiting: deque[_Told] = deque()
        self._changed = threading.Condition()
        self._is_ending = False
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._names = count(time.time_ns())
        self._fault = ""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def tell(
        self, regarding: Regarding, reason: str, action: str, note: str, *, warning: bool = False
    ) -> None:
        """Something that happened to an object.  `reason` and `action` are words in UpperCamelCase: why, and
        what was done or tried; `note` is the sentence.
        """
        event = _Told(regarding, "Warning" if warning else "Normal", reason, action, _cut(note))
        with self._changed:
            if len(self._waiting) >= _WAITING or self._is_ending:
                self._metrics.events.labels("failed").inc()
                return
            self._waiting.append(event)
            self._changed.notify()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Send what waits, for at most `timeout` seconds."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ending)
                if not self._waiting:
                    return
                event = self._waiting.popleft()
            try:
                result = self._send(event) if self._may_write() else "failed"
                self._fault = ""
            except RootcellarError as error:
                result, values = "failed", told(error)
                if self._fault != values["code"]:
                    self._log.warning("event-failed", reason=event.reason, note=event.note, **values)
                self._fault = values["code"]
            self._metrics.events.labels(result).inc()

    def _send(self, event: _Told) -> str:
        now, identity = self._clock(), event.identity()
        series = self._series.get(identity)
        if series is not None and now - series.last < SERIES_SECONDS:
            series.count, series.last = series.count + 1, now
            if series.count > 2 and now - series.written < REFRESH_SECONDS:
                return "held"
            try:
                self._write_series(event, series)
            except KubeNotFoundError:  # it was kept for an hour; the next is a first one
                del self._series[identity]
            else:
                series.written = now
                return "repeated"
        if not self._may_tell(event.regarding.meta.uid, now):
            return "held"
        name = f"{event.regarding.meta.name[:200]}.{next(self._names):x}"
        self._client.create(_EVENTS, self._body(event, name), _namespace(event.regarding))
        self._series[identity] = _Series(name, 1, now, now)
        self._series.move_to_end(identity)
        while len(self._series) > _KEPT:
            self._series.popitem(last=False)
        return "sent"

    def _may_tell(self, uid: str, now: float) -> bool:
        bucket = self._buckets.setdefault(uid, _Bucket(at=now))
        self._buckets.move_to_end(uid)
        while len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
        bucket.left = min(BURST, bucket.left + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    def _body(self, event: _Told, name: str) -> dict[str, Any]:
        meta = event.regarding.meta
        regarding = {
            "apiVersion": event.regarding.api_version,
            "kind": event.regarding.kind,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        }
        if meta.namespace:
            regarding["namespace"] = meta.namespace
        return {
            "metadata": {"name": name},
            "eventTime": _moment(),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": regarding,
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
        }

    def _write_series(self, event: _Told, series: _Series) -> None:
        patch = {"series": {"count": series.count, "lastObservedTime": _moment()}}
        self._client.merge_patch(_EVENTS, series.name, patch, _namespace(event.regarding))


def _namespace(regarding: Regarding) -> str:
    """Events are in a namespace, also of what is in none."""
    return regarding.meta.namespace or "default"


def _cut(note: str) -> str:
    """The API server takes 1024 bytes."""
    raw = note.encode()
    return note if len(raw) <= _NOTE else raw[: _NOTE - 3].decode(errors="ignore") + "…"


def _moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
