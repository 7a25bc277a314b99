"""S3 on loopback: SeaweedFS, which honours conditions and locks, and rclone, which ignores conditions.

Both are shared by the tests of a run; a test has a bucket of its own.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config

from testbed import binaries
from testbed.ports import free_port
from testbed.server import Server, unique

if TYPE_CHECKING:
    from testbed.tls import Authority

ACCESS_KEY = "AKIATESTBED00000"
SECRET_KEY = "testbed-secret-key-0123456789"
REGION = "us-east-1"
_SESSION = botocore.session.get_session()


@dataclass(frozen=True)
class Bucket:
    """A bucket and what it takes to reach it."""

    name: str
    endpoint: str
    ca: Path | None
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    region: str = REGION

    def client(self) -> Any:
        """A client of botocore's, for looking behind the back of what is tested."""
        return _SESSION.create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            verify=str(self.ca) if self.ca else None,
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"total_max_attempts": 1},
            ),
        )


class S3:
    """What it takes to reach an S3 server with one account, from any process.  Path-style addressing; HTTPS
    if `ca` vouches for it.  `master` is the port where a SeaweedFS is asked for room.
    """

    def __init__(self, port: int, ca: Path | None, master: int | None = None) -> None:
        self.port, self.ca, self.master = port, ca, master
        self.endpoint = f"{'https' if ca else 'http'}://127.0.0.1:{port}"

    def answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        try:
            urllib.request.urlopen(self.endpoint, timeout=5, context=context).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code < 500  # it knows us well enough to refuse
        except OSError:
            return False
        return True

    def new_bucket(self, *, object_lock: bool = False) -> Bucket:
        """A bucket that nobody else uses; with object lock it is versioned too."""
        bucket = Bucket(unique("bucket"), self.endpoint, self.ca)
        locked = {"ObjectLockEnabledForBucket": True} if object_lock else {}
        bucket.client().create_bucket(Bucket=bucket.name, **locked)
        if self.master:
            # A bucket's first write waits 0.2 s for the volume that it lacks.
            grow = f"/vol/grow?collection={bucket.name}&count=1&replication=000"
            urllib.request.urlopen(f"http://127.0.0.1:{self.master}{grow}", timeout=30).close()
        return bucket


class S3Server(Server, S3):
    """Such a server as a process."""

    def __init__(self, name: str, directory: Path, tls: Authority | None = None) -> None:
        Server.__init__(self, name, directory)
        S3.__init__(self, free_port(), tls.ca if tls else None)
        self.tls = tls

    @abstractmethod
    def command(self) -> list[str | Path]:
        """The command line."""

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.launch(self.command())
        self.wait_until(self.answers, "answering")

    def reach(self) -> S3:
        return S3(self.port, self.ca, self.master)


class SeaweedFS(S3Server):
    """`weed mini`: master, volume server, filer and S3 in one process."""

    def __init__(self, directory: Path, tls: Authority | None = None) -> None:
        super().__init__("seaweedfs", directory, tls)
        parts = ("admin", "master", "volume", "filer", "s3")
        self._ports = {f"{part}.port.grpc": free_port() for part in parts}
        self._ports |= {f"{part}.port": free_port() for part in parts} | {"s3.port": self.port}
        self._ports |= {f"s3.port.{part}": 0 for part in ("iceberg", "lance")}
        self.master = self._ports["master.port"]

    def command(self) -> list[str | Path]:
        data, config = self.directory / "data", self.directory / "s3.json"
        data.mkdir(exist_ok=True)
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "testbed", "credentials": credentials, "actions": actions}
        config.write_text(json.dumps({"identities": [identity]}))
        command: list[str | Path] = [binaries.weed(), "-logtostderr", "mini", f"-dir={data}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={config}"]
        command += ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
        # Each bucket takes a volume, and by default there are as many as the disk has free gigabytes.
        command += ["-volume.max=8192"]
        command += [f"-{flag}={port}" for flag, port in self._ports.items()]
        if self.tls:
            pair = self.tls.server
            command += [f"-s3.cert.file={pair.certificate}", f"-s3.key.file={pair.key}"]
        return command

    def kill(self) -> None:
        """End it, and remove the sockets it puts into /tmp whatever one tells it."""
        super().kill()
        for port in self._ports.values():
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink()


class Rclone(S3Server):
    """`rclone serve s3` over a directory: overwrites whatever the condition says, and knows no locks."""

    def __init__(self, directory: Path, tls: Authority | None = None) -> None:
        super().__init__("rclone", directory, tls)

    def command(self) -> list[str | Path]:
        served = self.directory / "data"
        served.mkdir(exist_ok=True)
        command: list[str | Path] = [
            binaries.rclone(),
            "serve",
            "s3",
            "--config",
            self.directory / "none.conf",
        ]
        command += ["--addr", f"127.0.0.1:{self.port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
        if self.tls:
            command += ["--cert", self.tls.server.certificate, "--key", self.tls.server.key]
        return [*command, served]
