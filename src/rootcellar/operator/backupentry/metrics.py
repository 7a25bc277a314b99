"""Metrics of entries: numbers that move all the time, and so are no matter for a status."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from rootcellar.operator.backupentry.survey import Survey


class EntryMetrics(Collector):
    """Of one process, in its registry; the surveys of its entries are told to it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._surveys: dict[str, Survey] = {}
        self._lock = Lock()
        self.orphaned = Counter(
            "rootcellar_entry_orphaned",
            "entries that went without their credentials: their objects may still be there",
            registry=registry,
        )
        self.left = Counter(
            "rootcellar_entry_objects_left",
            "locked objects that were left behind entries whose deletion was forced",
            registry=registry,
        )
        registry.register(self)

    def saw(self, entry: str, survey: Survey) -> None:
        """What a look found.  Proofs name every object of a chain: they are not kept."""
        with self._lock:
            self._surveys[entry] = replace(survey, proofs=())

    def forget(self, entry: str) -> None:
        """It is gone, or given up."""
        with self._lock:
            self._surveys.pop(entry, None)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            surveys = dict(self._surveys)
        objects = _gauge("objects", "objects below the entry's prefix, at the last look")
        size = _gauge("bytes", "their size, without hidden versions")
        snapshot = _gauge("snapshot_timestamp_seconds", "when the newest snapshot was taken")
        beat = _gauge("heartbeat_timestamp_seconds", "when an agent of ours last said that it lives")
        for name, survey in surveys.items():
            objects.add_metric([name], survey.objects)
            size.add_metric([name], survey.size)
            if survey.newest is not None:
                snapshot.add_metric([name], survey.newest.timestamp())
            if survey.beat is not None:
                beat.add_metric([name], survey.beat.timestamp())
        yield from (objects, size, snapshot, beat)


def _gauge(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rootcellar_entry_{name}", documentation, labels=["entry"])
