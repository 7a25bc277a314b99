"""`rootcellar operator` as processes of its own: who works, what a signal or a kill leaves, how it begins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from rootcellar.errors import FencedError, KubeNotFoundError
from rootcellar.kube.kinds import LEASES
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared.rights import ELECTION, HEARTBEAT
from testbed.ports import free_port
from tests.agent.agents import COMMAND
from tests.deploy.shipped import OPERATOR_RULES, alerts, metrics_in
from tests.kube.line import WATCH, Line, answer
from tests.kube.things import wait_until
from tests.operator.conftest import Kubectl, keys_of


class OperatorProcess:
    """One, with a log that tests read."""

    def __init__(self, directory, name, scene, *words):
        self.address = f"127.0.0.1:{free_port()}"
        self._log = directory / f"{name}.log"
        own = ("--namespace", scene.namespace, "--listen", self.address)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "operator", "--log-format=json", *own, *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "KUBECONFIG": str(scene.kubeconfig),
                    "ROOTCELLAR_TYPES": scene.type,
                    "PYTHONPATH": os.pathsep.join([str(scene.package), *sys.path]),
                },
            )

    def text(self):
        return self._log.read_text()

    def logged(self):
        """Of every line that is whole; one that is no JSON is a fault."""
        return [json.loads(line) for line in self.text().rpartition("\n")[0].splitlines()]

    def said(self, event):
        return [line for line in self.logged() if line["event"] == event]

    def wait_for(self, event):
        def reached():
            assert self.process.poll() is None, self.text()
            return self.said(event)

        wait_until(reached, f"an event {event}")

    def asked(self, path):
        """The status and the text of an answer; None where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None

    def end(self, number=signal.SIGTERM):
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(60)


class Scene(Kubectl):
    """A namespace with keys of a bucket, and a type that only this test's operators serve: by a package that
    is installed for them.
    """

    def __init__(self, control_plane, bucket, directory):
        super().__init__(control_plane, BACKUP_ENTRIES, control_plane.new_namespace())
        self.type, self.bucket, self.directory = self.namespace, bucket, directory
        self.package = directory / "package"
        about = self.package / "landscape-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: landscape\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[rootcellar.types]\n{self.type} = landscape:locate\n")
        (self.package / "landscape.py").write_text(
            "from rootcellar.operator.shared.place import located\n\n"
            "def locate(asked):\n    return located('S3', asked)\n"
        )
        self.kubeconfig = control_plane.kubeconfig(directory / "kubeconfig")
        self.secret("keys", keys_of(bucket))
        self.processes = []

    def start(self, name, *words):
        self.processes.append(OperatorProcess(self.directory, name, self, *words))
        return self.processes[-1]

    def entry(self, letter):
        """Make one; its name."""
        name = f"shoot--{self.namespace}--{letter}--0a1b"
        spec = {"type": self.type, "region": "r", "bucketName": self.bucket.name}
        self.create(name, {**spec, "secretRef": {"name": "keys", "namespace": self.namespace}})
        return name

    def holder(self, lease=ELECTION):
        try:
            return self.client.get(LEASES, lease, self.namespace).spec.holder_identity
        except KubeNotFoundError:
            return None


@pytest.fixture
def scene(served, bucket, tmp_path):
    scene = Scene(served, bucket, tmp_path)
    yield scene
    for each in scene.processes:
        each.process.kill()
        each.process.wait()


def test_it_serves_until_it_is_told_to_end_and_leaves_the_lease_to_the_next(scene):
    name = scene.entry("a")
    operator = scene.start("one", "--heartbeat")
    operator.wait_for("leads")
    wait_until(lambda: scene.holder(HEARTBEAT) == "rootcellar", "gardenlet sees that it lives")
    scene.stands(name, "Create", "Succeeded")
    assert operator.asked("/healthz") == (200, "ok\n")
    assert operator.asked("/readyz") == (200, "ok\n")
    shown = operator.asked("/metrics")[1]
    assert "rootcellar_controller_leader 1.0" in shown
    for rule in alerts(OPERATOR_RULES):
        assert all(f"\n{name}" in shown for name in metrics_in(rule["expr"])), rule["alert"]

    assert operator.end() == 0

    assert operator.said("stopped")[0]["drained"] is True
    assert scene.holder() == ""
    scene.delete(name)
    follower = scene.start("two")
    wait_until(lambda: scene.is_gone(name), "the next one deletes what is left")
    assert follower.end(signal.SIGINT) == 0


