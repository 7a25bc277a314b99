"""Metrics of buckets: what lies in them for nobody, as it was at the last look."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class BucketMetrics(Collector):
    """Of one process, in its registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._lock = Lock()
        registry.register(self)

    def saw(self, bucket: str, *, left: int, unnamed: int) -> None:
        """What a look found: objects of forced deletions, prefixes without an entry."""
        with self._lock:
            self._seen[bucket] = left, unnamed

    def forget(self, bucket: str) -> None:
        """It is gone."""
        with self._lock:
            self._seen.pop(bucket, None)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            seen = dict(self._seen)
        left = _gauge("left_objects", "locked objects that forced deletions of entries have left")
        unnamed = _gauge("unnamed_prefixes", "prefixes that no entry of this cluster names")
        for bucket, (objects, prefixes) in seen.items():
            left.add_metric([bucket], objects)
            unnamed.add_metric([bucket], prefixes)
        yield from (left, unnamed)


def _gauge(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rootcellar_bucket_{name}", documentation, labels=["bucket"])
