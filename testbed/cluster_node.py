"""The node of a test cluster, as the first process of its own namespaces: network, mounts, processes.

It runs on Python's standard library alone: `python -I -S cluster_node.py SPEC`.  SPEC is a JSON file that
`testbed.cluster_plan` makes.  Nothing it does is seen outside: the mounts, the links and the rules go with
the namespaces, and whoever kills this process ends all that it started.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

_PACE = 0.05
# What kubelet sets for the whole machine, unless it finds it set: it reads and writes these files instead.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
}


def main(spec: dict[str, Any]) -> int:
    """Set everything up and look after it; ends, and everything with it, when a part of it does."""
    state = Path(spec["state"])
    _mount(state, Path(spec["system"]))
    _link(spec["bridge"], spec["address"])
    running: dict[int, str] = {}
    for group in spec["groups"]:
        _wait(group["after"], spec["ca"], running)
        for part in group["parts"]:
            running[_start(part, state)] = part["name"]
    while True:
        pid, status = os.wait()
        if name := running.get(pid):
            print(f"{name} ended with {os.waitstatus_to_exitcode(status)}: {state / name}.log", flush=True)
            return 1


def _mount(state: Path, system: Path) -> None:
    """Debian's programs below /usr, as if they were installed; /run and /var of our own."""
    _do("mount", "-t", "overlay", "-o", f"lowerdir={system}:/usr", "overlay", "/usr")
    upper, work = state / "var/upper", state / "var/work"
    upper.mkdir(parents=True)
    work.mkdir()
    _do("mount", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "overlay", "/var")
    _do("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
    Path("/run/netns").mkdir()
    for name, value in _KERNEL.items():
        own = state / "kernel" / name
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(f"{value}\n")
        with suppress(subprocess.CalledProcessError):  # not every kernel has each
            _do("mount", "--bind", str(own), f"/proc/sys/{name}")


def _link(bridge: str, address: str) -> None:
    """The bridge of the pods, and the node's address on it: nothing depends on the machine's network."""
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", bridge, "type", "bridge")
    _do("ip", "address", "add", address, "dev", bridge)
    _do("ip", "link", "set", bridge, "up")
    # The kernel wants a route before it turns the address of a Service into a pod's.
    _do("ip", "route", "add", "default", "dev", bridge)


def _wait(url: str | None, ca: str, running: dict[int, str]) -> None:
    """Until what the next group needs answers; ends if a part does not live so long."""
    context = ssl.create_default_context(cafile=ca)
    while url:
        with suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(url, timeout=5, context=context).close()
            return
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            sys.exit(f"{running[pid]} ended before {url} answered")
        time.sleep(_PACE)


def _start(part: dict[str, Any], state: Path) -> int:
    with (state / f"{part['name']}.log").open("ab") as log:
        # Not waited for by subprocess: the first process of a namespace waits for all.
        started = subprocess.Popen(
            part["command"],
            cwd=state,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(state), **part["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return started.pid


def _do(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
