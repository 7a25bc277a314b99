"""A controller over 10,000 objects: its first pass, then at rest.  `python -m benchmarks.kube_controller`.

A real API server and etcd beside it, on the same cores.  The controller is a process of its own; its
reconcile has three steps and writes the status of an object where that is not what the spec wants, as each
contract does.  Memory is resident memory without file mappings; that nothing is written at rest is what the
API server says: every object has the version that it had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.agent import Watched
from rootcellar.errors import KubeNotFoundError
from rootcellar.kube import kubeconfig
from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.election import Terms
from rootcellar.kube.filters import generation_changed
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.reflector import Reflector
from rootcellar.kube.steps import Outcome, Step, run
from rootcellar.logs import make_log
from testbed.kubernetes import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Key

PASS_SECONDS, PEAK_MIB = 60, 400
WORKERS = 8
GROUP, PLURAL = "benchmarks.rootcellar.dev", "shelves"
SHELVES = untyped(GROUP, "v1", PLURAL)
_CRDS = untyped("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "subresources": {"status": {}},
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
}
_CRD = {
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "kind": "Shelf"},
        "versions": [_VERSION],
    },
}


def fill(client: KubeClient, namespace: str, count: int, size: int) -> None:
    """Make the kind and so many objects of it, each with `size` bytes of spec."""
    client.create(_CRDS, _CRD)
    deadline = time.monotonic() + 60
    while True:
        try:
            client.list_page(SHELVES, namespace, page=1)
        except KubeNotFoundError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            break

    def make(number: int) -> None:
        meta = {"name": f"shelf-{number:05}"}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Shelf", "metadata": meta, "spec": {"jars": "x" * size}}
        client.create(SHELVES, body, namespace)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(make, range(count)))


# the process that is measured


def work(config: str, namespace: str, log: str) -> None:
    """Control all objects there; for each line on stdin a line of counts, until an empty one."""
    counts = {"reconciles": 0, "writes": 0}
    guard = threading.Lock()

    def count(what: str) -> None:
        with guard:
            counts[what] += 1

    with Path(log).open("w") as lines:
        manager = Manager(
            kubeconfig.read([Path(config)]),
            identity="bench",
            log=make_log("json", lines),
            terms=Terms(namespace, "bench", "bench", look=0.2),
        )
        shelves: Reflector[dict[str, Any]] = Reflector(manager.client, SHELVES, namespace=namespace)
        writer = manager.writer("bench.rootcellar.dev")

        def look(key: Key) -> None:
            count("reconciles")
            if shelves.cache.get(key) is None:
                raise LookupError(key)

        def write(key: Key) -> None:
            found, raw = shelves.cache.get(key), shelves.cache.raw(key)
            if found is None or raw is None:
                return
            status = {"observedGeneration": found["metadata"]["generation"], "phase": "Ready"}
            if writer.status(SHELVES, key, status, raw):
                count("writes")

        steps = [Step("look", look), Step("decide", lambda _key: None), Step("status", write)]

        def reconcile(key: Key) -> Outcome:
            return run(steps, key)

        manager.add(Controller("shelves", reconcile, [Watch(shelves, generation_changed)], workers=WORKERS))
        working = threading.Thread(target=manager.run)
        working.start()
        for line in sys.stdin:
            if not line.strip():
                break
            print(json.dumps(counts), flush=True)
        manager.stop()
        working.join()


# whoever measures it


@contextmanager
def controller(config: Path, namespace: str, log: Path) -> Iterator[tuple[int, Callable[[], dict[str, int]]]]:
    """The process, and a way to ask it for its counts."""
    command = [sys.executable, "-m", "benchmarks.kube_controller", "--work", str(config), namespace, str(log)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, said = process.stdin, process.stdout

        def ask() -> dict[str, int]:
            told.write("?\n")
            told.flush()
            return json.loads(said.readline())  # type: ignore[no-any-return]  # what `work` printed

        try:
            yield process.pid, ask
        finally:
            told.write("\n")
            told.flush()


def versions(client: KubeClient, namespace: str) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in client.list(SHELVES, namespace)
    }


def measure(control_plane: ControlPlane, directory: Path, count: int, size: int, rest: float) -> bool:
    """Print the figures; whether they are within the bars."""
    client, namespace = control_plane.client, control_plane.new_namespace()
    fill(client, namespace, count, size)
    config = control_plane.kubeconfig(directory / "admin")
    with controller(config, namespace, directory / "controller.log") as (pid, ask):
        first = Watched(pid)
        while ask()["writes"] < count:
            first.sample()
            time.sleep(0.1)
        seconds = time.monotonic() - first.began
        before, counts, still = versions(client, namespace), ask(), Watched(pid)
        while time.monotonic() < still.began + rest:
            still.sample()
            time.sleep(0.5)
        is_quiet = ask() == counts and versions(client, namespace) == before
    peak = max(first.memory + still.memory)
    print(
        f"first pass over {count} objects: {seconds:.1f} s (bar {PASS_SECONDS}), {first.share:.0%} of a core"
    )
    print(f"reconciles {counts['reconciles']}, writes {counts['writes']}")
    print(f"memory, peak: {peak:.0f} MiB (bar {PEAK_MIB})")
    print(f"at rest for {rest:.0f} s: {still.share:.2%} of a core, {'no' if is_quiet else 'SOME'} writes")
    return seconds <= PASS_SECONDS and peak <= PEAK_MIB and is_quiet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2300, help="of each spec; 2300 make an object of 2.7 KB")
    parser.add_argument("--rest", type=float, default=60, help="seconds")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
        return
    with tempfile.TemporaryDirectory() as directory, ControlPlane(Path(directory)) as control_plane:
        control_plane.start()
        is_well = measure(control_plane, Path(directory), given.objects, given.bytes, given.rest)
    sys.exit(0 if is_well else "a bar was missed")


if __name__ == "__main__":
    main()
