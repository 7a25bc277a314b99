"""A server process of a test: started, waited for, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# Ask the kernel to end us with our parent, then become the server.  Without site-packages this takes 15 ms.
_LAUNCHER = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit('the tests are gone'); os.execv(sys.argv[2], sys.argv[2:])"
)
# The death signal comes when the *thread* that started the process ends, so one thread, which lives as long
# as this process, starts them all.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="testbed-starter")
_PACE = 0.02  # seconds between two looks at a server that is not ready
_numbers = count(1)


def unique(stem: str) -> str:
    """A name that nobody else has on a server that several processes use."""
    return f"{stem}-{os.getpid()}-{next(_numbers)}"


class ServerError(Exception):
    """A server did not start, or did not stop; the message ends with its last lines of log."""


class Server:
    """One process and its log.  Subclasses know the command line and what "ready" is."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process.  Raises ServerError when there is none."""
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def servers(self) -> tuple[Server, ...]:
        """Itself: what consists of several servers has more."""
        return (self,)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError(f"{self.name} was not started")
        return self._process

    def launch(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start the process without waiting until it is ready."""
        if self.running:
            raise ServerError(f"{self.name} runs already")
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *map(str, command)]
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = _STARTER.submit(
                subprocess.Popen,
                launcher,
                cwd=self.directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            ).result()

    def wait_until(self, ready: Callable[[], bool], what: str = "ready", seconds: float = 120) -> None:
        """Wait for a condition of the running server.  ServerError when it exits or time is up."""
        process, deadline = self._running(), time.monotonic() + seconds
        while not ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_PACE)
                raise ServerError(f"{self.name} exited with {code} before it was {what}\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} is not {what} after {seconds:g} s\n{self.last_words()}")

    def stop(self) -> None:
        """End it in an orderly way (SIGTERM).  No harm if it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerError(f"{self.name} did not stop within 30 s\n{self.last_words()}") from error

    def kill(self) -> None:
        """End it as a crash would (SIGKILL).  No harm if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
