"""A controller over all objects of a kind, as a process of its own: its first pass, then at rest.

Its reconcile has three steps and writes the status of an object where that is not what the spec wants, as
each contract does.  The API server and its etcd have the same cores.  That nothing is written at rest is what
the API server says: every object has the version that it had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.agent import Watched
from benchmarks.table import Row
from rootcellar.kube import kubeconfig
from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.election import Terms
from rootcellar.kube.filters import generation_changed
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.reflector import Reflector
from rootcellar.kube.steps import Outcome, Step, run
from rootcellar.logs import make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.kube.kinds import Key
    from testbed.crowd import Crowd
    from testbed.kubernetes import ControlPlane

PASS_SECONDS, PEAK_MIB, IDLE_SHARE = 60.0, 400, 0.01
WORKERS = 8


def measured(
    control_plane: ControlPlane, crowd: Crowd, directory: Path, objects: int, idle: float
) -> Iterator[Row]:
    """Each figure as it is had."""
    namespace = control_plane.new_namespace()
    crowd.fill(namespace, range(objects))
    config = control_plane.kubeconfig(directory / "admin")
    with _controller(config, crowd.group, namespace, directory / "controller.log") as (pid, ask):
        first = Watched(pid)
        first.until(lambda: ask()["writes"] >= objects, pause=0.1)
        yield Row(
            f"first pass of a controller over {objects:,} objects, each with a write",
            first.taken,
            f"{PASS_SECONDS:.0f} s",
            first.seconds < PASS_SECONDS,
        )
        before, counts, still = _versions(control_plane, crowd, namespace), ask(), Watched(pid)
        still.rest(idle)
        written = ask()["writes"] - counts["writes"]
        is_still = not written and _versions(control_plane, crowd, namespace) == before
    yield Row(
        f"the controller at rest for {idle:.0f} s",
        f"{'no' if is_still else written or 'some'} writes, {still.share:.2%} of a core",
        f"no writes, {IDLE_SHARE:.0%}",
        is_still and still.share < IDLE_SHARE,
    )
    peak = max(first.memory + still.memory)
    yield Row("peak memory of the controller", f"{peak:.0f} MiB", f"{PEAK_MIB} MiB", peak < PEAK_MIB)


def _versions(control_plane: ControlPlane, crowd: Crowd, namespace: str) -> dict[str, str]:
    found = control_plane.client.list(crowd.kind, namespace)
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}


@contextmanager
def _controller(
    config: Path, group: str, namespace: str, log: Path
) -> Iterator[tuple[int, Callable[[], dict[str, int]]]]:
    """The process, and a way to ask it for its counts."""
    command = [sys.executable, "-m", "benchmarks.kube_controller"]
    command += [str(config), group, namespace, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, said = process.stdin, process.stdout

        def ask() -> dict[str, int]:
            print("?", file=told, flush=True)
            found: dict[str, int] = json.loads(said.readline())
            return found

        yield process.pid, ask
        told.close()


def work(config: str, group: str, namespace: str, log: str) -> None:
    """What that process does: for each line that comes it says what it has done so far."""
    counts = {"reconciles": 0, "writes": 0}
    guard = threading.Lock()

    def count(what: str) -> None:
        with guard:
            counts[what] += 1

    kind = untyped(group, "v1", "people")
    with Path(log).open("w") as lines:
        manager = Manager(
            kubeconfig.read([Path(config)]),
            identity="bench",
            log=make_log("json", lines),
            terms=Terms(namespace, "bench", "bench"),
        )
        people: Reflector[dict[str, Any]] = Reflector(manager.client, kind, namespace=namespace)
        writer = manager.writer("bench.rootcellar.dev")

        def look(key: Key) -> None:
            count("reconciles")
            if people.cache.get(key) is None:
                raise LookupError(key)

        def write(key: Key) -> None:
            found, raw = people.cache.get(key), people.cache.raw(key)
            if found is None or raw is None:
                return
            status = {"observedGeneration": found["metadata"]["generation"], "phase": "Ready"}
            if writer.status(kind, key, status, raw):
                count("writes")

        steps = [Step("look", look), Step("decide", lambda _key: None), Step("status", write)]

        def reconcile(key: Key) -> Outcome:
            return run(steps, key)

        manager.add(Controller("people", reconcile, [Watch(people, generation_changed)], workers=WORKERS))
        working = threading.Thread(target=manager.run)
        working.start()
        for _line in sys.stdin:
            print(json.dumps(counts), flush=True)
        manager.stop()
        working.join()


if __name__ == "__main__":
    work(*sys.argv[1:])
