"""What a real agent shows is what rules and dashboard ask for, as a real Prometheus has it."""

from __future__ import annotations

import re

import pytest

from testbed.prometheus import Prometheus
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.deploy.shipped import RULES, alerts, metrics_in, targets

MAY_BE_EMPTY = {
    "Attempts that failed",
    "Errors by class",
    "Faults",
    "Objects deleted",
    "Seconds for each object",
    "Since a job last ended",
    "Throughput",
}
"""Panels that need something to have happened, lately or at all."""


@pytest.fixture
def agent(agents, etcd, tmp_path):
    """An agent that leads, has stored a full and a delta, knows of a proof, and has every job."""
    member = etcd.start("3.6")
    member.etcdctl("put", "first", "value")
    found = agents.make([member.endpoint], f"file://{tmp_path / 'store'}")
    written = found.config.read_text()
    written = written.replace(
        "delta: {every: 1s}", "delta: {every: 1s}, proofs: {replay: {cron: '0 3 * * *'}}"
    )
    written = written.replace(
        f"url: '{found.store_url}'", f"url: '{found.store_url}', retention: {{limit: 9}}"
    )
    found.config.write_text(written)
    found.start()
    found.wait_logged("stored", why="there is no full yet")
    member.etcdctl("put", "second", "value")
    found.wait_reached(3)
    run(found, "verify", "--level", "4")
    found.terminate()
    found.start()
    found.wait_logged("session", epoch=2)
    member.etcdctl("put", "third", "value")
    found.wait_reached(4)
    return found


def test_an_agent_has_every_metric_of_rules_and_dashboard_and_says_when_its_jobs_are_due(agent):
    text = agent.get("/metrics")
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))

    for asked in [rule["expr"] for rule in alerts()] + [expression for _, expression in targets()]:
        assert metrics_in(asked) <= names, asked
    assert 'rootcellar_last_proof_failed{check="replayed"} 0.0' in text
    assert 'rootcellar_expected_proof_interval_seconds{check="replayed"} 86400.0' in text
    for kind, seconds in {"delta": 1, "full": 6 * 3600, "proof-replay": 86400, "prune": 3600}.items():
        assert f'rootcellar_expected_interval_seconds{{kind="{kind}"}} {float(seconds)}' in text


def test_prometheus_evaluates_every_rule_and_every_panel_over_a_real_agent(agent, tmp_path):
    address = agent.doorway.url.removeprefix("http://")
    prometheus = Prometheus(tmp_path / "prometheus", "rootcellar", [address], RULES)
    try:
        prometheus.start()
        wait_until(lambda: prometheus.series("up == 1"), "a scrape")
        wait_until(lambda: prometheus.series('rootcellar_job_next_timestamp_seconds{name="prune"}'), "jobs")

        def rules():
            return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

        wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), "an evaluation")
        assert [(rule["name"], rule["health"]) for rule in rules()] == [
            (rule["alert"], "ok") for rule in alerts()
        ]
        pending = {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
        assert pending <= {"RootcellarDown"}  # until the first scrape

        def answered(expression):
            real = expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
            return prometheus.series(real)

        for title, expression in targets():
            if title in MAY_BE_EMPTY:
                answered(expression)
            else:
                wait_until(lambda asked=expression: answered(asked), f"{title}: {expression}", 20)
    finally:
        prometheus.kill()
