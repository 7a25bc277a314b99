"""The floor under an operator, with 10,000 objects: `make bench-kube`, or `python -m benchmarks.kube`.

A real etcd and kube-apiserver; what is measured is a process of its own that follows one kind, so that its
memory and its processor time are nobody else's.  Memory is resident memory without file mappings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import kube_controller
from benchmarks.measure import PeakMemory
from benchmarks.table import Row, show
from rootcellar.kube import kubeconfig
from rootcellar.kube.client import KubeClient
from rootcellar.kube.kinds import untyped
from rootcellar.kube.reflector import Reflector
from testbed.crowd import Crowd
from testbed.kubernetes import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECTS, IDLE_SECONDS = 10_000, 60.0
FIRST_SECONDS, PEAK_MIB, IDLE_SHARE = 60.0, 400, 0.01


class Follower:
    """The process that is measured, as its parent sees it: one line in, one line out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, *words: object) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"the follower has ended: {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


@contextmanager
def follower(config: Path, group: str) -> Iterator[Follower]:
    command = [sys.executable, "-m", "benchmarks.kube", "--follow", str(config), group]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Follower(process)
        assert process.stdin is not None
        process.stdin.close()


def follow(config: Path, group: str) -> None:
    """What the follower does: `list`, `hear N` (changes since it was last asked), `idle SECONDS`."""
    heard, enough = [0], threading.Condition()

    def hear(_change: object) -> None:
        with enough:
            heard[0] += 1
            enough.notify_all()

    with KubeClient(kubeconfig.read([config])) as client:
        reflector: Reflector[dict[str, Any]] = Reflector(client, untyped(group, "v1", "people"))
        reflector.listen(hear)
        for line in sys.stdin:
            verb, *values = line.split()
            began, processor = time.monotonic(), time.process_time()
            if verb == "list":
                before = _anonymous()
                reflector.start()
                assert reflector.wait_synced(300)
                told = {"objects": len(reflector.cache), "growth": _anonymous() - before}
                heard[0] = 0
            elif verb == "hear":
                with enough:
                    assert enough.wait_for(lambda: heard[0] >= int(values[0]), 300)  # noqa: B023  at once
                told = {"watches": reflector.tally.watches, "lists": reflector.tally.lists}
                heard[0] = 0
            else:
                time.sleep(float(values[0]))
                told = {"failures": reflector.tally.failures}
            spent = {"seconds": time.monotonic() - began, "processor": time.process_time() - processor}
            print(json.dumps({**told, **spent, "memory": _anonymous()}), flush=True)
        reflector.stop()


def _anonymous() -> float:
    """MiB of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon:"))


def measured(control_plane: ControlPlane, directory: Path, objects: int, idle: float) -> Iterator[Row]:
    """Each figure as it is had."""
    crowd, namespace = Crowd(control_plane), control_plane.new_namespace()
    crowd.fill(namespace, range(objects))
    with follower(control_plane.kubeconfig(directory / "admin"), crowd.group) as process:
        memory = PeakMemory(process.pid)
        memory.start()
        first = process.ask("list")
        yield Row(
            f"first list of {first['objects']:,.0f} objects",
            f"{first['seconds']:.1f} s, {first['processor']:.2f} s of processor",
            f"{FIRST_SECONDS:.0f} s",
            first["objects"] == objects and first["seconds"] < FIRST_SECONDS,
        )
        yield Row(
            "memory of the cache, of the process",
            f"{first['growth']:.0f}, {first['memory']:.0f} MiB",
            f"{PEAK_MIB} MiB",
            first["memory"] < PEAK_MIB,
        )
        yield _storm(crowd, namespace, process, objects)
        quiet = process.ask("idle", idle)
        share = quiet["processor"] / quiet["seconds"]
        yield Row(
            f"at rest for {quiet['seconds']:.0f} s",
            f"{share:.2%} of a core, {quiet['memory']:.0f} MiB",
            f"{IDLE_SHARE:.0%}",
            share < IDLE_SHARE and not quiet["failures"],
        )
        peak = memory.stop()
        yield Row("peak memory", f"{peak:.0f} MiB", f"{PEAK_MIB} MiB", peak < PEAK_MIB)


def _storm(crowd: Crowd, namespace: str, process: Follower, objects: int) -> Row:
    writer = threading.Thread(target=crowd.write, args=(namespace, range(objects)), kwargs={"generation": 2})
    writer.start()
    storm = process.ask("hear", objects)
    writer.join()
    rate, each = objects / storm["seconds"], storm["processor"] / objects * 1e6
    return Row(
        f"a storm of {objects:,} updates",
        f"{rate:,.0f}/s (as fast as they are written), {each:.0f} µs of processor each",
        "none lost, no list",
        storm["lists"] == 1,
    )


def main() -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds")
    parser.add_argument("--follow", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        follow(Path(given.follow[0]), given.follow[1])
        return 0
    with tempfile.TemporaryDirectory(prefix="rootcellar-bench-") as name:
        directory = Path(name)
        with ControlPlane(directory / "kubernetes") as control_plane:
            control_plane.start()
            version = control_plane.client.version()
            rows = list(measured(control_plane, directory, given.objects, given.idle))
            crowd = Crowd(control_plane)
            rows += kube_controller.measured(control_plane, crowd, directory, given.objects, given.idle)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores at a load of {load:.0f}, Python {platform.python_version()}, {version}\n")
    return show(rows)


if __name__ == "__main__":
    sys.exit(main())
