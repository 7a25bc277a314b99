"""The control plane itself: what tests rely on when they ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rootcellar.errors import KubeNotFoundError
from rootcellar.kube.kinds import untyped
from testbed import binaries, kubernetes_binaries
from testbed.kubernetes import NAMESPACES, RunningControlPlane
from tests.agent.agents import wait_until

CONFIG_MAPS = untyped("", "v1", "configmaps")
DEPLOYMENTS = untyped("apps", "v1", "deployments")
PODS = untyped("", "v1", "pods")

STARTED = """
import os, sys, time
from pathlib import Path
from testbed.kubernetes import ControlPlane
control_plane = ControlPlane(Path(sys.argv[1]))
control_plane.start()
print(*[server.pid for server in control_plane.servers], flush=True)
time.sleep(600)
"""


def active(control_plane):
    found = control_plane.client.list(NAMESPACES)
    return {each["metadata"]["name"] for each in found if each["status"]["phase"] == "Active"}


def test_each_part_reports_the_version_we_pinned(monkeypatch):
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    found = kubernetes_binaries.kubernetes()
    for name, program in found.parts.items():
        asked = ["version", "--client"] if name == "kubectl" else ["--version"]
        said = subprocess.run([program, *asked], capture_output=True, text=True, check=True).stdout
        assert f"v{kubernetes_binaries.VERSION}" in said, name


def test_the_program_under_a_name_of_no_part_says_so():
    program = binaries.kubernetes().parts["kubectl"].resolve()
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a part of Kubernetes" in done.stderr


def test_given_parts_win_over_ours(monkeypatch, tmp_path):
    given = tmp_path / "kube-apiserver"
    given.symlink_to("/bin/true")
    (tmp_path / "kubectl").write_text("no program")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    found = kubernetes_binaries.kubernetes()
    assert found.apiserver == given
    assert found.kubectl.parent == found.controller_manager.parent != tmp_path


def test_controllers_work_without_a_node(control_plane):
    namespace = control_plane.new_namespace()
    labels = {"app": "it"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "it", "image": "none"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    control_plane.client.create(DEPLOYMENTS, {"metadata": {"name": "it"}, "spec": spec}, namespace)
    wait_until(lambda: len(list(control_plane.client.list(PODS, namespace))) == 2, "two pods are made")


def test_namespaces_keep_tests_apart(control_plane):
    one, other = control_plane.new_namespace(), control_plane.new_namespace()
    control_plane.client.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, one)
    with pytest.raises(KubeNotFoundError):
        control_plane.client.get(CONFIG_MAPS, "mine", other)


def test_kubectl_works_with_the_kubeconfig(control_plane, tmp_path):
    config = control_plane.kubeconfig(tmp_path / "config")
    command = [binaries.kubernetes().kubectl, "--kubeconfig", config, "auth", "can-i", "*", "*", "-A"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "yes"), done.stderr


def test_a_killed_run_leaves_no_process(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(binaries.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, tmp_path / "killed"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as run:
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 3
        run.kill()
    wait_until(lambda: not any(map(_is_alive, pids)), "every server has ended")


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_another_cluster_is_taken_by_its_kubeconfig_and_left_clean(control_plane, tmp_path):
    with RunningControlPlane(control_plane.kubeconfig(tmp_path / "config")) as other:
        other.start()
        assert other.url == control_plane.url
        namespace = other.new_namespace()
        assert namespace in active(control_plane)
    assert namespace not in active(control_plane)
