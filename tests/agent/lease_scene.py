"""An `etcdbrctl server` in a pod's environment, whose leases are on a real API server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request

import yaml

from rootcellar.kube.kinds import LEASES
from testbed.ports import free_port
from tests.agent.agents import wait_until

FULL, DELTA, MEMBER = "main-full-snap", "main-delta-snap", "main-0"
LEASE_FLAGS = (
    "--enable-snapshot-lease-renewal=true",
    f"--full-snapshot-lease-name={FULL}",
    f"--delta-snapshot-lease-name={DELTA}",
    "--enable-member-lease-renewal=true",
    "--k8s-heartbeat-duration=1s",
)


class Sidecar:
    """`etcdbrctl server` beside an etcd, in a pod's environment."""

    def __init__(self, etcd, directory, control_plane, account):
        self.member = etcd.start("3.6", MEMBER)
        self._control_plane, self._account, self._directory = control_plane, account, directory
        self._port = free_port()
        self._log = directory / "sidecar.log"
        self._process = None
        directory.mkdir(parents=True, exist_ok=True)
        self._kubeconfig = directory / "kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(self._config()))

    def _config(self):
        mounted = self._account.directory
        cluster = {"server": self._control_plane.url, "certificate-authority": str(mounted / "ca.crt")}
        return {
            "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"tokenFile": str(mounted / "token")}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        }

    def start(self, *, leases=True):
        self._begin("server", *self._server(), *(LEASE_FLAGS if leases else ()))

    def compact(self):
        self._begin("compact", *self._store(), f"--data-dir={self._directory}/compact", *LEASE_FLAGS[:2])
        assert self._process.wait(60) == 0, self.log()

    def _store(self):
        return "--storage-provider=Local", "--store-container=bucket", "--store-prefix=main"

    def _server(self):
        return (
            *(f"--server-port={self._port}", f"--endpoints={self.member.endpoint}", *self._store()),
            *("--delta-snapshot-period=1s", "--reelection-period=1s"),
        )

    def _begin(self, *words, program=("etcdbrctl",)):
        command = [sys.executable, "-m", "rootcellar", *program, *words]
        environment = {
            **os.environ,
            "HOME": str(self._directory),
            "XDG_RUNTIME_DIR": str(self._directory),
            "POD_NAME": MEMBER,
            "POD_NAMESPACE": self._account.namespace,
            "KUBECONFIG": str(self._kubeconfig),
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def lease(self, name):
        return self._control_plane.client.get(LEASES, name, self._account.namespace)

    def wait_holder(self, name, holder):
        self._wait(lambda: self.lease(name).spec.holder_identity == holder, f"{name} has {holder}")

    def wait_renewed(self, name):
        """Until it is renewed anew."""
        now = self.lease(name).spec.renew_time
        self._wait(lambda: self.lease(name).spec.renew_time != now, f"{name} is renewed")

    def log(self):
        return self._log.read_text()

    def wait_told(self, *words):
        def told():
            return any(all(word in line for word in words) for line in self.log().splitlines())

        self._wait(told, f"{words}")

    def _wait(self, condition, what):
        try:
            wait_until(condition, what)
        except AssertionError as error:
            error.add_note(self.log())
            raise

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def terminate(self):
        self._process.terminate()
        return self._process.wait(60)

    def kill(self):
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
