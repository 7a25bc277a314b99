"""One server of each kind for all processes of a test run.

A `Host` lives in the process that outlives all others of the run: the controller of the workers, or the
only one there is.  It starts a server when somebody asks for the first time, and answers with what it takes
to reach it, which is plain data.  A worker is a `Guest` and asks by a socket in the abstract namespace, so
that nothing is left of it.  The servers end with the host, even a killed one (`testbed.server`).

Whoever stops a server, or writes behind its back, starts one of his own: those here are others' too.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING, Any, Protocol

from testbed.azurite import Azurite
from testbed.cache import UnavailableError
from testbed.gcs import FakeGcs
from testbed.kubernetes import ControlPlane
from testbed.s3 import Rclone, SeaweedFS
from testbed.server import ServerError
from testbed.swift import Swift
from testbed.tls import Authority, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from testbed.server import Server

_SECONDS = 240  # to start a server, which may have to be compiled first; less than a test has
_PATIENCE = 30  # seconds until a server that runs and does not answer counts as hung
_PACE = 0.1


class Shareable(Protocol):
    """A server, or several that are one thing."""

    @property
    def servers(self) -> Sequence[Server]: ...

    def start(self) -> None: ...
    def answers(self) -> bool: ...
    def reach(self) -> Any: ...
    def kill(self) -> None: ...


_KINDS: dict[str, Callable[[Path, Authority], Shareable]] = {
    "seaweed": lambda directory, _: SeaweedFS(directory),
    "seaweed_tls": SeaweedFS,
    "rclone_s3": lambda directory, _: Rclone(directory),
    "azurite": lambda directory, _: Azurite(directory),
    "azurite_tls": Azurite,
    "fake_gcs": lambda directory, _: FakeGcs(directory),
    "swift": lambda directory, _: Swift(directory),
    "control_plane": lambda directory, _: ControlPlane(directory),
}


class Host:
    """Starts what is asked for below `directory()`, once, and ends it."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._starters = ThreadPoolExecutor(thread_name_prefix="testbed-sharing")
        self._asked: dict[str, Future[Any]] = {}
        self._shared: dict[str, Shareable] = {}
        self._authority: Authority | None = None
        self._door: tuple[str, bytes] | None = None

    def ask(self, name: str) -> Any:
        """What it takes to reach the server of that name.  Raises UnavailableError, ServerError: to everybody
        who asks, if it did not start.
        """
        with self._lock:
            if name not in self._asked:
                self._asked[name] = self._starters.submit(self._start, name)
        return self._asked[name].result()

    def root(self) -> Root:
        """Of the authority that vouches for those that speak TLS."""
        return self._vouching().root()

    def _vouching(self) -> Authority:
        with self._lock:
            if self._authority is None:
                self._authority = Authority(self._directory() / "tls")
            return self._authority

    def _start(self, name: str) -> Any:
        shared = _KINDS[name](self._directory() / name, self._vouching())
        try:
            shared.start()
        except BaseException:
            shared.kill()
            raise
        self._shared[name] = shared
        return shared.reach()

    def trouble(self) -> str:
        """Which servers that were started have ended, or do not answer for half a minute, with the last of
        their logs; "" where all is well.
        """
        return "\n".join(filter(None, (_trouble(each) for each in list(self._shared.values()))))

    def door(self) -> tuple[str, bytes]:
        """What a `Guest` needs: the socket's address, and the key of the run.  From here on, and until this
        process ends, guests are let in.
        """
        if self._door is None:
            key = secrets.token_bytes()
            address = f"\0rootcellar-testbed-{os.getpid()}-{secrets.token_hex(8)}"
            listener = Listener(address, "AF_UNIX", backlog=64, authkey=key)
            threading.Thread(target=self._let_in, args=(listener,), daemon=True).start()
            self._door = address, key
        return self._door

    def _let_in(self, listener: Listener) -> None:
        while True:
            with suppress(AuthenticationError, OSError, EOFError):  # of one guest
                connection = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            method, *arguments = connection.recv()
            methods: dict[str, Callable[..., Any]] = {
                "ask": self.ask,
                "root": self.root,
                "trouble": self.trouble,
            }
            try:
                answer = methods[method](*arguments)
            except (UnavailableError, ServerError) as error:
                answer = error
            except Exception:  # noqa: BLE001 - the guest's to tell, who may not be able to read it as it is
                answer = ServerError(traceback.format_exc())
            connection.send(answer)

    def close(self) -> None:
        """End all servers."""
        self._starters.shutdown(cancel_futures=True)
        for shared in self._shared.values():
            shared.kill()


class Guest:
    """Asks the host of another process."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address, self._key = address, key

    def ask(self, name: str) -> Any:
        return self._said("ask", name)

    def root(self) -> Any:
        return self._said("root")

    def trouble(self) -> Any:
        return self._said("trouble")

    def _said(self, *question: str) -> Any:
        with Client(self._address, "AF_UNIX", authkey=self._key) as connection:
            connection.send(question)
            if not connection.poll(_SECONDS):
                raise ServerError(f"no answer to {question} within {_SECONDS} s")
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _trouble(shared: Shareable) -> str:
    until = time.monotonic() + _PATIENCE
    while True:
        for server in shared.servers:
            if not server.running:
                return f"{server.name}, which all tests share, has ended\n{server.last_words()}"
        if shared.answers():
            return ""
        if time.monotonic() > until:
            logs = "\n".join(server.last_words() for server in shared.servers)
            return f"{shared.servers[0].name}, which all tests share, does not answer\n{logs}"
        time.sleep(_PACE)
