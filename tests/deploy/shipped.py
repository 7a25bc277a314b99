"""What lies in deploy/, read as its readers do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rootcellar.rules.yaml"
OPERATOR_RULES = DEPLOY / "prometheus" / "rootcellar-operator.rules.yaml"
DASHBOARD = DEPLOY / "grafana" / "rootcellar.json"
UNIT = DEPLOY / "systemd" / "rootcellar-agent.service"
CONFIG = DEPLOY / "systemd" / "config.yaml"


def alerts(rules=RULES):
    """All rules of a file, in order."""
    return [rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads(DASHBOARD.read_text())


def targets():
    """Every query of the dashboard, with the title of its panel."""
    return [
        (panel["title"], target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


def metrics_in(expression):
    """The names of ours, and of those that we have in common with etcd-backup-restore, in an expression."""
    return set(re.findall(r"\b(?:rootcellar|etcdbr)_\w+", expression))
