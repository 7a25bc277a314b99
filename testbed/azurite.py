"""Azure Blob Storage on loopback: Azurite, which honours conditions and knows neither versions nor locks.

It is shared by the tests of a run; a test has a container of its own.
"""

from __future__ import annotations

import base64
import shutil
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING

from rootcellar.stores.azure.signing import VERSION, shared_key
from testbed import binaries
from testbed.cache import UnavailableError
from testbed.ports import free_port
from testbed.server import Server, unique

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.tls import Authority

ACCOUNT = "testbed"
KEY = base64.b64encode(b"testbed-storage-key-0123456789").decode()
SECOND_KEY = base64.b64encode(b"testbed-storage-key-9876543210").decode()


@dataclass(frozen=True)
class Container:
    """A container and what it takes to reach it."""

    name: str
    endpoint: str
    ca: Path | None
    account: str = ACCOUNT
    key: str = KEY


class AzureAccount:
    """What it takes to reach the one account of an Azurite, from any process; HTTPS if there is a `ca`."""

    def __init__(self, port: int, ca: Path | None) -> None:
        self.port, self.ca = port, ca
        self.endpoint = f"{'https' if ca else 'http'}://127.0.0.1:{port}/{ACCOUNT}"

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=5, context=self._context()).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code < 500  # it knows us well enough to refuse
        except OSError:
            return False
        return True

    def _context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.ca) if self.ca else None

    def new_container(self) -> Container:
        """A container that nobody else uses."""
        made = Container(unique("container"), self.endpoint, self.ca)
        url = f"{self.endpoint}/{made.name}?restype=container"
        now = format_datetime(datetime.now(UTC), usegmt=True)
        headers = {"x-ms-version": VERSION, "x-ms-date": now}
        key = base64.b64decode(KEY)
        headers["Authorization"] = shared_key(ACCOUNT, key, "PUT", url, headers, 0)
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=30, context=self._context()).close()
        return made


class Azurite(Server, AzureAccount):
    """Azurite's blob service with one account, all in memory.  With an authority it speaks HTTPS and takes
    tokens too, of which it checks what they say and not who signed them.
    """

    def __init__(self, directory: Path, tls: Authority | None = None) -> None:
        Server.__init__(self, "azurite", directory)
        AzureAccount.__init__(self, free_port(), tls.ca if tls else None)
        self.tls = tls

    def start(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise UnavailableError("node: not found, and Azurite is a program for it")
        command: list[str | Path] = [node, binaries.azurite(), "--blobHost", "127.0.0.1"]
        command += ["--blobPort", str(self.port), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
        command += ["--skipApiVersionCheck", "--disableProductStyleUrl"]
        if self.tls:
            pair = self.tls.server
            command += ["--cert", pair.certificate, "--key", pair.key, "--oauth", "basic"]
        self.launch(command, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}:{SECOND_KEY}"})
        self.wait_until(self.answers, "answering")

    def reach(self) -> AzureAccount:
        return AzureAccount(self.port, self.ca)
