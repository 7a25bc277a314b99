"""A real Swift on loopback: `testbed.swift_server` in an environment of its own.

One server is shared by the tests of a run; a test has a container of its own.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from testbed.cache import REQUIREMENTS, ROOT, digest, install_wheels, made
from testbed.ports import free_port
from testbed.server import Server, unique

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "testbed"
USER = f"{ACCOUNT}:backup"
PASSWORD = "testbed-secret-password-0123456789"


@functools.cache
def packages() -> Path:
    """Swift and what it needs, apart from ours: eventlet replaces half of the standard library.  Raises
    UnavailableError.
    """
    wheels = REQUIREMENTS / "swift.txt"
    return made(f"swift-{digest([wheels])}", lambda into: install_wheels("swift", into))


@dataclass(frozen=True)
class Container:
    """A container and what it takes to reach it."""

    name: str
    auth: str
    user: str = USER
    password: str = PASSWORD

    def names(self, prefix: str = "") -> list[str]:
        """All names in it, seen from behind the back of what is tested."""
        listed = self.ask("GET", "", query=f"?format=json&prefix={quote(prefix, safe='')}")
        return [entry["name"] for entry in json.loads(listed)]

    def ask(
        self,
        method: str,
        name: str,
        body: bytes = b"",
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """One request about an object in it, or about it ("").  Raises HTTPError."""
        account, token = self.login()
        url = f"{account}/{quote(self.name)}{'/' if name else ''}{quote(name)}{query}"
        return _sent(method, url, {"X-Auth-Token": token, **(headers or {})}, body)[1]

    def login(self) -> tuple[str, str]:
        """The account's address and a token."""
        said, _ = _sent("GET", self.auth, {"X-Auth-User": self.user, "X-Auth-Key": self.password})
        return said["X-Storage-Url"], said["X-Auth-Token"]


class SwiftAccount:
    """What it takes to reach the one account with its one user, from any process.  `auth` is where tokens are
    had (v1).
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.auth = f"{self.endpoint}/auth/v1.0"

    def answers(self) -> bool:
        try:
            _sent("GET", f"{self.endpoint}/healthcheck", {})
        except OSError:
            return False
        return True

    def new_container(self) -> Container:
        """A container that nobody else uses."""
        container = Container(unique("container"), self.auth)
        container.ask("PUT", "")
        return container


class Swift(Server, SwiftAccount):
    """The server with that account."""

    def __init__(self, directory: Path) -> None:
        Server.__init__(self, "swift", directory)
        SwiftAccount.__init__(self, free_port())

    def start(self) -> None:
        """Raises UnavailableError where Swift cannot be had."""
        self.directory.mkdir(parents=True, exist_ok=True)
        password = self.directory / "password"
        password.write_text(PASSWORD)
        ports = [self.port, *(free_port() for _ in range(3))]
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (packages(), ROOT))),
            "PYTHONWARNINGS": "ignore",
        }
        self.launch(
            [sys.executable, "-m", "testbed.swift_server", self.directory, password, *map(str, ports)],
            environment,
        )
        self.wait_until(self.answers, "answering")

    def reach(self) -> SwiftAccount:
        return SwiftAccount(self.port)


def _sent(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> tuple[Any, bytes]:
    request = urllib.request.Request(url, body or None, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers, answer.read()
