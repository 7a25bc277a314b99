"""Three members of etcd, an agent beside each, one store; and what strikes them."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from urllib.parse import urlsplit

from rootcellar.backup.prune.retention import Gfs, LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.errors import RootcellarError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from testbed.etcd import Etcds, start_together
from testbed.s3 import SeaweedFS
from tests.agent.agents import Agents
from tests.soak.disk import Disk
from tests.soak.lines import Lines
from tests.soak.storm import MEMBERS
from tests.stores.places import s3_store

PREFIX = "soak/etcd"
DELTAS_FOR = 20.0
"""Seconds for which the policy with a window of deltas lets every moment be restored."""
KEEPS = {
    "limit": ("{limit: 3, minimum: 2}", Rules(LimitBased(3), 2)),
    "window": (
        f"{{gfs: {{hourly: 1, daily: 1}}, deltas: {DELTAS_FOR:.0f}s, minimum: 2}}",
        Rules(Gfs(hourly=1, daily=1), 2, timedelta(seconds=DELTAS_FOR)),
    ),
}
"""Tight retentions, as they are written and as they are judged."""
_UPKEEP = """schedules:
  delta: {{every: 1s}}
  full: {{cron: '{full}'}}
  prune: {{cron: '*/4 * * * * *'}}
  compact: {{cron: '*/7 * * * * *', deltas: 3}}
"""


def port_of(url):
    return urlsplit(url).port


class Ground(AbstractContextManager["Ground"]):
    """All of it, running.  `store` is the store as a bystander sees it, past the lines.

    With `keeps` agents have a full schedule of fulls, retention of that name, folds, and a mirror; without,
    they do but deltas.
    """

    def __init__(self, directory, *, store="s3", keeps=None, line="3.6"):
        self.directory = directory
        self.disk = None
        self.mirror = FileStore(directory / "mirror") if keeps is not None else None
        self.rules = KEEPS[keeps][1] if keeps is not None else None
        self.etcds = Etcds(directory / "etcd")
        self.lines = Lines()
        self.agents = Agents(directory / "agents")
        self.weed = None
        try:
            self._build(store, keeps, line)
        except BaseException:
            self.__exit__()
            raise

    def _build(self, store, keeps, line):
        self.members = self.etcds.make_cluster(line, MEMBERS)
        self.peer_lines = []
        for member in self.members:
            # Peers know a member by its line; what it listens on only the line knows.
            peers = self.lines.line(port_of(member.peer_url))
            behind, member.peer_url = member.peer_url, f"http://127.0.0.1:{peers.port}"
            member._flags = ("--listen-peer-urls", behind)  # noqa: SLF001  they come last and win
            self.peer_lines.append(peers)
        together = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            member.initial_cluster = together
        self.endpoints = [member.endpoint for member in self.members]
        start_together(self.members)
        self.client = EtcdClient(self.endpoints, timeout=3)
        self.ids = [self.client.member(endpoint).status().header.member_id for endpoint in self.endpoints]
        self.etcd_lines = [self.lines.line(port_of(endpoint)) for endpoint in self.endpoints]
        urls, credentials = self._stores(store)
        self.ours = []
        for number, etcd_line in enumerate(self.etcd_lines):
            agent = self.agents.make([f"http://127.0.0.1:{etcd_line.port}"], urls[number])
            agent.config.write_text(self._configuration(agent, etcd_line.port, credentials, keeps))
            self.ours.append(agent.start())

    def _configuration(self, agent, port, credentials, keeps):
        stores = [f"name: main, url: '{agent.store_url}', credentials: {{{credentials}}}"]
        upkeep = "schedules: {delta: {every: 1s}}\n"
        if keeps is not None:
            stores[0] += f", retention: {KEEPS[keeps][0]}"
            stores.append(
                f"name: copy, url: '{self.mirror.url}', mirror-of: main, retention: {KEEPS[keeps][0]}"
            )
            upkeep = _UPKEEP.format(full="*/20 * * * * *")
        return (
            f"stores: [{', '.join(f'{{{each}}}' for each in stores)}]\n"
            f"etcd: {{endpoints: ['http://127.0.0.1:{port}']}}\n"
            f"agent: {{poll: 1s, state-dir: '{agent.state}'}}\n{upkeep}"
        )

    def _stores(self, kind):
        """The store's URL for each agent, and its credentials."""
        self.store_lines = []
        if kind == "file":
            self.disk = Disk(self.directory)
            self.store = FileStore(self.disk.behind / "store")
            return [FileStore(self.disk.place).url] * MEMBERS, "ambient: true"
        self.weed = SeaweedFS(self.directory / "weed")
        self.weed.start()
        bucket = self.weed.new_bucket()
        self.store = s3_store(bucket, PREFIX)
        keys = self.directory / "keys"
        keys.mkdir()
        (keys / "accessKeyID").write_text(bucket.access_key)
        (keys / "secretAccessKey").write_text(bucket.secret_key)
        self.store_lines = [self.lines.line(port_of(bucket.endpoint)) for _ in range(MEMBERS)]
        urls = [
            f"s3://{bucket.name}/{PREFIX}?endpoint=http://127.0.0.1:{line.port}&region={bucket.region}"
            for line in self.store_lines
        ]
        return urls, f"dir: '{keys}'"

    def __exit__(self, *_):
        if (client := getattr(self, "client", None)) is not None:
            client.close()
        for server in (*getattr(self, "members", ()), self.weed):
            if server is not None:
                self.signal_server(server, signal.SIGCONT)
        self.agents.__exit__()
        self.lines.__exit__()
        self.etcds.__exit__(None, None, None)
        if self.weed is not None:
            self.weed.kill()
        if self.disk is not None:
            self.disk.__exit__()

    # what is asked of it

    def status(self, number, timeout=2):
        """What an agent says of itself; None while it says nothing."""
        try:
            return self.ours[number].doorway.ask("GET", "/status", timeout=timeout)
        except (OSError, ValueError, AttributeError, RootcellarError):
            return None

    def leader(self):
        """The member that leads etcd, by its number; None while none answers so."""
        for number, endpoint in enumerate(self.endpoints):
            with suppress(RootcellarError):
                status = self.client.member(endpoint).status(timeout=1)
                if status.leader == self.ids[number]:
                    return number
        return None

    def isolate(self, number, mode):
        """What becomes of all that a member and its peers say to each other."""
        self.peer_lines[number].set(mode)
        for other, line in enumerate(self.peer_lines):
            if other != number:
                line.set(mode, f"{self.ids[number]:x}")

    def part(self, one, other, mode):
        """What becomes of what two members say to each other."""
        self.peer_lines[one].set(mode, f"{self.ids[other]:x}")
        self.peer_lines[other].set(mode, f"{self.ids[one]:x}")

    def move_leader(self, heir):
        leader = self.leader()
        if leader is not None and leader != heir:
            self.client.member(self.endpoints[leader]).move_leader(self.ids[heir])

    def signal_server(self, server, which):
        """Whether it ran."""
        if server.running:
            server._process.send_signal(which)  # noqa: SLF001
        return server.running

    def ask_soon(self, number, path):
        """Have an agent asked, whatever it answers: the thread that waits for it."""

        def ask():
            with suppress(OSError, RootcellarError):
                self.ours[number].doorway.ask("POST", path, timeout=60)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        return asking

    def signal_agent(self, number, which):
        agent = self.ours[number]
        if agent.process.poll() is None:
            agent.signal(which)
            return True
        return False
