"""The dashboard: that Grafana can show it, and that nothing on it lies over something else."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from tests.deploy.shipped import dashboard, targets

UNITS = {"s", "short", "none", "Bps", "ops"}


def panels():
    return dashboard()["panels"]


def test_every_panel_has_a_number_and_a_title_of_its_own():
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert len({panel["title"] for panel in panels()}) == len(panels())


def test_every_panel_lies_on_the_grid_and_on_no_other():
    for panel in panels():
        place = panel["gridPos"]
        assert min(place.values()) >= 0
        assert place["w"] * place["h"] > 0
        assert place["x"] + place["w"] <= 24, panel["title"]
    for one, other in combinations(panels(), 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])


@pytest.mark.parametrize(
    "panel", [panel for panel in panels() if panel["type"] != "row"], ids=lambda panel: panel["title"]
)
def test_a_panel_asks_the_chosen_data_source_about_the_chosen_agents(panel):
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == source
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    for target in panel["targets"]:
        assert target["datasource"] == source
        named = re.findall(r"(?:rootcellar|etcdbr)_\w+(.{0,24})", target["expr"])
        assert named
        assert all(after.startswith('{instance=~"$instance"') for after in named), target["expr"]


def test_every_variable_that_a_query_has_is_one_that_grafana_or_the_dashboard_knows():
    declared = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert declared == {"datasource", "instance"}
    for title, expression in targets():
        used = set(re.findall(r"\$(\w+)", expression))
        assert used <= declared | {"__rate_interval"}, title
