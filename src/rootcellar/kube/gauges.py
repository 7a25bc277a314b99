"""Metrics of controllers that are read at the scrape: queues, watches and leadership.  So what stands still
grows old all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from rootcellar.kube.controller import Controller
    from rootcellar.kube.reflector import Reflector


class Gauges(Collector):
    """Of one process: whether it may write, and its controllers and reflectors, also those still to come."""

    def __init__(
        self,
        may_write: Callable[[], bool],
        controllers: Sequence[Controller],
        reflectors: Mapping[str, Reflector[Any]],
    ) -> None:
        self._may_write, self._controllers, self._reflectors = may_write, controllers, reflectors

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "rootcellar_controller_leader", "whether this process works", float(self._may_write())
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
        for each in self._controllers:
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
        for name, reflector in self._reflectors.items():
            silence.add_metric([name], reflector.silence())
            objects.add_metric([name], len(reflector.cache))
            failures.add_metric([name], reflector.tally.failures)
        yield from (silence, objects, failures)


def _gauge(name: str, documentation: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=[label])
