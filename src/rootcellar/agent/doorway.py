"""How commands on the same machine find a running agent: a file with its address and token.

It is readable by its owner alone, is written when the agent listens, and removed when it ends.  What a killed
agent left is noticed because nobody answers there.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import ssl
import stat
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rootcellar.errors import AgentError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASK_SECONDS = 5.0
_WORK_SECONDS = 3600.0
_NO_STORE = "none"


@dataclass(frozen=True)
class Doorway:
    """Where an agent answers.  `ca` is whom its certificate comes from, where it speaks TLS."""

    url: str
    token: str
    store: str
    pid: int
    ca: str | None = None

    def ask(self, method: str, path: str, *, timeout: float = _ASK_SECONDS) -> Any:
        """Its answer, from JSON.  Raises OSError when nobody answers, AgentError for what it refused."""
        request = urllib.request.Request(  # noqa: S310  our own http(s) address
            f"{self.url}{path}",
            method=method,
            headers={"Authorization": f"Bearer {self.token}"},
            data=b"" if method == "POST" else None,
        )
        context = None
        if self.url.startswith("https:"):
            context = ssl.create_default_context(cafile=self.ca)
            # The file that told the address is as trustworthy as a name: it is our own user's.
            context.check_hostname = False
            # It names the agent's own certificate, which need not be one that signs others.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            try:
                told = json.load(error)
            except ValueError:
                told = {}
            raise AgentError(
                str(told.get("message", f"the agent answered {error.code}")), hint=told.get("hint")
            ) from error

    def snapshot(self, kind: str, *, final: bool = False) -> Any:
        """Have it take a full or deltas; what came of it.  Raises as `ask` does."""
        query = "?final=true" if final else ""
        return self.ask("POST", f"/snapshot/{kind}{query}", timeout=_WORK_SECONDS)


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the file lies unless told: a run-time directory of this machine, or of this user."""
    if os.geteuid() == 0:
        return Path("/run/rootcellar")
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "rootcellar"
    return Path(tempfile.gettempdir()) / f"rootcellar-{os.geteuid()}"


def make_directory(directory: Path) -> None:
    """Have it, ours alone.  Raises ConfigError where it is somebody else's."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.stat().st_uid
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be made: {(error.strerror or str(error)).lower()}",
            hint="name another directory with --state-dir",
        ) from error
    if owner not in (os.geteuid(), 0):
        raise ConfigError(f"{directory} belongs to another user", hint="name another with --state-dir")


def place(directory: Path, store_url: str | None) -> Path:
    """The file of the agent that writes to this store."""
    name = hashlib.sha256((store_url or _NO_STORE).encode()).hexdigest()[:16]
    return directory / f"agent-{name}.json"


def write(directory: Path, doorway: Doorway) -> Path:
    """Leave the file.  Raises ConfigError, OSError."""
    make_directory(directory)
    path = place(directory, doorway.store)
    write_secret(path, json.dumps(asdict(doorway)))
    return path


def write_secret(path: Path, text: str) -> None:
    """A file for its owner's eyes alone, whole or not there at all."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def _trusted(directory: Path) -> set[int]:
    """Us and root; for root also whom a directory was given to where root alone makes any, such as /run."""
    trusted = {os.geteuid(), 0}
    above = directory.resolve().parent.stat()
    if os.geteuid() == 0 and above.st_uid == 0 and not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        trusted.add(directory.stat().st_uid)
    return trusted


def find(directory: Path, store_url: str) -> Doorway | None:
    """The agent that writes to this store, if one runs on this machine and lets us in."""
    path = place(directory, store_url)
    try:
        if path.stat().st_uid not in _trusted(directory):
            return None  # left by somebody who would like to see our token
        doorway = Doorway(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    try:
        doorway.ask("GET", "/healthz")
    except (OSError, ValueError, HTTPException, AgentError):  # a killed agent's port may be another's by now
        return None
    return doorway
