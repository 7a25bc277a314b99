import os
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed import binaries
from testbed.kubernetes_binaries import VERSION

CHART = Path(__file__).resolve().parents[2] / "charts" / "rootcellar"
NAME = "rc"


class Helm:
    """Runs helm, with homes of its own; with a kubeconfig against that cluster."""

    def __init__(self, directory, kubeconfig=None):
        homes = {f"HELM_{each}_HOME": str(directory / each) for each in ("CACHE", "CONFIG", "DATA")}
        cluster = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
        self._program, self._environ = binaries.helm(), {**os.environ, **homes, **cluster}
        self._rendered = {}

    def __call__(self, *arguments, text=""):
        """The finished process; `text` is what it reads."""
        return subprocess.run(
            [self._program, *map(str, arguments)],
            env=self._environ,
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def must(self, *arguments):
        """What it prints."""
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def render(self, values=None, *, namespace="cellar"):
        """The chart's objects by kind and name, with the namespace before it where that is not the release's;
        `values` are those that are not as they come.
        """
        found = {}
        for each in self.documents(values or {}, namespace=namespace):
            elsewhere = each["metadata"].get("namespace", namespace)
            before = "" if elsewhere == namespace else f"{elsewhere}/"
            found[each["kind"], before + each["metadata"]["name"]] = each
        return found

    def documents(self, values, *, namespace="cellar"):
        """What is rendered, as it comes."""
        asked = yaml.safe_dump(values), namespace
        if asked not in self._rendered:
            done = self.template(values, namespace=namespace)
            assert done.returncode == 0, done.stderr
            self._rendered[asked] = done.stdout
        return [each for each in yaml.safe_load_all(self._rendered[asked]) if each]

    def template(self, values, *, namespace="cellar"):
        """The finished process that renders the chart."""
        return self(
            *("template", NAME, CHART, "--namespace", namespace, "--kube-version", VERSION, "--values", "-"),
            text=yaml.safe_dump(values),
        )


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def helm_there(tmp_path_factory, control_plane):
    """Helm with the control plane of this test."""
    directory = tmp_path_factory.mktemp("helm-there")
    return Helm(directory, control_plane.kubeconfig(directory / "kubeconfig"))


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory, control_plane):
    """Runs kubectl as the administrator of that control plane; `text` is what it reads."""
    program = binaries.kubernetes().kubectl
    config = control_plane.kubeconfig(tmp_path_factory.mktemp("kubectl") / "kubeconfig")

    def run(*arguments, text=""):
        command = [program, f"--kubeconfig={config}", f"--cache-dir={config.parent}", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)

    return run