def test_when_the_leader_is_killed_the_one_that_waits_takes_over(scene):
    leader = scene.start("leader")
    leader.wait_for("leads")
    waiting = scene.start("waiting")
    waiting.wait_for("waits")
    assert waiting.said("waits")[0]["holder"] == scene.holder()
    assert "rootcellar_controller_leader 0.0" in waiting.asked("/metrics")[1]

    assert leader.end(signal.SIGKILL) == -signal.SIGKILL
    name = scene.entry("a")

    scene.stands(name, "Create", "Succeeded")
    assert waiting.said("leads")
    scene.delete(name)
    wait_until(lambda: scene.is_gone(name), "the entry is gone")


def test_two_operators_in_one_namespace_work_side_by_side_with_a_lease_each(scene):
    one, other = scene.start("one"), scene.start("other", "--lease-name=other")
    for operator in (one, other):
        operator.wait_for("leads")
    assert scene.holder() == one.said("leads")[0]["identity"]
    assert scene.holder("other") == other.said("leads")[0]["identity"]


def test_a_leader_that_was_stopped_for_too_long_ends_by_itself(scene):
    leader = scene.start("leader")
    leader.wait_for("leads")
    leader.process.send_signal(signal.SIGSTOP)
    follower = scene.start("follower")
    follower.wait_for("leads")
    leader.process.send_signal(signal.SIGCONT)

    assert leader.process.wait(60) == FencedError.exit_code

    # Also where it was stopped in the middle of a turn, and was ended without another word.
    assert '"event": "leadership-lost"' in leader.text()
    assert follower.process.poll() is None


def test_a_watch_that_breaks_is_an_event_of_the_log_as_all_others(scene, served):
    with Line(served) as line:
        config = {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": line.proxy.endpoint}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        scene.kubeconfig.write_text(json.dumps(config))
        line.proxy.on(WATCH, answer(b'{"message":"not now"}', 503), times=1)
        operator = scene.start("one", "--controllers=backupentry", "--no-leader-election")
        operator.wait_for("note")
        assert operator.end() == 0
    note = operator.said("note")[0]
    assert (note["level"], note["by"]) == ("warning", "kube.reflector")
    assert "not now" in note["text"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--controllers=etcd"], "there is no controller 'etcd'"),
        (["--types=S3,AWS", "--check-config"], "there is no provider type 'AWS'"),
        (["--types=s3"], "known are aws, azure, gcp, openstack, alicloud, local, S3;"),
        (["--classes=shoots", "--check-config"], "not one of shoot, seed, garden"),
        (["--workers=0"], "nothing would ever be done"),
        (["--leader-election", "--no-leader-election"], "say the opposite"),
    ],
)
def test_what_cannot_be_meant_is_refused(scene, words, told):
    operator = scene.start("wrong", *words)
    assert operator.process.wait(60) == 11
    assert told in operator.text()


def test_a_check_says_what_it_would_do_and_writes_nothing(scene):
    operator = scene.start("checks", "--check-config")
    assert operator.process.wait(60) == 0
    assert f"in the namespace {scene.namespace}: the one that its Lease names works" in operator.text()
    assert scene.holder() is None


def test_the_configuration_file_says_what_no_flag_says(scene, tmp_path):
    file = tmp_path / "rootcellar.yaml"
    written = {
        "leader-election": False,
        "controllers": ["backupentry"],
        "classes": ["seed"],
        "types": ["aws"],
    }
    file.write_text(json.dumps({"operator": written}))
    operator = scene.start("checks", "--check-config", "--config", str(file))
    assert operator.process.wait(60) == 0
    assert f"backupentry of the types {scene.type}\n" in operator.text()
    assert "of class seed\n" in operator.text()
    assert "this process works at once" in operator.text()
