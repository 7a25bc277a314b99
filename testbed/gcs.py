"""Google Cloud Storage on loopback: fake-gcs-server, which honours conditions and generations, and ignores
retention and holds.

It is shared by the tests of a run; a test has a bucket of its own.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed import binaries
from testbed.ports import free_port
from testbed.server import Server, unique

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class GcsBucket:
    """A bucket and where it is.  The server takes everybody."""

    name: str
    endpoint: str


class Gcs:
    """What it takes to reach it, from any process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/storage/v1/b", timeout=5).close()
        except OSError:
            return False
        return True

    def new_bucket(self, *, versioned: bool = False) -> GcsBucket:
        """A bucket that nobody else uses."""
        made = GcsBucket(unique("bucket"), self.endpoint)
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=testbed",
            data=json.dumps({"name": made.name, "versioning": {"enabled": versioned}}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30).close()
        return made


class FakeGcs(Server, Gcs):
    """fake-gcs-server, all in memory."""

    def __init__(self, directory: Path) -> None:
        Server.__init__(self, "fake-gcs", directory)
        Gcs.__init__(self, free_port())

    def start(self) -> None:
        command: list[str | Path] = [binaries.fake_gcs(), "-backend", "memory", "-scheme", "http"]
        command += ["-host", "127.0.0.1", "-port", str(self.port), "-log-level", "warn"]
        command += ["-external-url", self.endpoint, "-public-host", f"127.0.0.1:{self.port}"]
        self.launch(command)
        self.wait_until(self.answers, "answering")

    def reach(self) -> Gcs:
        return Gcs(self.port)
