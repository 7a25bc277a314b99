"""`prune` as a person or a script sees it."""

from __future__ import annotations

import pytest

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.stores.file import FileStore
from tests.backup.capture_scene import a_scene
from tests.backup.prune_scene import contents, fill

CONFIG = """
stores:
- name: main
  url: {url}
  retention: {retention}
"""


@pytest.fixture
def filled(tmp_path):
    store = FileStore(tmp_path / "store")
    fill(store, tmp_path)
    return store


def fulls_of(store):
    return [each.last for each in read_catalogue(store).snapshots if each.is_full]


def configure(config, store, retention):
    config(CONFIG.format(url=store.url, retention=retention))


def test_a_dry_run_shows_what_would_go_and_why_and_writes_nothing(ok, filled):
    before = contents(filled, "")
    shown = ok("prune", filled.url, "--policy", "limit=1", "--dry-run").out
    assert "keeps the newest 1; deltas as long as their full; at least 1 chain that can be proven" in shown
    lines = [line.split() for line in shown.splitlines() if line.startswith(("keep", "delete"))]
    assert [words[0] for words in lines] == ["delete", "delete", "keep"]
    assert "0, 3 go  there are 1 newer" in shown
    assert "the newest" in shown
    assert "to delete: 2 fulls and 6 deltas (" in shown
    assert contents(filled, "") == before


def test_with_yes_it_deletes_and_says_so(ok, filled):
    shown = ok("prune", filled.url, "--policy", "limit=1", "--yes").out
    assert "deleted: 2 fulls and 6 deltas (" in shown
    assert fulls_of(filled) == [160]


def test_off_a_terminal_it_does_not_ask_and_does_nothing(cli, filled):
    result = cli("prune", filled.url, "--policy", "limit=1")
    assert result.code == 11
    assert "nobody is here to be asked: delete 2 fulls and 6 deltas" in result.err
    assert "say --yes if you mean it" in result.err
    assert len(contents(filled)) == 12


@pytest.mark.parametrize(("typed", "left"), [("n\n", 3), ("y\n", 1)])
def test_on_a_terminal_it_asks(terminal, filled, typed, left):
    code, shown = terminal("prune", filled.url, "--policy", "limit=1", typed=typed)
    assert "[y/N]" in shown
    assert (code == 0) == (left == 1)
    assert len(fulls_of(filled)) == left


def test_without_a_policy_it_is_refused(cli, filled):
    result = cli("prune", filled.url, "--yes")
    assert result.code == 11
    assert "nothing says what to keep" in result.err
    assert "--policy daily=7,weekly=4" in result.err


def test_the_policy_of_the_configured_store_holds_also_for_its_url(ok, config, filled):
    configure(config, filled, "{limit: 2, deltas: 1h, minimum: 1}")
    for named in ("@main", filled.url):
        found = ok("prune", named, "--dry-run", "--output", "json").json
        assert (found["policy"], found["minimum"], found["deltas"]) == ("the newest 2", 1, 3600)
        kept = [each["key"] for each in found["objects"] if each["keep"] and each["what"] == "full"]
        assert len(kept) == 2


def test_flags_go_above_the_configuration(ok, config, filled):
    configure(config, filled, "{limit: 2, deltas: 1h}")
    words = ("--policy", "daily=1", "--minimum", "3", "--deltas-for", "2d")
    found = ok("prune", "@main", *words, "--dry-run", "--output", "yaml").yaml
    assert (found["policy"], found["minimum"], found["deltas"]) == ("1 days", 3, 172_800)
    assert all(each["keep"] for each in found["objects"])


def test_the_document_says_what_became_of_each_object(ok, filled):
    found = ok("prune", filled.url, "--policy", "limit=1", "--yes", "--output", "json").json
    outcomes = {each["key"]: each["outcome"] for each in found["objects"]}
    assert sorted(set(outcomes.values())) == ["deleted", "kept"]
    assert {key for key, outcome in outcomes.items() if outcome == "kept"} == set(contents(filled))
    assert found["freed"] == sum(each["size"] for each in found["objects"] if each["outcome"] == "deleted")
    again = ok("prune", filled.url, "--policy", "limit=1", "--yes", "--output", "json").json
    assert {each["outcome"] for each in again["objects"]} == {"kept"}


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("often", "none of exponential, limit=7"),
        ("limit=0", "a policy that keeps nothing"),
        ("limit=3,daily=2", "a limit stands alone"),
        ("daily=x", "not a whole number"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(cli, filled, policy, told):
    result = cli("prune", filled.url, "--policy", policy, "--dry-run")
    assert result.code == 11
    assert told in result.err


@pytest.mark.parametrize(
    "retention", ["{gfs: {daily: 0}}", "{limit: 0}", "{}", "{limit: 2, exponential: true}"]
)
def test_a_configured_policy_that_cannot_be_meant_is_refused(cli, config, filled, retention):
    configure(config, filled, retention)
    assert cli("prune", "@main", "--dry-run").code == 12


def test_a_held_chain_stays_until_it_is_released(ok, filled):
    old = read_catalogue(filled).snapshots[0].name.name
    held = ok("hold", "add", filled.url, old, "--reason", "an audit", "--output", "json").json
    shown = ok("prune", filled.url, "--policy", "limit=1", "--yes").out
    assert ": an audit" in shown
    assert fulls_of(filled) == [40, 160]
    ok("hold", "release", filled.url, held["id"], "--reason", "over")
    ok("prune", filled.url, "--policy", "limit=1", "--yes")
    assert fulls_of(filled) == [160]
    assert ok("hold", "list", filled.url, "--output", "json").json["holds"] == []
    assert [*filled.list("catalogue/holds/")] == []


def test_what_was_pruned_is_no_gap_that_check_warns_of(ok, cli, filled):
    ok("prune", filled.url, "--policy", "limit=3", "--deltas-for", "1s", "--yes")
    assert fulls_of(filled) == [40, 100, 160]
    told = cli("check", filled.url, "--max-age", "5000w").out
    assert "are missing" not in told


def test_an_etcd_of_another_cluster_stops_it(cli, etcd, tmp_path):
    store = FileStore(tmp_path / "captured")
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(3)
        scene.full()
        scene.full()
        other = etcd.start("3.6")
        words = ("prune", store.url, "--policy", "limit=1", "--dry-run", "--endpoints")
        assert cli(*words, scene.member.endpoint).code == 0
        result = cli(*words, other.endpoint)
        assert result.code == 34
        assert "and etcd is cluster" in result.err
