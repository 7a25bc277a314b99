"""A Kubernetes cluster with a node that runs pods, for end-to-end tests and, as `make cluster`, for a person.

Every part of it runs inside namespaces of its own (`testbed.cluster_node`), so two clusters do not meet,
nothing of the machine's network is used or changed, and who kills this process ends everything.  From here it
is reached through ports of loopback (`testbed.cluster_wire`), for as long as this process lives.

`TESTBED_KUBECONFIG` names a cluster to use in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import binaries, cluster_plan, cluster_programs, image_ours
from testbed.cache import UnavailableError
from testbed.cluster_access import Cluster
from testbed.cluster_state import ClusterState
from testbed.cluster_volumes import Volumes
from testbed.cluster_wire import Wire
from testbed.kubernetes import write_signing_key
from testbed.server import Server, ServerError
from testbed.tls import Authority

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

_NODE_SCRIPT = Path(__file__).with_name("cluster_node.py")
_APART = (
    *(shutil.which("unshare") or "unshare", "--net", "--mount", "--pid", "--ipc", "--uts"),
    *("--fork", "--kill-child=KILL", "--propagation", "private", "--mount-proc"),
)
_SECONDS = 120
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def cluster(directory: Path) -> Cluster:
    """The one that `TESTBED_KUBECONFIG` names, or one of our own; not started.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_KUBECONFIG"):
        return Cluster(directory, Path(named))
    if os.geteuid() != 0:
        raise UnavailableError("a node needs root")
    return OwnCluster(directory)


class Node(Server):
    """The process whose namespaces are the cluster's.  `inside` is the first process in them."""

    inside = 0

    def start(self, spec: Path) -> None:
        self.launch([*_APART, sys.executable, "-I", "-S", _NODE_SCRIPT, spec])
        self.wait_until(lambda: bool(_children(self.pid)), "apart")
        (self.inside,) = _children(self.pid)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Run a program that the node has, among its mounts."""
        enter = ["nsenter", f"--target={self.inside}", "--mount", *command]
        return subprocess.run(enter, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def kill(self) -> None:
        """End it, and all that runs inside: their first process goes when all others have gone."""
        super().kill()
        if not self.inside:
            return
        with suppress(ProcessLookupError):
            process = os.pidfd_open(self.inside)
            ended, _, _ = select.select([process], [], [], _SECONDS)
            os.close(process)
            if not ended:
                raise ServerError(f"what runs in the node did not end within {_SECONDS} s")


class OwnCluster(Cluster):
    """A cluster of one node, made for this."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, directory / "kubeconfig")
        self._state: ClusterState | None = None
        self._node: Node | None = None
        self._wire: Wire | None = None
        self._volumes: Volumes | None = None

    def start(self) -> None:
        """Start everything, and wait until pods can run.  Raises UnavailableError, ServerError."""
        programs = cluster_plan.Programs(
            binaries.kubernetes(),
            binaries.etcd("3.6").etcd,
            cluster_programs.coredns(),
            cluster_programs.node_system(),
        )
        pause = cluster_programs.pause()
        self._state = state = ClusterState()
        keys = _keys(state.directory / "tls")
        for name, text in cluster_plan.files(state.directory, state.name, keys).items():
            file = state.directory / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        spec = state.directory / "node.json"
        spec.write_text(json.dumps(cluster_plan.node(state.directory, programs, keys)))
        self._node = node = Node("node", state.directory)
        node.start(spec)
        state.note(node.pid)
        node.wait_until(lambda: node.run("ctr", "version").returncode == 0, "running containerd", _SECONDS)
        self.load(image_ours.write_program(pause, cluster_plan.PAUSE, state.directory / "pause.tar"))
        self._reach(keys)
        self._volumes = Volumes(self.client, state.directory / "volumes", cluster_plan.NODE)
        node.wait_until(self._is_ready, "ready for pods", _SECONDS)

    def _reach(self, keys: cluster_plan.Keys) -> None:
        assert self._node is not None
        self._wire = wire = Wire(self._node.inside)
        url = f"https://127.0.0.1:{wire.out((cluster_plan.ADDRESS, cluster_plan.PORT))}"
        person = cluster_plan.kubeconfig(url, keys.authority.ca.read_bytes(), keys.admin)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig.write_text(json.dumps(person))
        super().start()
        context = keys.authority.context()
        self._node.wait_until(lambda: _answers(f"{url}/readyz", context), "serving its API", _SECONDS)
        names = f"http://127.0.0.1:{wire.out(cluster_plan.NAMES_READY)}/ready"
        self._node.wait_until(lambda: _answers(names), "serving names", _SECONDS)

    def _is_ready(self) -> bool:
        """Whether a pod would be placed, and started."""
        asked = "{.items[*].spec.taints[*].key};{.items[*].status.conditions[?(@.type=='Ready')].status}"
        accounts = self.kubectl("get", "serviceaccounts", "--namespace=default", "--output=name")
        return bool(accounts) and self.kubectl("get", "nodes", f"--output=jsonpath={asked}") == ";True"

    def load(self, archive: Path) -> None:
        """Have the node know the image in a docker-archive.  Raises UnavailableError."""
        assert self._node is not None
        done = self._node.run("ctr", "--namespace", "k8s.io", "images", "import", archive.resolve())
        if done.returncode:
            raise UnavailableError(f"{archive}: {done.stderr.decode(errors='replace')}")

    def let_in(self, port: int) -> str:
        """ADDRESS:PORT where pods reach a port of loopback here."""
        assert self._wire is not None
        return f"{cluster_plan.ADDRESS}:{self._wire.into(port, cluster_plan.ADDRESS)}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._volumes:
            self._volumes.close()
        if self._wire:
            self._wire.close()
        if self._node:
            self._node.kill()
        if self._state:
            self._state.remove()


