"""The agent at rest, and under a flood of events: `make bench-agent`, or `python -m benchmarks.agent`.

A real etcd, a real store (SeaweedFS), `rootcellar agent` as a process of its own.  Memory is resident memory
without file mappings; processor time is the process's own, as the kernel counts it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.table import Row, show
from rootcellar.agent.doorway import Doorway, place
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, plan_chain
from rootcellar.errors import AgentError
from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.s3.options import S3Options
from rootcellar.stores.s3.store import S3Store
from testbed import binaries
from testbed.etcd import Etcds
from testbed.s3 import SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REST_MIB, REST_SHARE = 120, 0.01
EVENTS_PER_SECOND, EVENTS_PER_REVISION, VALUE, KEYS = 10_000, 100, 200, 50_000
PREFIX = "bench/etcd"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Watched:
    """A process from `began` on: what it used."""

    pid: int
    began: float = field(default_factory=time.monotonic)
    memory: list[float] = field(default_factory=list)
    seconds: float = 0.0
    """Up to the last sample."""
    share: float = 0.0
    """Of one core, in these seconds."""

    def __post_init__(self) -> None:
        self._processor = self._used()

    def _used(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def sample(self) -> None:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                self.memory.append(int(line.split()[1]) / 1024)
        self.seconds = time.monotonic() - self.began
        self.share = (self._used() - self._processor) / self.seconds

    def until(self, is_over: Callable[[], bool], pause: float = 0.5) -> None:
        """Sample it until then."""
        while not is_over():
            self.sample()
            time.sleep(pause)
        self.sample()

    def rest(self, seconds: float, pause: float = 0.5) -> None:
        """Sample it until so long after it began."""
        self.until(lambda: time.monotonic() >= self.began + seconds, pause)

    @property
    def taken(self) -> str:
        """What it took, for a table."""
        return f"{self.seconds:.1f} s, {self.share * self.seconds:.1f} s of processor"


@dataclass(frozen=True)
class Place:
    """A store and a way to say so to the agent."""

    url: str
    credentials: str
    store: S3Store

    @classmethod
    def on(cls, weed: SeaweedFS, directory: Path) -> Place:
        bucket, keys = weed.new_bucket(), directory / "keys"
        keys.mkdir()
        (keys / "accessKeyID").write_text(bucket.access_key)
        (keys / "secretAccessKey").write_text(bucket.secret_key)

        class Keys:
            def load(self) -> dict[str, str]:
                return {"accessKeyID": bucket.access_key, "secretAccessKey": bucket.secret_key}

            def stamp(self) -> None:
                return None

        options = S3Options(bucket.name, PREFIX, endpoint=bucket.endpoint, region=bucket.region)
        url = f"s3://{bucket.name}/{PREFIX}?endpoint={bucket.endpoint}&region={bucket.region}"
        return cls(url, f"dir:{keys}", S3Store(options, Keys()))


@contextmanager
def agent(directory: Path, endpoint: str, where: Place, schedules: str) -> Iterator[tuple[int, Doorway]]:
    """An agent that has stored something."""
    state, config = directory / "state", directory / "rootcellar.yaml"
    config.write_text(
        f"stores: [{{name: main, url: '{where.url}'}}]\netcd: {{endpoints: ['{endpoint}']}}\n"
        f"{schedules}agent: {{state-dir: '{state}'}}\n"
    )
    command = [sys.executable, "-m", "rootcellar", "agent", "--config", str(config)]
    with (
        (directory / "agent.log").open("wb") as log,
        subprocess.Popen([*command, "--credentials", where.credentials], stdout=log, stderr=log) as process,
    ):
        try:
            file, deadline = place(state, where.url), time.monotonic() + 60
            while not (door := _door(file)) or not _reached(door):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit((directory / "agent.log").read_text())
                time.sleep(0.2)
            yield process.pid, door
        finally:
            process.terminate()


def _door(file: Path) -> Doorway | None:
    return Doorway(**json.loads(file.read_text())) if file.exists() else None


def _reached(door: Doorway) -> int:
    try:
        return door.ask("GET", "/status")["recovery"]["last"] or 0
    except (OSError, AgentError):
        return 0


def rest(door_pid: int, seconds: float) -> Watched:
    """With the default schedules, over a quiet etcd."""
    watched = Watched(door_pid)
    watched.rest(seconds, pause=1)
    return watched


def flood(client: EtcdClient, pid: int, seconds: float) -> tuple[Watched, int, float]:
    """Transactions at a steady rate; what the agent used, how many events, the rate that was reached."""
    watched, events, value = Watched(pid), 0, os.urandom(VALUE)
    pause = EVENTS_PER_REVISION / EVENTS_PER_SECOND
    while (passed := time.monotonic() - watched.began) < seconds:
        keys = (b"flood/%08d" % ((events + each) % KEYS) for each in range(EVENTS_PER_REVISION))
        client.txn([ops.put(key, value) for key in keys])
        events += EVENTS_PER_REVISION
        if events % EVENTS_PER_SECOND == 0:
            watched.sample()
        time.sleep(max(0.0, events / EVENTS_PER_REVISION * pause - passed))
    return watched, events, events / (time.monotonic() - watched.began)


def main() -> int:
    """Run both, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rest", type=float, default=180, help="seconds")
    parser.add_argument("--flood", type=float, default=60, help="seconds")
    parser.add_argument("--etcd", default="3.6", choices=binaries.LINES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rootcellar-bench-") as name:
        directory = Path(name)
        weed = SeaweedFS(directory / "weed")
        with Etcds(directory / "etcd") as etcds:
            member = etcds.start(given.etcd, flags=["--quota-backend-bytes=8589934592"])
            try:
                weed.start()
                where = Place.on(weed, directory)
                with EtcdClient([member.endpoint], timeout=30) as client:
                    client.put(b"first", b"value")
                    quiet = _rest_in(directory / "rest", member.endpoint, where, given.rest)
                    rows = [*_rest_rows(quiet), *_flood_rows(directory, client, where, given.flood)]
            finally:
                weed.kill()
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, etcd {member.version}\n")
    return show(rows)


def _rest_in(directory: Path, endpoint: str, where: Place, seconds: float) -> Watched:
    directory.mkdir()
    with agent(directory, endpoint, where, "") as (pid, _):
        return rest(pid, seconds)


def _rest_rows(watched: Watched) -> list[Row]:
    peak, share, seconds = max(watched.memory), watched.share, watched.seconds
    return [
        Row(
            f"agent at rest for {seconds:.0f} s, memory",
            f"{peak:.0f} MiB",
            f"{REST_MIB} MiB",
            peak < REST_MIB,
        ),
        Row("agent at rest, processor", f"{share:.2%} of a core", f"{REST_SHARE:.0%}", share < REST_SHARE),
    ]


def _flood_rows(directory: Path, client: EtcdClient, where: Place, seconds: float) -> list[Row]:
    place_ = directory / "flood"
    place_.mkdir()
    schedules = "schedules: {delta: {every: 5s}}\n"
    with agent(place_, client.endpoints[0], where, schedules) as (pid, door):
        watched, events, rate = flood(client, pid, seconds)
        ended, last = time.monotonic(), client.header().revision
        while _reached(door) < last:
            if time.monotonic() > ended + 300:
                raise SystemExit((place_ / "agent.log").read_text()[-4000:])
            time.sleep(0.2)
        behind = time.monotonic() - ended
    catalogue = read_catalogue(where.store)
    gaps = [chain.gap for chain in chains(catalogue, 1) if chain.gap is not None]
    whole = not gaps and plan_chain(catalogue, Latest()).reach == last
    third = max(1, len(watched.memory) // 3)
    middle, end = max(watched.memory[third : 2 * third]), max(watched.memory[2 * third :])
    return [
        Row(
            f"{events:,} events in {seconds:.0f} s",
            f"{rate:,.0f} events/s, {len(gaps)} gaps, all stored {behind:.1f} s after the last",
            f"{EVENTS_PER_SECOND:,} events/s or what etcd delivers, no gap",
            whole,
        ),
        Row(
            "memory in the second and the last third",
            f"{middle:.0f} and {end:.0f} MiB, {watched.share:.0%} of a core",
            "flat",
            end < middle * 1.15,
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
