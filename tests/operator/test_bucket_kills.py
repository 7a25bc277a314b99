"""Processes killed behind each write of a bucket's creation, of an order, and of its deletion."""

import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rootcellar.operator.backupbucket.run import COLLECT, EMPTY, FINALIZER
from rootcellar.operator.shared import ledger
from rootcellar.operator.shared.gardener import OPERATION, Ask
from tests.kube.things import wait_until
from tests.operator.buckets import Scene
from tests.stores.places import s3_store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scene(served, bucket, tmp_path):
    return Scene(served, bucket, tmp_path)


class Lives:
    """Children of one process, one after the other."""

    def __init__(self, process):
        self._process = process

    def killed_after(self, writes):
        """The write behind which it was killed; None where it came to rest before."""
        code, last = self._live(writes)
        assert code in {0, -signal.SIGKILL}
        return last if code else None

    def to_the_end(self):
        assert self._live(0) == (0, "-")

    def _live(self, writes):
        self._process.stdin.write(f"{writes}\n")
        self._process.stdin.flush()
        code, _, last = self._process.stdout.readline().strip().partition(" ")
        return int(code), last


@contextmanager
def lives(scene, tmp_path):
    config = tmp_path / "kubeconfig"
    scene.control_plane.kubeconfig(config)
    command = [sys.executable, "-m", "tests.operator.bucket_process", config, scene.class_, tmp_path]
    process = subprocess.Popen(
        [*command, tmp_path / "log"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield Lives(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


LONG = pytest.mark.long
CREATION = [
    pytest.param(1, "Writer.patch", marks=LONG),
    pytest.param(2, "Writer.patch", marks=LONG),
    pytest.param(3, "Writer.patch", marks=LONG),
    (4, "S3Admin.create"),
    (5, "S3Admin.claim"),
    pytest.param(6, "S3Admin.harden", marks=LONG),
    pytest.param(7, "Writer.patch", marks=LONG),
    pytest.param(8, "Writer.patch", marks=LONG),
]
"""Finalizer, status, the secret's finalizer, bucket, mark, settings, conditions, status."""


@pytest.mark.parametrize(("writes", "last"), CREATION)
def test_a_creation_that_is_killed_anywhere_comes_to_its_end(scene, tmp_path, writes, last):
    with lives(scene, tmp_path) as child:
        scene.create(scene.name, scene.spec())
        assert child.killed_after(writes) == last
        child.to_the_end()
        found = scene.get(scene.name)
        operation = found["status"]["lastOperation"]
        assert (operation["type"], operation["state"]) == ("Create", "Succeeded")
        assert found["metadata"]["finalizers"] == scene.finalizers() == [FINALIZER]
        assert scene.conditions()["SettingsInSync"][0] != "False"
        scene.s3.put_object(Bucket=scene.name, Key="shoot--a/x", Body=b"x")
        scene.delete(scene.name)
        scene.annotate(scene.name, **{EMPTY: "true"})
        child.to_the_end()
        wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    # Between the bucket and its mark nobody can know any more who made it, and it is kept.
    assert (scene.name in scene.buckets()) == (last == "S3Admin.create")


ORDER = [
    (1, "Writer.patch"),
    (2, "Writer.patch"),
    pytest.param(3, "S3Admin.claim", marks=LONG),
    pytest.param(4, "S3Admin.harden", marks=LONG),
    pytest.param(5, "Writer.patch", marks=LONG),
]
"""Status, annotation, mark, settings, status."""


@pytest.mark.parametrize(("writes", "last"), ORDER)
def test_an_order_is_not_lost_with_a_process_that_is_killed_anywhere(scene, tmp_path, writes, last):
    with lives(scene, tmp_path) as child:
        scene.create(scene.name, scene.spec())
        child.to_the_end()
        order = {"metadata": {"annotations": {OPERATION: Ask.RECONCILE}}}
        scene.client.merge_patch(scene.any, scene.name, {**order, "spec": {"providerConfig": {"any": 1}}})
        assert child.killed_after(writes) == last
        child.to_the_end()
    found = scene.get(scene.name)
    assert "annotations" not in found["metadata"]
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    operation = found["status"]["lastOperation"]
    assert (operation["type"], operation["state"]) == ("Reconcile", "Succeeded")


DELETION = [
    pytest.param(1, "Writer.patch", marks=LONG),
    (2, "S3Admin.empty"),
    pytest.param(3, "Writer.patch", marks=LONG),
    (4, "S3Admin.delete_bucket"),
    pytest.param(5, "Writer.patch", marks=LONG),
    pytest.param(6, "Writer.patch", marks=LONG),
    pytest.param(7, "Writer.patch", marks=LONG),
]
"""Status, objects, decision, bucket, status, the secret's finalizer, its own."""


@pytest.mark.parametrize(("writes", "last"), DELETION)
def test_a_deletion_that_is_killed_anywhere_comes_to_its_end(scene, tmp_path, writes, last):
    with lives(scene, tmp_path) as child:
        scene.create(scene.name, scene.spec(), **{EMPTY: "true"})
        child.to_the_end()
        scene.s3.put_object(Bucket=scene.name, Key="shoot--a/x", Body=b"x")
        scene.delete(scene.name)
        assert child.killed_after(writes) == last
        child.to_the_end()
    wait_until(lambda: scene.is_gone(scene.name), "it is gone")
    assert scene.name not in scene.buckets()
    assert scene.finalizers() == []


def test_a_process_that_is_killed_between_what_was_left_and_its_record_leaves_no_record(scene, tmp_path):
    past = datetime.now(UTC) - timedelta(hours=1)
    ours = s3_store(replace(scene.there, name=scene.name), ledger.HOME)
    with lives(scene, tmp_path) as child:
        scene.create(scene.name, scene.spec())
        child.to_the_end()
        scene.s3.put_object(Bucket=scene.name, Key="shoot--dead--1/x", Body=b"x")
        record = ledger.Left(prefix="shoot--dead--1", locked=1, since=datetime.now(UTC), latest=past)
        ledger.keep(ours, record)
        scene.annotate(scene.name, **{COLLECT: "true"})
        assert child.killed_after(3) == "S3Admin.delete_objects", "behind the mark and the settings"
        assert len(list(ledger.records(ours))) == 1
        child.to_the_end()
        assert list(ledger.records(ours)) == []
        assert "ObjectsLeft" not in scene.conditions()