def _keys(directory: Path) -> cluster_plan.Keys:
    authority = Authority(directory)
    signing, verifying = directory / "service-accounts.key", directory / "service-accounts.pub"
    write_signing_key(signing, verifying)
    return cluster_plan.Keys(
        authority,
        authority.serving("apiserver", *cluster_plan.API_NAMES),
        authority.client("admin", organization="system:masters"),
        authority.client(f"system:node:{cluster_plan.NODE}", organization="system:nodes"),
        signing,
        verifying,
    )


def _children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def _answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5, context=context).close()
    except OSError:  # an HTTPError is one
        return False
    return True


def _end(*_: object) -> None:
    """Begin to end, once: a second Ctrl-C shall not leave half of it."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run one until Ctrl-C, with rootcellar's image and etcd's in it, and those that are named."""
    parser = argparse.ArgumentParser(prog="make cluster", description=main.__doc__)
    parser.add_argument("--load", metavar="TAR", type=Path, action="append", default=[], help="an image")
    parser.add_argument("--probe", action="store_true", help="only whether this machine can have a node")
    named = parser.parse_args()
    for ending in _ENDINGS:
        signal.signal(ending, _end)
    began = time.monotonic()
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="rootcellar-cluster-") as own,
        OwnCluster(Path(own)) as running,
    ):
        running.start()
        if named.probe:
            return 0
        for archive in (
            image_ours.write_rootcellar(Path(own) / "rootcellar.tar"),
            image_ours.write_etcd(Path(own) / "etcd.tar"),
            *named.load,
        ):
            running.load(archive)
        images = f"{image_ours.NAME} and {image_ours.ETCD_NAME}"
        print(f"ready after {time.monotonic() - began:.0f} s, with {images}\n")
        print(f"export KUBECONFIG={shlex.quote(str(running.kubeconfig))}")
        for program in (binaries.kubernetes().kubectl, binaries.helm()):
            print(f"alias {program.name}={shlex.quote(str(program))}")
        print("\nCtrl-C ends it and removes everything.", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
