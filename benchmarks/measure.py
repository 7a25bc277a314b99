"""Wall time and peak memory of a command with all its children.

Memory is resident memory without file mappings (RssAnon), summed over the process tree and sampled: a mapped
database file is the kernel's cache, not the process's need.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Measured:
    """Seconds, MiB, and what the command printed."""

    seconds: float
    peak: float
    output: str


class PeakMemory(threading.Thread):
    """Samples a process tree until `stop`; `peak` in MiB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopped = threading.Event()
        self.peak = 0.0

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, sum(map(_anonymous, _tree(self._pid))) / 1024)

    def stop(self) -> float:
        self._stopped.set()
        self.join()
        return self.peak


def measure(command: list[str]) -> Measured:
    """Run a command to its end.  Raises CalledProcessError with what it printed."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        memory = PeakMemory(process.pid)
        memory.start()
        output, errors = process.communicate()
        seconds = time.monotonic() - began
        peak = memory.stop()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return Measured(seconds, peak, output)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        try:
            for children in Path(f"/proc/{each}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        except OSError:
            continue
    return found


def _anonymous(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
