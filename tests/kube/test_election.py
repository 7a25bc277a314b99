"""Several processes, one lease: who works, and who does not any more."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from rootcellar.errors import ConfigError, FencedError, KubeExistsError, KubeNotFoundError
from rootcellar.kube.client import KubeClient
from rootcellar.kube.election import Election, Terms
from rootcellar.kube.kinds import LEASES, untyped
from rootcellar.kube.reflector import Reflector
from rootcellar.logs import make_log
from tests.kube.manager_process import LEASE
from tests.kube.things import THINGS, body, define, wait_until

ALL_LEASES = untyped("coordination.k8s.io", "v1", "leases")
SHORT = 6
"""Seconds of a lease whose end a test waits for."""


@pytest.fixture(scope="module")
def things(control_plane):
    define(control_plane.client)


class Process:
    """`manager_process`, and its log."""

    def __init__(self, config, namespace, identity, directory, *words):
        self.identity = identity
        self.path = directory / f"{identity}.log"
        with self.path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.kube.manager_process", config, namespace, identity, *words],
                stdout=log,
                stderr=log,
            )

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGKILL):
        self.send(number)
        return self.process.wait(60)

    def is_stopped(self):
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def logged(self, event):
        return f'"event": "{event}"' in self.path.read_text()


@pytest.fixture
def contend(things, control_plane, namespace, tmp_path):
    """Starts processes; none is left behind."""
    config = control_plane.kubeconfig(tmp_path / "admin")
    made = []

    def start(identity, *words):
        made.append(Process(config, namespace, identity, tmp_path, *words))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.send(signal.SIGCONT)
            each.end()


class Writers:
    """Who wrote the status of the things of a namespace, in the order of the API server."""

    def __init__(self, client, namespace):
        self.order = []
        self._latest = {}
        self._reflector = Reflector(client, THINGS, namespace=namespace)
        self._reflector.listen(self._hear)
        self._reflector.start()
        self._namespace = namespace

    def _hear(self, change):
        status = json.loads(change.new or b"{}").get("status", {})
        if "by" in status:
            self.order.append(status["by"])

    def wait(self, identity):
        wait_until(lambda: self.order and self.order[-1] == identity, f"{identity} works")

    def turns(self):
        """The writers without repetition: each once, where none comes back."""
        found = []
        for by in self.order:
            if not found or found[-1] != by:
                found.append(by)
        return found

    def stop(self):
        self._reflector.stop()


@pytest.fixture
def writers(things, control_plane, namespace):
    control_plane.client.create(THINGS, body("thing"), namespace)
    writers = Writers(control_plane.client, namespace)
    yield writers
    writers.stop()


def test_a_leader_that_is_killed_is_followed_once_its_lease_is_over(
    contend, writers, control_plane, namespace
):
    first = contend("first")
    writers.wait("first")
    second = contend("second")
    wait_until(lambda: second.logged("waits"), "it stands by")
    first.end()
    # Shortened only now: one that is short from the start is lost where the machine is slow.
    now, seconds = datetime.now(UTC), 2
    control_plane.client.merge_patch(LEASES, LEASE, {"spec": {"leaseDurationSeconds": seconds}}, namespace)
    writers.wait("second")
    assert writers.turns() == ["first", "second"]
    taken = datetime.fromisoformat(spec(control_plane, namespace, LEASE)["acquireTime"])
    assert taken - now > timedelta(seconds=seconds)


def test_a_leader_that_ends_in_good_order_is_followed_at_once(contend, writers):
    first = contend("first")
    writers.wait("first")
    second = contend("second")
    wait_until(lambda: second.logged("waits"), "it stands by")
    assert first.end(signal.SIGTERM) == 0
    assert first.logged("lease-released")
    writers.wait("second")  # the lease would be over in an hour
    assert writers.turns() == ["first", "second"]


@pytest.mark.parametrize(
    "when",
    [
        "before",  # it asks whether it may write
        "after",  # it was told that it may: what names a version, the API server refuses
    ],
)
def test_a_leader_that_slept_past_its_lease_writes_nothing_more_and_ends(contend, writers, when):
    first = contend("first", "--doze", when, "--lease", str(SHORT))
    wait_until(first.is_stopped, "it stops in the middle of a turn")
    contend("second")
    writers.wait("second")
    first.send(signal.SIGCONT)
    code = first.process.wait(60)
    assert first.logged("leadership-lost")
    # Its turn was over in the tenth of a second that there is for it, or was ended.
    assert {1: "FencedError", FencedError.exit_code: '"event": "aborted"'}[code] in first.path.read_text()
    before = len(writers.order)
    wait_until(lambda: len(writers.order) > before + 20, "the second goes on")
    assert writers.turns() == ["first", "second"]


def test_a_reconcile_that_never_ends_does_not_outlive_the_lease(contend, writers, control_plane, namespace):
    control_plane.client.create(THINGS, body("hang"), namespace)
    first = contend("first", "--hang")
    writers.wait("first")
    control_plane.client.delete(LEASES, LEASE, namespace)
    taken_by("somebody else", control_plane.client, namespace)
    assert first.process.wait(60) == FencedError.exit_code
    assert first.logged("aborted")


def test_an_orderly_end_that_cannot_wait_any_longer_leaves_the_lease_to_expire(
    contend, writers, control_plane, namespace
):
    control_plane.client.create(THINGS, body("hang"), namespace)
    first = contend("first", "--hang")
    writers.wait("first")
    assert first.end(signal.SIGTERM) == 0
    assert first.logged("stopped")
    assert not first.logged("lease-released")
    assert control_plane.client.get(LEASES, LEASE, namespace).spec.holder_identity == "first"


def taken_by(holder, client, namespace):
    """Whoever deletes a lease and makes one anew, before its holder does."""
    made = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3}}
    try:
        client.create(LEASES, made, namespace)
    except KubeExistsError:
        client.merge_patch(LEASES, LEASE, {"spec": {"holderIdentity": holder}}, namespace)


@pytest.mark.long
def test_whatever_is_killed_stopped_and_started_nobody_writes_after_his_successor(contend, writers):
    chance, names, faults, pause = random.Random(7), count(1), Counter(), threading.Event()

    def another():
        return contend(f"p{next(names)}", "--lease", "4")

    alive = [another() for _ in range(3)]
    for _ in range(20):
        written = len(writers.order)
        wait_until(lambda written=written: len(writers.order) > written, "somebody works", 120)
        working = [each for each in alive if each.identity == writers.order[-1]]
        chosen = chance.choice([*working, *working, *alive])
        fault = chance.choice(["kill", "end", "doze"])
        faults[fault] += 1
        if fault == "doze":
            chosen.send(signal.SIGSTOP)
            pause.wait(chance.uniform(0.1, 8))  # longer than a lease, at times
            chosen.send(signal.SIGCONT)
        else:
            chosen.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        alive = [each for each in alive if each.process.poll() is None]
        alive += [another() for _ in range(3 - len(alive))]
    turns = writers.turns()
    assert len(turns) > 4, faults
    assert len(turns) == len(set(turns)), (turns, faults)


class Standing:
    """An election in this process, with a clock that is set by hand."""

    def __init__(self, control_plane, namespace, identity="self", client=None, **terms):
        self.now, self.looks, self.written = 1000.0, 0, io.StringIO()
        self.changed = threading.Event()
        self.election = Election(
            client or control_plane.client,
            Terms(namespace, "hand", identity, **{"retry": 0.02, "look": 0.02, **terms}),
            log=make_log("json", self.written),
            changed=self.changed.set,
            clock=self._clock,
        )

    def _clock(self):
        self.looks += 1
        return self.now

    @property
    def logged(self):
        return [json.loads(line)["event"] for line in self.written.getvalue().splitlines()]


@contextmanager
def standing(*arguments, **terms):
    scene = Standing(*arguments, **terms)
    scene.election.start()
    try:
        yield scene
    finally:
        scene.election.stop(release=False)


def spec(control_plane, namespace, name="hand"):
    return control_plane.client.get(ALL_LEASES, name, namespace)["spec"]


def test_a_lease_says_who_holds_it_for_how_long_and_how_often_it_changed(control_plane, namespace):
    with standing(control_plane, namespace, "one") as one:
        wait_until(lambda: one.election.leads, "it leads")
        held = spec(control_plane, namespace)
        assert (held["holderIdentity"], held["leaseDurationSeconds"], held["leaseTransitions"]) == (
            "one",
            15,
            0,
        )
        assert held["acquireTime"]
        renewed = held["renewTime"]
        wait_until(lambda: spec(control_plane, namespace)["renewTime"] > renewed, "it renews")
        one.election.stop(release=True)
        assert not one.election.may_write()
    assert spec(control_plane, namespace)["holderIdentity"] == ""
    with standing(control_plane, namespace, "two") as two:
        wait_until(lambda: two.election.leads, "it leads")
        assert spec(control_plane, namespace)["leaseTransitions"] == 1


def test_time_alone_takes_the_right_to_write_away(control_plane, namespace):
    with standing(control_plane, namespace) as scene:
        wait_until(scene.election.may_write, "it leads")
        scene.election.stop(release=False)  # nobody renews any more
        scene.now += 9.9
        assert scene.election.may_write()
        scene.now += 0.1
        assert not scene.election.may_write()
        assert scene.election.is_lost
        assert scene.election.remaining == 5


def test_an_api_server_that_says_nothing_does_not_keep_a_leader_from_knowing_that_its_time_is_over(
    own_control_plane,
):
    namespace, api_server = own_control_plane.new_namespace(), own_control_plane.api_server
    with KubeClient(own_control_plane.access, timeout=0.5) as client:
        with standing(own_control_plane, namespace, client=client) as scene:
            assert scene.changed.wait(60)
            scene.changed.clear()
            os.kill(api_server.pid, signal.SIGSTOP)
            try:
                # The last word, as one that took too long before it led is another.
                wait_until(lambda: scene.logged[-1] == "election-failed", "a request is given up")
                assert scene.election.may_write()
                scene.now += 10
                assert not scene.election.may_write()
                assert scene.changed.wait(30)
            finally:
                os.kill(api_server.pid, signal.SIGCONT)
        assert scene.logged[-1] == "election-failed"


def test_whoever_finds_another_holder_stops_before_his_time_is_over(control_plane, namespace):
    with standing(control_plane, namespace) as scene:
        assert scene.changed.wait(60)
        scene.changed.clear()
        patch = {"spec": {"holderIdentity": "usurper"}}
        control_plane.client.merge_patch(LEASES, "hand", patch, namespace)
        wait_until(lambda: scene.election.is_lost, "it is lost")
        assert not scene.election.may_write()
        assert scene.changed.wait(30)
        wait_until(lambda: scene.election.is_dead, "it stands no more")
    assert spec(control_plane, namespace)["holderIdentity"] == "usurper"


def test_a_lease_that_was_deleted_is_made_again_by_its_holder(control_plane, namespace):
    with standing(control_plane, namespace) as scene:
        wait_until(lambda: scene.election.leads, "it leads")
        control_plane.client.delete(LEASES, "hand", namespace)

        def made():
            with suppress(KubeNotFoundError):
                return spec(control_plane, namespace)["holderIdentity"] == "self"

        wait_until(made, "there is one again")
        assert scene.election.may_write()


def test_a_holder_is_given_the_time_that_his_lease_states_from_when_it_was_last_seen_to_change(
    control_plane, namespace
):
    made = {"holderIdentity": "gone", "leaseDurationSeconds": 40, "renewTime": "2001-01-01T00:00:00.000000Z"}
    control_plane.client.create(LEASES, {"metadata": {"name": "hand"}, "spec": made}, namespace)
    with standing(control_plane, namespace) as scene:
        wait_until(lambda: "waits" in scene.logged, "it stands by")
        scene.now += 40  # and not a moment more
        looks = scene.looks
        wait_until(lambda: scene.looks > looks + 3, "it has looked again")
        assert not scene.election.leads
        scene.now += 0.1
        wait_until(lambda: scene.election.leads, "it takes over")


@pytest.mark.parametrize("terms", [{"renew": 20}, {"retry": 10}, {"retry": 0}, {"lease": 0.5, "renew": 0.2}])
def test_terms_that_cannot_hold_are_refused(terms):
    with pytest.raises(ConfigError) as caught:
        Terms("space", "name", "self", **{"retry": 0.1, **terms})
    assert "the lease is the longest" in caught.value.hint
