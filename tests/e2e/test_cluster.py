"""The cluster itself: what tests rely on when they ask for it, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from rootcellar.errors import KubeNotFoundError
from testbed import binaries, image_ours
from testbed.cache import UnavailableError
from testbed.cluster import cluster as chosen_cluster
from testbed.cluster_access import Cluster
from testbed.cluster_state import CGROUPS, ClusterState
from testbed.cluster_volumes import CLAIMS, VOLUMES
from testbed.kubernetes import NAMESPACES
from tests.agent.agents import wait_until
from tests.e2e.pods import outcome, pod

PYTHON = "/usr/bin/python3.11"
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "claimed"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}

STARTED = """
import sys
from pathlib import Path
from testbed.cluster import cluster
running = cluster(Path(sys.argv[1]))
running.start()
print(running._node.pid, running._node.inside, running._state.directory, flush=True)
sys.stdin.read()
"""


def own(cluster):
    if type(cluster) is Cluster:
        raise UnavailableError("the cluster is not ours")


def machine():
    """What would show that a node works here: what kubelet sets, and where it and containerd write."""
    places = ("/run/containerd", "/run/netns/cni*", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods")
    return {
        "bridge": Path("/sys/class/net/cni0").exists(),
        "mounts": "rootcellar-" in Path("/proc/self/mounts").read_text(),
        "sysctls": {name: (Path("/proc/sys") / name).read_text() for name in SYSCTLS},
        "written": sorted(found for place in places for found in Path("/").glob(place[1:])),
    }


def test_a_service_has_a_name_and_an_address_that_pods_reach(cluster):
    namespace = cluster.new_namespace()
    asked = (
        "import ssl, urllib.request as r; c = ssl._create_unverified_context(); "
        "print(r.urlopen('https://kubernetes.default.svc/version', context=c).status)"
    )
    good, printed = outcome(cluster, namespace, pod("asks", command=[PYTHON, "-c", asked]))
    assert (good, printed.strip()) == (True, "200"), printed


def test_a_pod_that_is_not_root_writes_to_a_claim_whose_volume_goes_with_it(cluster):
    namespace = cluster.new_namespace()
    cluster.kubectl("apply", "-f-", stdin=json.dumps(CLAIM), namespace=namespace)
    volumes = [{"name": "it", "persistentVolumeClaim": {"claimName": "claimed"}}]
    written = [PYTHON, "-c", "open('/it/file', 'w').write('x'); print('written')"]
    body = pod("writes", command=written, volumes=volumes, mounts=[{"name": "it", "mountPath": "/it"}])

    assert outcome(cluster, namespace, body) == (True, "written\n")

    volume = cluster.client.get(CLAIMS, "claimed", namespace)["spec"]["volumeName"]
    cluster.kubectl("delete", "pod/writes", "pvc/claimed", namespace=namespace)

    def is_gone():
        try:
            cluster.client.get(VOLUMES, volume)
        except KubeNotFoundError:
            return True
        return False

    wait_until(is_gone, "the volume is deleted")


def test_a_pod_reaches_a_port_of_this_machine_that_was_let_in(cluster, seaweed):
    where = cluster.let_in(seaweed.port)
    asked = (
        f"import urllib.request as r\ntry: r.urlopen('http://{where}/')\nexcept OSError as e: print(e.code)"
    )
    good, printed = outcome(cluster, cluster.new_namespace(), pod("asks", command=[PYTHON, "-c", asked]))
    assert (good, printed.strip()) == (True, "403"), printed


def test_another_image_is_loaded_from_a_file(cluster, tmp_path):
    own(cluster)
    cluster.load(image_ours.write_program(binaries.boltcheck(), "testbed/other:1", tmp_path / "other.tar"))
    good, printed = outcome(cluster, cluster.new_namespace(), pod("other", image="testbed/other:1"))
    assert (good, "usage" in printed.lower()) == (False, True), printed


def test_helm_installs_a_chart(cluster, tmp_path):
    namespace = cluster.new_namespace()
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: tried\nversion: 0.1.0\n")
    mapped = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made-by-helm"}}
    (chart / "templates" / "it.yaml").write_text(json.dumps(mapped))

    cluster.helm("install", "tried", chart, "--namespace", namespace, "--wait")

    assert "made-by-helm" in cluster.kubectl("get", "configmaps", "--output=name", namespace=namespace)


def test_another_cluster_is_taken_by_its_kubeconfig_and_left_clean(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_KUBECONFIG", str(cluster.kubeconfig))
    with chosen_cluster(tmp_path) as other:
        other.start()
        namespace = other.new_namespace()
        assert cluster.client.get(NAMESPACES, namespace)["status"]["phase"] == "Active"
        with pytest.raises(UnavailableError, match="do not reach port 80 of this machine"):
            other.let_in(80)
    with suppress(KubeNotFoundError):  # it may have ended already
        assert cluster.client.get(NAMESPACES, namespace)["status"]["phase"] == "Terminating"


def test_a_killed_run_ends_everything_and_the_next_one_removes_what_lies_about(cluster, tmp_path):
    own(cluster)
    before = machine()
    environment = {**os.environ, "PYTHONPATH": str(Path(binaries.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, tmp_path / "killed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as run:
        apart, inside, directory = run.stdout.readline().split()
        during = machine()
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(int(pid)) for pid in (apart, inside)), "all have ended")
    assert Path(directory).exists()

    ClusterState().remove()

    assert not Path(directory).exists()
    assert list(CGROUPS.glob(f"**/{Path(directory).name}")) == []
    assert machine() == during == before


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
