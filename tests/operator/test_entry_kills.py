"""Operators that are killed before any one of their writes: the next one finds what is done, and goes on."""

import signal
import subprocess
import sys

import pytest

from rootcellar.errors import KubeNotFoundError
from rootcellar.operator.backupentry.run import FINALIZER
from tests.kube.things import wait_until
from tests.operator.conftest import data_of
from tests.operator.entry_scene import Scene

WRITES = 14
"""More than an operation has."""
_SPREAD = {2, 4, 6}


def writes():
    return [
        pytest.param(number, marks=[] if number in _SPREAD else pytest.mark.long)
        for number in range(1, WRITES + 1)
    ]


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Killed(served, bucket, tmp_path)


class Killed(Scene):
    """Its operators are processes."""

    def process(self, *words):
        config = self.control_plane.kubeconfig(self.directory / "admin")
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "tests.operator.entry_process", config, self.class_, str(self.directory), *words),
                ],
                stdout=log,
                stderr=log,
            )

    def until_killed(self, number, is_done):
        """Let one work until it is killed, or is done before it comes to its Nth write; whether killed."""
        process = self.process("--dies-at", str(number))
        try:
            wait_until(lambda: process.poll() is not None or is_done(), "it is killed, or done")
        finally:
            process.kill()
        return process.wait(60) == -signal.SIGKILL

    def until_done(self, is_done):
        process = self.process()
        try:
            wait_until(is_done, "the next one is done")
        finally:
            process.kill()
            process.wait(60)

    def is_set_up(self, note):
        if "gardener.cloud/operation" in self.get(self.name)["metadata"].get("annotations", {}):
            return False
        status = self.get(self.name).get("status", {})
        if status.get("lastOperation", {}).get("state") != "Succeeded":
            return False
        return data_of(self.read_secret("etcd-backup", self.shoot)).get("note") == note


@pytest.mark.parametrize("number", writes())
def test_an_operator_that_is_killed_anywhere_loses_nothing(scene, number):
    neighbour = f"{scene.name}--b"
    scene.put(scene.name, neighbour, count=3)
    scene.secret("entry", {**scene.keys, "note": "first"})
    scene.create(scene.name, scene.spec(), **{"gardener.cloud/operation": "reconcile"})
    scene.until_killed(number, lambda: scene.is_set_up("first"))
    scene.until_done(lambda: scene.is_set_up("first"))
    assert scene.get(scene.name)["metadata"]["finalizers"] == [FINALIZER]
    assert scene.finalizers() == [FINALIZER]

    # An order to one that is ready: the kill must not lose it.
    scene.secret("entry", {**scene.keys, "note": "rotated"})
    scene.ask(scene.name, "reconcile")
    scene.until_killed(number, lambda: scene.is_set_up("rotated"))
    scene.until_done(lambda: scene.is_set_up("rotated"))
    assert len(scene.lies(scene.name)) == 3

    scene.delete(scene.name)
    scene.until_killed(number, lambda: scene.is_gone(scene.name))
    scene.until_done(lambda: scene.is_gone(scene.name))
    assert scene.lies(scene.name) == []
    assert len(scene.lies(neighbour)) == 3
    assert scene.finalizers() == []
    with pytest.raises(KubeNotFoundError):
        scene.read_secret("etcd-backup", scene.shoot)


@pytest.mark.parametrize(
    "number", [pytest.param(each, marks=[] if each == 3 else pytest.mark.long) for each in range(1, 7)]
)
def test_a_migration_that_is_killed_anywhere_ends_with_nobody_in_control(scene, number):
    scene.put(scene.name)
    scene.create(scene.name, scene.spec())
    scene.until_done(lambda: scene.is_set_up(None))
    scene.ask(scene.name, "migrate")

    def is_given_up():
        entry = scene.get(scene.name)
        return "finalizers" not in entry["metadata"] and "annotations" not in entry["metadata"]

    scene.until_killed(number, is_given_up)
    scene.until_done(is_given_up)
    last = scene.get(scene.name)["status"]["lastOperation"]
    assert (last["type"], last["state"]) == ("Migrate", "Succeeded")
    assert scene.finalizers() == []
    assert scene.lies(scene.name)
    assert scene.read_secret("etcd-backup", scene.shoot)
