"""The parts of Kubernetes, of which `testbed/go/kubernetes` makes one program that acts by its name."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import golang

if TYPE_CHECKING:
    from collections.abc import Mapping

# The last line whose kubelet takes cgroup v1 without being told to; go.mod there has it, too.
VERSION = "1.34.4"
PARTS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)


@dataclass(frozen=True)
class KubernetesBinaries:
    """The parts by their names."""

    parts: Mapping[str, Path]

    @property
    def apiserver(self) -> Path:
        return self.parts["kube-apiserver"]

    @property
    def controller_manager(self) -> Path:
        return self.parts["kube-controller-manager"]

    @property
    def kubectl(self) -> Path:
        return self.parts["kubectl"]


def kubernetes() -> KubernetesBinaries:
    """The parts in `KUBEBUILDER_ASSETS`, and ours for those that it lacks.  Raises UnavailableError."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    given = {part: Path(named) / part for part in PARTS} if named else {}
    given = {part: program for part, program in given.items() if os.access(program, os.X_OK)}
    if len(given) < len(PARTS):
        ours = _made()
        given = {part: ours / part for part in PARTS} | given
    return KubernetesBinaries(given)


def _made() -> Path:
    major, minor, _ = VERSION.split(".")
    version = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    stamps = {f"k8s.io/component-base/version.{name}": value for name, value in version.items()}
    directory = golang.built("kubernetes", {"kubernetes": "."}, stamps)
    for part in PARTS:
        with contextlib.suppress(FileExistsError):
            (directory / part).symlink_to("kubernetes")
    return directory
