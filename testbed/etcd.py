"""etcd servers of every line: alone or as a cluster, on new or existing data, with TLS and users."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from testbed import binaries
from testbed.ports import free_port
from testbed.server import Server

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Unpack

    from testbed.binaries import EtcdBinaries
    from testbed.tls import Authority


class Options(TypedDict, total=False):
    """How a member is started, beyond its name, ports and data directory."""

    flags: Sequence[str]
    """More flags for etcd; they come last and win."""
    tls: Authority
    """Serve clients by HTTPS and demand a certificate of them."""
    fsync: bool
    """Whether data must reach the disk: no test cuts the power, so only benchmarks ask for it."""


@dataclass(frozen=True)
class HashKV:
    """etcd's hash over all revisions in (compact_revision, revision]."""

    hash: int
    revision: int
    compact_revision: int


class Etcd(Server):
    """One member with its ports and data directory, which stay its own from start to start."""

    def __init__(
        self, programs: EtcdBinaries, directory: Path, name: str, data_dir: Path, options: Options
    ) -> None:
        super().__init__(name, directory)
        self.programs = programs
        self.data_dir = data_dir
        self.tls = options.get("tls")
        self.endpoint = f"{'https' if self.tls else 'http'}://127.0.0.1:{free_port()}"
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self.initial_cluster = f"{name}={self.peer_url}"
        self.joins = False
        """Whether it starts as a member of a cluster that has listed it already."""
        self._flags = options.get("flags", ())
        self._fsync = options.get("fsync", False)
        self._user: str | None = None
        self._client = self.tls.client() if self.tls else None
        self._context: ssl.SSLContext | None = self.tls.context(self._client) if self.tls else None

    @property
    def version(self) -> str:
        return self.programs.version

    def start(self) -> None:
        """Start it and wait until its client API has a leader and answers."""
        self.start_soon()
        self.wait_healthy()

    def start_soon(self) -> None:
        """Start it without waiting: a member of a cluster answers only when a majority runs."""
        command: list[str | Path] = [
            self.programs.etcd,
            *("--name", self.name),
            *("--data-dir", self.data_dir),
            *("--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", self.initial_cluster),
            *("--initial-cluster-state", "existing" if self.joins else "new"),
        ]
        if self.programs.minor == (3, 4):
            # Early ones, told not to fsync, do not even write when they should, and do not survive a kill.
            command += ["--logger", "zap"]
        elif not self._fsync:
            command += ["--unsafe-no-fsync"]
        if self.tls:
            pair = self.tls.server
            command += ["--client-cert-auth", "--trusted-ca-file", self.tls.ca]
            command += ["--cert-file", pair.certificate, "--key-file", pair.key]
        self.launch([*command, *self._flags])

    def wait_healthy(self) -> None:
        self.wait_until(self._healthy, "healthy")

    def _healthy(self) -> bool:
        # An alarm is a state that tests look at, not one that keeps a server from being ready.
        url = f"{self.endpoint}/health?exclude=NOSPACE&exclude=CORRUPT"
        try:
            with urllib.request.urlopen(url, timeout=5, context=self._context) as response:
                return bool(json.load(response)["health"] == "true")
        except (OSError, urllib.error.HTTPError):
            return False

    def etcdctl(self, *arguments: str | Path, stdin: bytes | None = None) -> str:
        """What this line's own etcdctl prints when it talks to this member.  Raises CalledProcessError."""
        # Its own five seconds are short for a password's hash on a busy machine.
        patience = ("--command-timeout=60s", "--dial-timeout=60s")
        command: list[str | Path] = [self.programs.etcdctl, "--endpoints", self.endpoint, *patience]
        if self.tls and self._client:
            command += [
                "--cacert",
                self.tls.ca,
                "--cert",
                self._client.certificate,
                "--key",
                self._client.key,
            ]
        if self._user:
            command += ["--user", self._user]
        return _output([*command, *arguments], self.programs, stdin)

    def etcdctl_json(self, *arguments: str | Path) -> Any:
        return json.loads(self.etcdctl(*arguments, "--write-out", "json"))

    def etcdutl(self, *arguments: str | Path) -> str:
        """What this line's own etcdutl (of 3.4: etcdctl) prints.  Raises CalledProcessError."""
        return _output([self.programs.etcdutl or self.programs.etcdctl, *arguments], self.programs)

    def hash_kv(self, revision: int = 0) -> HashKV:
        """This member's own hash at a revision, or at the last one for 0."""
        (answer,) = self.etcdctl_json("endpoint", "hashkv", "--rev", str(revision))
        found = answer["HashKV"]
        return HashKV(
            found["hash"], revision or found["header"]["revision"], found.get("compact_revision", 0)
        )

    def enable_auth(self, user: str = "root", password: str = "secret") -> None:
        """Make the root user and turn auth on; `etcdctl` speaks as that user from here on."""
        self.etcdctl("user", "add", f"{user}:{password}")
        self.etcdctl("user", "grant-role", user, "root")
        self.etcdctl("auth", "enable")
        self._user = f"{user}:{password}"


def _output(command: Sequence[str | Path], programs: EtcdBinaries, stdin: bytes | None = None) -> str:
    environment = {**os.environ, "ETCDCTL_API": "3"} if programs.minor == (3, 4) else None
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            check=True,
            timeout=120,
        )
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr.decode(errors="replace"))
        raise
    return done.stdout.decode()


class Etcds(AbstractContextManager["Etcds"]):
    """All members one test starts, below one directory; leaving it kills them.

    `line` is "3.4" to "3.7", or "3.5.1" for the demo's.  Raises UnavailableError where it cannot be had.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._members: list[Etcd] = []

    def make(
        self, line: str, name: str = "default", *, data_dir: Path | None = None, **options: Unpack[Options]
    ) -> Etcd:
        """A member not started yet: its peer URL is known, and a restore may fill its data directory."""
        directory = self._directory / f"etcd-{len(self._members)}"
        directory.mkdir(parents=True)
        member = Etcd(binaries.etcd(line), directory, name, data_dir or directory / "data", options)
        self._members.append(member)
        return member

    def start(
        self, line: str, name: str = "default", *, data_dir: Path | None = None, **options: Unpack[Options]
    ) -> Etcd:
        """A member that answers, on new data or on what `data_dir` holds."""
        member = self.make(line, name, data_dir=data_dir, **options)
        member.start()
        return member

    def make_cluster(self, line: str, size: int = 3, **options: Unpack[Options]) -> list[Etcd]:
        """Members m1, m2, ... that know each other and are not started yet."""
        members = [self.make(line, f"m{number}", **options) for number in range(1, size + 1)]
        together = ",".join(member.initial_cluster for member in members)
        for member in members:
            member.initial_cluster = together
        return members

    def start_cluster(self, line: str, size: int = 3, **options: Unpack[Options]) -> list[Etcd]:
        """Members that have a leader, and all answer."""
        members = self.make_cluster(line, size, **options)
        start_together(members)
        return members

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.kill()


def start_together(members: Sequence[Etcd]) -> None:
    """Start the members of one cluster and wait until all answer."""
    for member in members:
        member.start_soon()
    for member in members:
        member.wait_healthy()
