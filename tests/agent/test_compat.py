"""The reference's HTTP API, asked over real sockets, with a real etcd and a real store behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rootcellar.agent.compat import CompatApi, Initialization, Progress, snapshot_json
from rootcellar.agent.initialization import Initialized
from rootcellar.agent.start_plan import Deed, StartPlan
from rootcellar.agent.validation import Mode, Status, Validation
from rootcellar.backup.catalogue import names
from rootcellar.errors import ConfigError, TargetError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.agent.door_scene import PlainSnapshotter, ask, closed_port, eventually, lived, served, write

DONE = Initialized(StartPlan(Deed.KEEP, "a member"), Validation(Status.VALID, "a member"))
JOINED = Initialized(StartPlan(Deed.JOIN, "new"), Validation(Status.NOT_EXIST, "none", blank=True))


class Runs:
    """An initialization that waits until it is let go; the modes it was called with."""

    def __init__(self, outcome=DONE):
        self.modes, self.go, self.outcome = [], threading.Event(), outcome
        self.ended = False

    def __call__(self, mode):
        self.modes.append(mode)
        came = self.go.wait(20)
        self.ended = True
        assert came
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def api(run=None, snapshotter=None, config=lambda joins: "", **more):
    return lambda: CompatApi(
        Initialization(run or (lambda _mode: DONE)), config, snapshotter, **more
    ).routes()


def status(url):
    code, body, _ = ask(f"{url}/initialization/status")
    assert code == 200
    return body.decode()


def test_an_initialization_is_started_watched_and_told_once():
    run = Runs()
    with served(api(run)) as url:
        assert status(url) == "New"
        assert ask(f"{url}/initialization/start?mode=sanity")[:2] == (200, b"")
        assert status(url) == "Progress"
        assert status(url) == "Progress"
        run.go.set()
        assert eventually(lambda: (told := status(url)) != "Progress" and told) == "Successful"
        assert status(url) == "New"
    assert run.modes == [Mode.SANITY]


@pytest.mark.parametrize("query", ["", "?mode=full", "?mode=whatever"])
def test_a_mode_that_is_not_known_is_the_thorough_one(query):
    run = Runs()
    run.go.set()
    with served(api(run)) as url:
        ask(f"{url}/initialization/start{query}")
        eventually(lambda: status(url) == "Successful")
    assert run.modes == [Mode.FULL]


def test_an_initialization_is_not_started_twice():
    run = Runs()
    with served(api(run)) as url:
        assert [ask(f"{url}/initialization/start")[0] for _ in range(3)] == [200, 200, 200]
        run.go.set()
        eventually(lambda: status(url) == "Successful")
    assert len(run.modes) == 1


@pytest.mark.parametrize("failure", [TargetError("no space", hint="free some"), ValueError("a mistake")])
def test_a_failed_initialization_is_told_once_logged_with_its_reason_and_can_be_tried_again(failure, caplog):
    run = Runs(failure)
    run.go.set()
    with caplog.at_level(logging.ERROR), served(api(run)) as url:
        ask(f"{url}/initialization/start")
        assert eventually(lambda: (told := status(url)) != "Progress" and told) == "Failed"
        assert status(url) == "New"
        ask(f"{url}/initialization/start")
        eventually(lambda: status(url) == "Failed")
    assert len(run.modes) == 2
    assert str(failure) in caplog.text


def test_the_end_of_the_process_waits_for_no_initialization():
    run = Runs()
    try:
        with served(api(run)) as url:
            ask(f"{url}/initialization/start")
            eventually(lambda: run.modes)
        assert not run.ended
    finally:
        run.go.set()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_no_method_is_refused(method):
    with served(api()) as url:
        assert ask(f"{url}/initialization/start", method)[0] == 200


def test_health_is_that_of_the_snapshotter_and_none_without_a_store():
    for snapshotter, expected in (
        (None, (503, b'{"health":false}')),
        (PlainSnapshotter(None, None, healthy=True), (200, b'{"health":true}')),
        (PlainSnapshotter(None, None, healthy=False), (503, b'{"health":false}')),
    ):
        with served(api(snapshotter=snapshotter)) as url:
            assert ask(f"{url}/healthz")[:2] == expected


def test_nobody_is_healthy_while_a_data_directory_is_made():
    run = Runs()
    with served(api(run, PlainSnapshotter(None, None))) as url:
        assert ask(f"{url}/healthz")[0] == 200
        ask(f"{url}/initialization/start")
        assert ask(f"{url}/healthz")[0] == 503
        run.go.set()
        eventually(lambda: ask(f"{url}/healthz")[0] == 200)


def test_the_configuration_is_made_for_what_was_decided():
    run = Runs(JOINED)
    run.go.set()
    with served(api(run, config=lambda joins: f"joins: {joins}\n")) as url:
        assert ask(f"{url}/config")[:2] == (200, b"joins: False\n")
        ask(f"{url}/initialization/start")
        eventually(lambda: status(url) == "Successful")
        assert ask(f"{url}/config")[:2] == (200, b"joins: True\n")


def test_a_configuration_that_cannot_be_made_is_an_error():
    def config(joins):
        raise ConfigError("no such file")

    with served(api(config=config)) as url:
        assert ask(f"{url}/config")[:2] == (500, b"")


PATHS = ("/snapshot/full", "/snapshot/delta", "/snapshot/latest")


@pytest.mark.parametrize("path", PATHS)
def test_without_a_store_no_snapshot_is_allowed(path):
    with served(api()) as url:
        assert ask(f"{url}{path}")[:2] == (405, b"")


@pytest.fixture
def live(etcd, tmp_path):
    member = lived(etcd, "3.6")
    with EtcdClient([member.endpoint]) as client:
        yield client, FileStore(tmp_path / "store")


KEYS = [
    *("createdOn", "immutabilityExpriyTime", "versionID", "kind", "snapDir", "snapName", "prefix"),
    *("compressionSuffix", "startRevision", "lastRevision", "isChunk", "isFinal"),
]


def test_snapshots_are_taken_and_shown_as_the_reference_shows_them(live):
    client, store = live
    with served(api(snapshotter=PlainSnapshotter(client, store))) as url:
        assert json.loads(ask(f"{url}/snapshot/latest")[1]) == {"fullSnapshot": None, "deltaSnapshots": None}
        code, body, headers = ask(f"{url}/snapshot/full")
        assert code == 200
        assert headers["Content-Type"] == "application/json"
        full = json.loads(body)
        assert list(full) == KEYS
        assert (full["kind"], full["startRevision"], full["lastRevision"]) == ("Full", 0, 41)
        assert (full["prefix"], full["versionID"], full["isChunk"]) == ("", None, False)
        assert f"v2/{full['snapName']}" in {info.key for info in store.list()}
        assert ask(f"{url}/snapshot/delta")[:2] == (200, b"null")
        write(client, 3, b"more")
        delta = json.loads(ask(f"{url}/snapshot/delta")[1])
        assert (delta["kind"], delta["startRevision"], delta["lastRevision"]) == ("Incr", 42, 44)
        latest = json.loads(ask(f"{url}/snapshot/latest")[1])
        assert latest == {"fullSnapshot": full, "deltaSnapshots": [delta]}


@pytest.mark.parametrize("final", ["maybe", "yes", "2"])
def test_what_go_takes_for_no_boolean_is_a_bad_request(final):
    with served(api(snapshotter=PlainSnapshotter(None, None))) as url:
        assert ask(f"{url}/snapshot/full?final={final}")[:2] == (400, b"")


@pytest.mark.parametrize(("text", "meant"), [("", False), ("true", True), ("T", True), ("0", False)])
def test_final_is_handed_on(text, meant):
    seen = []

    class Remembers(PlainSnapshotter):
        async def full(self, *, final):
            seen.append(final)
            return names.full(7, 1_790_000_000, final=final)

    with served(api(snapshotter=Remembers(None, None))) as url:
        answer = json.loads(ask(f"{url}/snapshot/full?final={text}")[1])
    assert seen == [meant]
    assert answer["isFinal"] is meant
    assert answer["snapName"].endswith(".final") is meant


def test_a_snapshot_that_fails_is_an_error_without_a_body(live):
    client, store = live
    client.close()
    with (
        closed_port() as port,
        EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as dead,
        served(api(snapshotter=PlainSnapshotter(dead, store))) as url,
    ):
        assert ask(f"{url}/snapshot/full")[:2] == (500, b"")


def test_a_follower_has_the_leader_answer(live):
    client, store = live
    leader = PlainSnapshotter(client, store)
    with served(api(snapshotter=leader)) as there:
        follower = PlainSnapshotter(None, None, leader=there)
        with served(api(snapshotter=follower)) as url:
            full = json.loads(ask(f"{url}/snapshot/full?final=false")[1])
            assert f"v2/{full['snapName']}" in {info.key for info in store.list()}
            assert ask(f"{url}/snapshot/delta")[:2] == (200, b"null")
            assert ask(f"{url}/snapshot/full?final=nonsense")[0] == 400
            leader.is_healthy = False
            assert ask(f"{url}/snapshot/delta")[:2] == (405, b"")


def test_a_leader_that_is_away_or_unknown_is_not_waited_for():
    with closed_port() as port:
        away = PlainSnapshotter(None, None, leader=f"http://127.0.0.1:{port}")
        with served(api(snapshotter=away)) as url:
            assert ask(f"{url}/snapshot/full")[:2] == (405, b"")
    unknown = PlainSnapshotter(None, None, leader=None)
    with served(api(snapshotter=unknown)) as url:
        assert ask(f"{url}/snapshot/full")[:2] == (405, b"")


class Hangs(PlainSnapshotter):
    """A leader that is healthy and does not end a snapshot."""

    def __init__(self):
        super().__init__(None, None)
        self.asked, self.go = 0, threading.Event()

    async def delta(self):
        self.asked += 1
        await asyncio.to_thread(self.go.wait)


@contextmanager
def waiting(leader, url, requests):
    """So many requests for a snapshot, all of which the leader has; they end behind this."""
    with ThreadPoolExecutor(requests) as pool:
        asked = [pool.submit(ask, f"{url}/snapshot/delta") for _ in range(requests)]
        try:
            eventually(lambda: leader.asked == requests)
            yield asked
        finally:
            leader.go.set()


def test_a_leader_that_hangs_keeps_no_etcd_from_starting():
    leader = Hangs()
    with served(api(snapshotter=leader)) as there:
        follower = api(config=lambda _joins: "made", snapshotter=PlainSnapshotter(None, None, leader=there))
        pool = min(32, (os.cpu_count() or 1) + 4)  # what asyncio has for all
        with served(follower) as url, waiting(leader, url, min(pool, 16)):
            assert ask(f"{url}/config")[:2] == (200, b"made")
            ask(f"{url}/initialization/start")
            assert eventually(lambda: (told := status(url)) != "Progress" and told) == "Successful"


def test_a_leader_that_hangs_is_not_asked_without_end_and_another_is_still_asked(live, caplog):
    leader, follower = Hangs(), PlainSnapshotter(None, None)
    with (
        served(api(snapshotter=leader)) as hanging,
        served(api(snapshotter=PlainSnapshotter(*live))) as new,
        served(api(snapshotter=follower)) as url,
    ):
        follower.leads_at = hanging
        with waiting(leader, url, 16) as asked:
            assert ask(f"{url}/snapshot/delta")[:2] == (503, b"")
            follower.leads_at = new
            assert ask(f"{url}/snapshot/full")[0] == 200
        assert {each.result()[:2] for each in asked} == {(200, b"null")}
        follower.leads_at = hanging
        assert ask(f"{url}/snapshot/delta")[:2] == (200, b"null")
    assert f"the leader at {hanging} has 16 to answer" in caplog.text


def test_tls_is_served_with_its_headers_and_trusted_between_followers_and_leader(live, authority):
    client, store = live
    pair = {"cert": authority.server.certificate, "key": authority.server.key}
    trusted = ssl.create_default_context(cafile=authority.ca)
    with served(api(snapshotter=PlainSnapshotter(client, store), tls=True), **pair) as there:
        follower = PlainSnapshotter(None, None, leader=there)
        with served(api(snapshotter=follower, tls=True, leader_ca=str(authority.ca)), **pair) as url:
            code, body, headers = ask(f"{url}/snapshot/full", context=trusted)
    assert code == 200
    assert json.loads(body)["kind"] == "Full"
    assert headers["Strict-Transport-Security"] == "max-age=31536000"
    assert headers["Content-Security-Policy"] == "default-src 'self'"


def test_nothing_is_shown_as_null():
    assert snapshot_json(None) is None


def test_reading_resets_only_what_has_ended():
    initialization = Initialization(lambda _mode: DONE)
    assert initialization.read() is Progress.NEW
    initialization.progress = Progress.RUNNING
    assert [initialization.read(), initialization.read()] == [Progress.RUNNING] * 2
    initialization.progress = Progress.FAILED
    assert [initialization.read(), initialization.read()] == [Progress.FAILED, Progress.NEW]
