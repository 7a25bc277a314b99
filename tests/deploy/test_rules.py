"""The alert rules: what fires them, and that each has a page that says what to do."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from rootcellar.agent.state import Fault
from rootcellar.cli import flags, table
from rootcellar.cli.arguments import sort
from testbed import binaries
from tests.deploy.rule_cases import CASES, DAY
from tests.deploy.shipped import OPERATOR_RULES, ROOT, RULES, alerts
from tests.docs.test_how_tos import commands

PREFIX = "https://rootcellar.dev/"
RUNBOOKS = ROOT / "docs" / "runbooks"
FILES = (RULES, OPERATOR_RULES)
EVERY = [rule for file in FILES for rule in alerts(file)]


def promtool(*arguments):
    done = subprocess.run(
        [binaries.promtool(), *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_promtool_finds_no_fault_in_the_rules(file):
    assert f"SUCCESS: {len(alerts(file))} rules found" in promtool("check", "rules", file)


def in_words(text, labels, told):
    """What Prometheus makes of the two placeholders that our annotations have."""
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), text)
    return re.sub(r"{{ \$value \| \w+ }}", told, text)


def named(series, usual):
    """A series with the labels that every scrape adds."""
    name, _, labels = series.partition("{")
    missing = {label: value for label, value in usual.items() if f"{label}=" not in labels}
    added = [*filter(None, [labels.rstrip("}")]), *(f'{label}="{value}"' for label, value in missing.items())]
    return f"{name}{{{','.join(added)}}}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.when}")
def test_an_alert_fires_when_it_should_and_only_then(case, tmp_path):
    rule = next(rule for rule in EVERY if rule["alert"] == f"Rootcellar{case.alert}")
    firing = []
    if case.fires is not None:
        labels = {**case.usual, **case.fires}
        told = {name: in_words(text, labels, case.told) for name, text in rule["annotations"].items()}
        firing = [{"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": told}]
    scraped = {"job": "rootcellar", "instance": "vm-1:9378"}
    test = {
        "interval": "1m",
        "input_series": [
            {"series": named(series, scraped), "values": values} for series, values in case.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{case.at}m", "alertname": rule["alert"], "exp_alerts": firing},
        ],
    }
    file = tmp_path / "test.yaml"
    # Weeks minute by minute take promtool minutes.
    every = "1m" if case.at <= 2 * DAY else "10m"
    # No rule asks for what another one says, and all of them would take promtool five times as long.
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": [{"name": "tried", "rules": [rule]}]}))
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": every, "tests": [test]}))
    promtool("test", "rules", file)


def test_every_alert_is_tried_both_ways():
    for rule in EVERY:
        ways = {case.fires is not None for case in CASES if f"Rootcellar{case.alert}" == rule["alert"]}
        assert ways == {True, False}, rule["alert"]


def test_every_alert_says_what_is_wrong_and_how_urgent_it_is():
    for rule in EVERY:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_alert_has_a_runbook_page_and_every_page_an_alert():
    named_pages = {rule["annotations"]["runbook_url"]: rule["alert"] for rule in EVERY}

    assert len(named_pages) == len(EVERY)
    assert set(named_pages) == {
        f"{PREFIX}{page.relative_to(ROOT).as_posix()}" for page in RUNBOOKS.glob("*.md")
    }
    for url, alert in named_pages.items():
        words = re.findall("[A-Z][a-z]+", alert.removeprefix("Rootcellar"))
        assert url.endswith(f"/{'-'.join(words).lower()}.md")
        assert (ROOT / url.removeprefix(PREFIX)).read_text().startswith(f"# {alert}:")


def test_every_runbook_page_answers_the_same_four_questions():
    for page in RUNBOOKS.glob("*.md"):
        headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert headings == [
            "What does it mean?",
            "What do I look at?",
            "What do I do?",
            "When do I worry?",
        ], page.name


def test_runbooks_name_only_metrics_and_faults_that_there_are():
    known = {each.value for each in Fault}
    for page in RUNBOOKS.glob("*.md"):
        for fault in re.findall(r'fault="([a-z-]+)"', page.read_text()):
            assert fault in known, page.name


def test_every_command_of_a_runbook_page_is_one_that_rootcellar_knows():
    for page in RUNBOOKS.glob("*.md"):
        for words in commands(page):
            found = sort(words, table.COMMANDS, flags.EVERYWHERE)
            assert found.command is not None, (page.name, words)
