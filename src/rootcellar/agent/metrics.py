"""Metrics: ours, and beside them those of etcd-backup-restore that mean the same, under its names.

Nothing is counted here: every scrape reads the journal, the board and the meter of the store.  So a number
that stands still because its writer is stuck grows old all the same: ages are computed at the scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rootcellar.agent.report import stores as report_stores
from rootcellar.agent.state import Fault, Phase
from rootcellar.backup.catalogue.records import Check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from prometheus_client.core import Metric

    from rootcellar.agent.journal import Kind
    from rootcellar.agent.view import View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """All metrics of one agent."""

    def __init__(self, agent: View) -> None:
        self._agent = agent
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing ahead: what there is depends on what the agent does."""
        return []

    def exposition(self) -> bytes:
        """What a scrape is answered with."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._own()
        yield from self._of_store()
        yield from self._of_jobs()
        yield from self._of_stores()
        yield from self._of_leases()
        yield from self._reference()

    def _own(self) -> Iterator[Metric]:
        agent, journal = self._agent, self._agent.journal
        now = agent.clock.now()
        point = journal.point
        if point is not None:
            yield _gauge(
                "rootcellar_recovery_point_age_seconds",
                "since the moment up to which every change is in the store",
                max(0.0, (now - point.at).total_seconds()),
            )
            yield _gauge(
                "rootcellar_recovery_point_revision", "the newest revision in the store", point.revision
            )
        if journal.first is not None:
            yield _gauge(
                "rootcellar_recovery_window_first_revision", "the oldest that can be restored", journal.first
            )
        interval = _family("rootcellar_expected_interval_seconds", "how often it is due", "kind")
        for kind, seconds in agent.expected_intervals().items():
            interval.add_metric([kind], seconds)
        yield interval
        yield from self._proofs(now)
        state = _family("rootcellar_agent_state", "1 for the state that the agent is in", "state")
        for phase in Phase:
            state.add_metric([phase.value], float(agent.board.state.phase is phase))
        yield state
        fault = _family("rootcellar_fault", "1 while it lasts", "fault")
        for each in Fault:
            fault.add_metric([each.value], float(each in agent.board.facts.faults))
        yield fault
        yield _gauge("rootcellar_leader", "whether this agent writes the backups", bool(agent.leads))
        yield _gauge("rootcellar_epoch", "the fence epoch of the newest session", journal.epoch)
        yield _gauge("rootcellar_timeline", "the timeline that is written to", journal.timeline)
        yield _counter(
            "rootcellar_clock_jumps", "times that the wall clock was found set", journal.clock_jumps
        )
        kinds = {"full": journal.full, "delta": journal.delta}
        yield from self._per_kind(kinds)
        failures = CounterMetricFamily(
            "rootcellar_capture_failures", "attempts that failed, by what was wrong", labels=["fault"]
        )
        for code, count in journal.failures.items():
            failures.add_metric([code], count)
        yield failures
        steps = _family("rootcellar_step_seconds", "how long a step has been under way", "step")
        longest: dict[str, float] = {}
        for step in agent.board.steps:
            taken = agent.clock.monotonic() - step.began
            longest[step.name] = max(taken, longest.get(step.name, 0.0))
        for name, seconds in longest.items():
            steps.add_metric([name], seconds)
        yield steps

    def _proofs(self, now: datetime) -> Iterator[Metric]:
        """Of chains by check; of uploads, which show some of it in passing, how many."""
        journal = self._agent.journal
        age = _family("rootcellar_last_proof_age_seconds", "since the newest proof that passed", "check")
        failed = _family("rootcellar_last_proof_failed", "whether the newest proof failed", "check")
        for check in Check:
            if (seen := journal.proofs.get(check)) is not None:
                age.add_metric([check], max(0.0, (now - seen.at).total_seconds()))
            if seen is not None or check in journal.failing:
                failed.add_metric([check], float(check in journal.failing))
        interval = _family("rootcellar_expected_proof_interval_seconds", "how often it is due", "check")
        for check, seconds in self._agent.proof_intervals().items():
            interval.add_metric([check], seconds)
        uploads = CounterMetricFamily(
            "rootcellar_upload_proofs", "objects that were looked at behind their upload", labels=["result"]
        )
        for result in ("passed", "failed", "unfiled"):
            uploads.add_metric([result], journal.uploads[result])
        yield from (age, failed, interval, uploads)

    def _per_kind(self, kinds: dict[str, Kind]) -> Iterator[Metric]:
        stored = CounterMetricFamily("rootcellar_capture_bytes", "of objects stored", labels=["kind", "form"])
        seconds = CounterMetricFamily("rootcellar_capture_seconds", "spent on them", labels=["kind"])
        count = CounterMetricFamily("rootcellar_captures", "objects stored", labels=["kind"])
        revision = _family("rootcellar_latest_revision", "of the newest object", "kind")
        moment = _family("rootcellar_latest_timestamp_seconds", "of the newest object, unix time", "kind")
        for name, kind in kinds.items():
            stored.add_metric([name, "payload"], kind.payload)
            stored.add_metric([name, "stored"], kind.stored)
            seconds.add_metric([name], kind.seconds)
            count.add_metric([name], kind.count)
            revision.add_metric([name], kind.revision)
            moment.add_metric([name], kind.captured_at)
        yield from (stored, seconds, count, revision, moment)

    def _of_store(self) -> Iterator[Metric]:
        reading = self._agent.meter.read()
        calls = CounterMetricFamily("rootcellar_store_calls", "calls of the store", labels=["verb"])
        errors = CounterMetricFamily(
            "rootcellar_store_errors", "calls that failed, by class of error", labels=["verb", "error"]
        )
        seconds = CounterMetricFamily("rootcellar_store_seconds", "spent inside it", labels=["verb"])
        slowest = _family("rootcellar_store_slowest_seconds", "the slowest call so far", "verb")
        for verb, each in reading.verbs.items():
            calls.add_metric([verb], each.calls)
            seconds.add_metric([verb], each.seconds)
            slowest.add_metric([verb], each.slowest)
            for code, count in each.errors.items():
                errors.add_metric([verb, code], count)
        passed = CounterMetricFamily(
            "rootcellar_store_bytes", "of objects, up and down", labels=["direction"]
        )
        passed.add_metric(["up"], reading.uploaded)
        passed.add_metric(["down"], reading.downloaded)
        yield from (calls, errors, seconds, slowest, passed)

    def _of_jobs(self) -> Iterator[Metric]:
        # Not by the label `job`: every scrape has one of its own.
        runs = CounterMetricFamily("rootcellar_job_runs", "begun", labels=["name"])
        failures = CounterMetricFamily("rootcellar_job_failures", "ended by an error", labels=["name"])
        ended = _family("rootcellar_job_last_end_timestamp_seconds", "unix time", "name")
        following = _family("rootcellar_job_next_timestamp_seconds", "unix time", "name")
        for diary in self._agent.diaries:
            runs.add_metric([diary.name], diary.runs)
            failures.add_metric([diary.name], diary.failures)
            if diary.ended_at is not None:
                ended.add_metric([diary.name], diary.ended_at.timestamp())
            if diary.next_at is not None:
                following.add_metric([diary.name], diary.next_at.timestamp())
        yield from (runs, failures, ended, following)

    def _of_stores(self) -> Iterator[Metric]:
        """How far each further store is: a mirror behind the first, a standby by itself."""
        now = self._agent.clock.now()
        behind = _family("rootcellar_store_lag_revisions", "behind the first store", "store")
        lag = _family("rootcellar_store_lag_seconds", "behind its recovery point", "store")
        age = _family("rootcellar_store_recovery_point_age_seconds", "of what a store holds", "store")
        failed = _family("rootcellar_store_uncopied_objects", "that the last copy could not take", "store")
        for each in report_stores(self._agent):
            name = each["name"] or "first"
            if each["at"] is not None:
                age.add_metric([name], max(0.0, (now - each["at"]).total_seconds()))
            if each["role"] != "mirror":
                continue
            failed.add_metric([name], each["failed"])
            if each["behind"] is not None:
                behind.add_metric([name], each["behind"])
            if each["lag"] is not None:
                lag.add_metric([name], each["lag"])
        expected = _family("rootcellar_expected_store_lag_seconds", "that its schedule allows", "store")
        for mirror in self._agent.settings.mirrors:
            expected.add_metric([mirror.name], mirror.expected_lag(now))
        copied = CounterMetricFamily("rootcellar_store_copied_bytes", "read for copies", labels=["store"])
        for name, reached in self._agent.reached.items():
            copied.add_metric([name], reached.size)
        active = _family("rootcellar_standby_active", "1 while a chain is written there", "store")
        if (standby := self._agent.standby) is not None:
            active.add_metric([standby.name], float(standby.is_active))
        yield from (behind, lag, age, failed, expected, copied, active)

    def _of_leases(self) -> Iterator[Metric]:
        """Of Kubernetes leases, where they are renewed: full, delta, member."""
        renewals = CounterMetricFamily("rootcellar_lease_renewals", "that were written", labels=["lease"])
        failures = CounterMetricFamily(
            "rootcellar_lease_failures", "renewals that failed, by class of error", labels=["lease", "error"]
        )
        last = _family("rootcellar_lease_last_renewal_timestamp_seconds", "unix time", "lease")
        for role, each in self._agent.journal.leases.items():
            renewals.add_metric([role], each.count)
            last.add_metric([role], each.last_at)
            for code, count in each.failures.items():
                failures.add_metric([role, code], count)
        yield from (renewals, failures, last)

    def _reference(self) -> Iterator[Metric]:
        """Those of etcd-backup-restore (its inventory, 4.5) that mean the same here."""
        journal = self._agent.journal
        names = {"Full": journal.full, "Incr": journal.delta}
        revision = _family("etcdbr_snapshot_latest_revision", "of the newest snapshot", "kind")
        moment = _family("etcdbr_snapshot_latest_timestamp", "of the newest snapshot, unix time", "kind")
        wanted = _family("etcdbr_snapshot_required", "1 while changes are in no snapshot yet", "kind")
        live = journal.status.header.revision if journal.status is not None else 0
        for name, kind in names.items():
            revision.add_metric([name], kind.revision)
            moment.add_metric([name], kind.captured_at)
        held = journal.point.revision if journal.point is not None else 0
        wanted.add_metric(["Full"], float(live > journal.full.revision))
        wanted.add_metric(["Incr"], float(live > held))
        yield from (revision, moment, wanted)
        yield _gauge(
            "etcdbr_snapstore_latest_deltas_total", "behind the newest full", journal.deltas_since_full
        )
        yield _gauge(
            "etcdbr_snapstore_latest_deltas_revisions_total",
            "revisions in the deltas behind the newest full",
            journal.revisions_since_full,
        )
        failures = CounterMetricFamily("etcdbr_snapshotter_failure", "by what was wrong", labels=["error"])
        for code, count in journal.failures.items():
            failures.add_metric([code], count)
        yield failures
        if journal.cluster_size:
            yield _gauge("etcdbr_cluster_size", "members of the etcd cluster", journal.cluster_size)
        if journal.status is not None:
            yield _gauge("etcdbr_is_learner", "whether the member is one", journal.status.is_learner)


def _family(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=[label])


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=float(value))
