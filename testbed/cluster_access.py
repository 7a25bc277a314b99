"""A cluster that runs pods, as its administrator reaches it: ours, or another by its kubeconfig."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import AbstractContextManager, suppress
from itertools import count
from typing import TYPE_CHECKING

from rootcellar.errors import KubeError
from rootcellar.kube import kubeconfig
from rootcellar.kube.client import KubeClient
from testbed import binaries
from testbed.cache import UnavailableError
from testbed.kubernetes import NAMESPACES

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_SECONDS = 300


class Cluster(AbstractContextManager["Cluster"]):
    """Somebody else's cluster: its nodes must have the images already.  `directory` is for files of ours."""

    def __init__(self, directory: Path, config: Path) -> None:
        self.directory = directory
        self.kubeconfig = config
        self._made: list[str] = []
        self._names = count(1)

    def start(self) -> None:
        """Have `client` speak to it.  Raises UnavailableError."""
        self.client = KubeClient(kubeconfig.read([self.kubeconfig]))

    def kubectl(self, *arguments: str | Path, stdin: str = "", namespace: str = "") -> str:
        """What kubectl prints.  Raises CalledProcessError, with what it said as a note."""
        scope = ("--namespace", namespace) if namespace else ()
        return self._printed(binaries.kubernetes().kubectl, *scope, *arguments, stdin=stdin)

    def helm(self, *arguments: str | Path) -> str:
        """What helm prints.  Raises CalledProcessError, with what it said as a note; UnavailableError."""
        return self._printed(binaries.helm(), *arguments)

    def _printed(self, program: Path, *arguments: str | Path, stdin: str = "") -> str:
        homes = {f"HELM_{each}_HOME": str(self.directory / "helm") for each in ("CACHE", "CONFIG", "DATA")}
        try:
            done = subprocess.run(
                [program, "--kubeconfig", self.kubeconfig, *arguments],
                env={**os.environ, **homes, "KUBECACHEDIR": str(self.directory / "kubectl")},
                input=stdin,
                capture_output=True,
                text=True,
                check=True,
                timeout=_SECONDS,
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise
        return done.stdout

    def load(self, archive: Path) -> None:
        """Have the node know the image in a docker-archive."""

    def let_in(self, port: int) -> str:
        """ADDRESS:PORT where pods reach a port of loopback here.  Raises UnavailableError."""
        raise UnavailableError(f"pods of another cluster do not reach port {port} of this machine's loopback")

    def new_namespace(self, policy: str = "restricted") -> str:
        """One that nobody else uses; pods that are not as `policy` demands are refused."""
        name = f"test-{os.getpid()}-{time.time_ns() // 1000 % 10**9}-{next(self._names)}"
        labels = {"pod-security.kubernetes.io/enforce": policy}
        self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        self._made.append(name)
        return name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._made:
            with suppress(KubeError):
                self.client.delete(NAMESPACES, name)
