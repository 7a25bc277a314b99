"""Where a test cluster's state lies, and how the rest of it is found and removed, whoever was killed.

A cluster's directory holds a lock for as long as the process that made it lives.  One whose lock is free is
stale: what it names is ended and removed before the next cluster starts.  Its own namespaces took everything
else with them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from testbed.cache import UnavailableError, cache

CGROUPS = Path("/sys/fs/cgroup")
_PREFIX = "rootcellar-"
_PACE = 0.02
_SECONDS = 30


class ClusterState:
    """The directory of one cluster, locked, and the cgroup that has its name."""

    def __init__(self) -> None:
        """Raises UnavailableError where no node can have its state."""
        top = cache().resolve() / "clusters"
        for place in ("/run", "/usr", "/var", "/proc", "/sys"):
            if top.is_relative_to(place):
                raise UnavailableError(f"{top}: a node has its own {place}; set TESTBED_CACHE")
        top.mkdir(parents=True, exist_ok=True)
        with (top / ".lock").open("w") as all_of_them:
            # So that nobody takes a directory that is about to be locked for a stale one.
            fcntl.flock(all_of_them, fcntl.LOCK_EX)
            sweep(top)
            self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=top))
            self._lock: IO[str] = (self.directory / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.name = self.directory.name
        try:
            _make_cgroups(self.name)
        except UnavailableError:
            self.remove()
            raise

    def note(self, pid: int) -> None:
        """Write down which process holds the namespaces: the number, and when it was started."""
        (self.directory / "process.json").write_text(json.dumps({"pid": pid, "started": _started(pid)}))

    def remove(self) -> None:
        """Remove everything, once the process that holds the namespaces has ended."""
        _remove(self.directory)
        self._lock.close()


def sweep(top: Path) -> None:
    """End and remove what killed runs left below `top`."""
    for directory in top.glob(f"{_PREFIX}*"):
        try:
            lock = (directory / "lock").open("r+")
        except FileNotFoundError:
            # Its owner is removing it, or was killed before the last step of that.
            with suppress(OSError):
                directory.rmdir()
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _end(directory)
            _remove(directory)


def _end(directory: Path) -> None:
    try:
        noted = json.loads((directory / "process.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return
    deadline = time.monotonic() + _SECONDS
    while _started(noted["pid"]) == noted["started"]:
        os.kill(noted["pid"], signal.SIGKILL)
        if time.monotonic() > deadline:
            raise UnavailableError(f"process {noted['pid']} of {directory} does not end")
        time.sleep(_PACE)


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the machine was; None for one that has ended."""
    try:
        state, *values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else values[18]


def _hierarchies() -> list[Path]:
    """Of cgroup v1 each, of v2 the only one."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _make_cgroups(name: str) -> None:
    try:
        for hierarchy in _hierarchies():
            (hierarchy / name).mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):
                if hierarchy.name == "cpuset" and (hierarchy / file).exists():
                    (hierarchy / name / file).write_text((hierarchy / file).read_text())
    except OSError as error:
        raise UnavailableError(f"a node needs cgroups of its own: {error}") from error


def _remove(directory: Path) -> None:
    """The cgroups first: without the directory nobody would look for them."""
    deadline = time.monotonic() + _SECONDS
    while groups := [path for top in _hierarchies() if (path := top / directory.name).exists()]:
        for group in groups:
            for below, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):  # a process in it is about to end
                    Path(below).rmdir()
        if time.monotonic() > deadline:
            raise UnavailableError(f"cgroups do not empty: {', '.join(map(str, groups))}")
        time.sleep(_PACE)
    # The lock goes last: a directory without one counts as empty.
    for path in directory.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.rmtree(directory)
