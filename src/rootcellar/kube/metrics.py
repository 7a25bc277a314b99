"""Metrics of controllers, counted where they happen: reconciles, their steps, and events for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterable

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
