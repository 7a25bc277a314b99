"""When the next store is begun, and which place that is."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import msgspec
import pytest

from rootcellar.agent.board import Board
from rootcellar.agent.clock import SystemClock
from rootcellar.agent.standby import Outage, suspected
from rootcellar.agent.state import UNREAD, UNSEEN, Fault
from rootcellar.backup.capture.session import RecoveryPoint
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.intents import carry_intents
from rootcellar.backup.catalogue.ownership import ForkIntent
from rootcellar.backup.catalogue.timeline import leave_fork_intent, open_timeline
from rootcellar.cli import configuration, schema
from rootcellar.errors import ConfigError
from rootcellar.logs import make_log
from rootcellar.stores.file import FileStore

NOW = datetime(2026, 11, 21, tzinfo=UTC)
BEFORE, AFTER = RecoveryPoint(7, NOW), RecoveryPoint(9, NOW)


@pytest.fixture
def board():
    return Board(SystemClock(), make_log("json", io.StringIO()))


def test_an_outage_lasts_from_the_first_fault_until_something_is_acknowledged():
    outage = Outage()
    assert outage.see(0, (), BEFORE) is None
    assert outage.see(10, {Fault.STORE_UNAVAILABLE}, BEFORE) == 0
    assert outage.see(20, (), BEFORE) == 10  # the next attempt is under way
    assert outage.see(30, {Fault.STORE}, BEFORE) == 20
    assert outage.see(40, (), AFTER) is None


@pytest.mark.parametrize(
    ("reason", "expected"), [(f"{UNREAD}a typo", set()), ("a key is not PEM", {Fault.CONFIG})]
)
def test_a_reload_that_fails_is_no_outage_of_the_store(board, reason, expected):
    """With hours between two deltas no recovery point would come to end it, mended or not."""
    board.fault(Fault.CONFIG, reason)
    board.fault(Fault.INTERNAL, f"{UNSEEN}the certificate is missing")
    assert suspected(board) == expected


@pytest.mark.parametrize(("step", "expected"), [("prune", set()), ("deltas", {Fault.STUCK})])
def test_a_job_that_takes_long_is_no_outage_and_a_capture_that_does_is(board, step, expected):
    with board.step(step, 0.0):
        board.watch()
        assert Fault.STUCK in board.facts.faults
        assert suspected(board) == expected


def test_a_fault_of_the_store_is_suspected_of_an_outage(board):
    board.fault(Fault.STORE_UNAVAILABLE, "no answer")
    assert suspected(board) == {Fault.STORE_UNAVAILABLE}


@pytest.mark.parametrize("fault", [Fault.ETCD_UNAVAILABLE, Fault.FENCED, Fault.FOREIGN, Fault.JOB, Fault.GAP])
def test_what_the_next_store_could_not_help_with_is_no_outage(fault):
    assert Outage().see(0, {fault}, None) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/prod/main?region=eu", "s3://bucket/prod/standby-of-main?region=eu"),
        ("gs://bucket/main/", "gs://bucket/standby-of-main"),
        ("azure://account/container/main", "azure://account/container/standby-of-main"),
        ("azure:///container/main", "azure:///container/standby-of-main"),
        ("swift://container/a/b?auth=x", "swift://container/a/standby-of-b?auth=x"),
        ("file:///backups/main", "file:///backups/standby-of-main"),
        ("file:///backups", "file:///standby-of-backups"),
        ("/var/backups/main", "/var/backups/standby-of-main"),
        ("backups", "standby-of-backups"),
    ],
)
def test_the_standby_lies_beside_the_mirror_and_under_no_prefix_of_its(url, expected):
    mirror = schema.Store(name="second", url=url, mirror_of="main", compression="zstd")
    found = configuration.standby(mirror)
    assert (found.name, found.url, found.compression) == ("second-standby", expected, "zstd")
    assert not found.url.partition("?")[0].startswith(url.partition("?")[0].rstrip("/"))


@pytest.mark.parametrize(
    "url", ["s3://bucket", "gs://bucket/", "azure://account/container", "swift://c?auth=x"]
)
def test_a_mirror_without_a_prefix_has_no_place_beside_it(url):
    with pytest.raises(ConfigError, match="has no prefix"):
        configuration.standby(schema.Store(name="second", url=url, mirror_of="main"))


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ([("a", None), ("b", "c")], "b mirrors c, which is no store"),
        ([("a", None), ("b", "a"), ("c", "b")], "c mirrors b, which is no store"),
        ([("a", "a")], "a mirrors a, which is no store"),
        ([("a", None), ("b", "a"), ("b-standby", None)], "what the standby of b is called"),
    ],
)
def test_a_mirror_of_nothing_that_is_written_to_is_refused(stores, message):
    written = [{"name": name, "url": f"/{name}", "mirror-of": of} for name, of in stores]
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"stores": written}, schema.File)


def a_timeline(store, cluster="aa"):
    return open_timeline(store, parent=None, forked_at=0, cluster_id=cluster, writer="tests/1", now=NOW)


def an_intent(store, timeline=1, cluster="bb"):
    return leave_fork_intent(
        store,
        ForkIntent(
            nonce="n",
            timeline=timeline,
            forked_at=7,
            revision=7,
            cluster_id=cluster,
            created_at=NOW,
            by="tests/1",
        ),
    )


def intents(store):
    return [info.key for info in store.list(keys.FORKS)]


def test_word_of_a_restore_is_carried_once_to_a_store_that_shares_the_history(tmp_path):
    standby, main = FileStore(tmp_path / "standby"), FileStore(tmp_path / "main")
    a_timeline(standby)
    a_timeline(main)
    an_intent(standby)
    assert [each.timeline for each in carry_intents(standby, main, "bb")] == [1]
    assert carry_intents(standby, main, "bb") == ()
    assert intents(main) == intents(standby)


@pytest.mark.parametrize(("cluster", "asked"), [("cc", "bb"), ("aa", "dd")])
def test_word_of_another_history_or_for_another_cluster_is_not_carried(tmp_path, cluster, asked):
    standby, main = FileStore(tmp_path / "standby"), FileStore(tmp_path / "main")
    a_timeline(standby, cluster)
    a_timeline(main)
    an_intent(standby)
    assert carry_intents(standby, main, asked) == ()
    assert intents(main) == []
