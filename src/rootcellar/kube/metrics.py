"""Metrics of controllers.  Queues, watches and leadership are read at the scrape, so that what stands still
grows old all the same; only reconciles and their steps are counted where they happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from rootcellar.kube.manager import Manager
    from rootcellar.kube.steps import Taken

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300)


class Metrics:
    """Of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._reconciles = Histogram(
            "rootcellar_controller_reconcile_seconds",
            "how long reconciles took; result is done, requeue, or what they failed with",
            ["controller", "result"],
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._steps = Histogram(
            "rootcellar_controller_step_seconds",
            "how long their steps took",
            ["controller", "step", "result"],
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self.events = Counter(
            "rootcellar_controller_events",
            "events for people, by what became of them: sent, repeated, held back or failed",
            ["result"],
            registry=self.registry,
        )

    def reconciled(self, controller: str, result: str, seconds: float, taken: Iterable[Taken]) -> None:
        """Count one reconcile."""
        self._reconciles.labels(controller, result).observe(seconds)
        for each in taken:
            self._steps.labels(controller, each.step, each.result).observe(each.seconds)

    def exposition(self) -> bytes:
        """What a scrape is answered with."""
        return generate_latest(self.registry)


class Gauges(Collector):
    """What a manager's parts show at the moment of a scrape."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "rootcellar_controller_leader", "whether this process works", float(self._manager.may_write())
        )
        depth = _gauge("rootcellar_controller_queue_depth", "keys that wait for a worker", "controller")
        oldest = _gauge(
            "rootcellar_controller_queue_oldest_seconds",
            "how long the first of them has waited",
            "controller",
        )
        running = _gauge("rootcellar_controller_running", "keys that are with a worker", "controller")
        retries = CounterMetricFamily(
            "rootcellar_controller_retries", "reconciles that failed and come again", labels=["controller"]
        )
        for each in self._manager.controllers:
            depth.add_metric([each.name], each.queue.depth)
            oldest.add_metric([each.name], each.queue.oldest)
            running.add_metric([each.name], each.queue.running)
            retries.add_metric([each.name], each.queue.retries)
        yield from (depth, oldest, running, retries)
        silence = _gauge(
            "rootcellar_watch_silence_seconds", "since the API server last said anything", "kind"
        )
        objects = _gauge("rootcellar_watch_objects", "objects that are known", "kind")
        failures = CounterMetricFamily(
            "rootcellar_watch_failures", "watches and lists that broke", labels=["kind"]
        )
        for name, reflector in self._manager.reflectors.items():
            silence.add_metric([name], reflector.silence())
            objects.add_metric([name], len(reflector.cache))
            failures.add_metric([name], reflector.tally.failures)
        yield from (silence, objects, failures)


def _gauge(name: str, documentation: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=[label])
