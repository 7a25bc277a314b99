"""Three members of etcd, an agent beside each, one store; and what strikes them."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, suppress
from urllib.parse import urlsplit

from rootcellar.errors import RootcellarError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from testbed.etcd import Etcds, start_together
from testbed.s3 import SeaweedFS
from tests.agent.agents import Agents
from tests.soak.lines import Lines
from tests.soak.storm import MEMBERS
from tests.stores.places import s3_store

PREFIX = "soak/etcd"


def port_of(url):
    return urlsplit(url).port


class Ground(AbstractContextManager["Ground"]):
    """All of it, running.  `store` is the store as a bystander sees it, past the lines."""

    def __init__(self, directory, *, store="s3", full="* * * * *", line="3.6"):
        self.directory = directory
        self.etcds = Etcds(directory / "etcd")
        self.lines = Lines()
        self.agents = Agents(directory / "agents")
        self.weed = None
        try:
            self._build(store, full, line)
        except BaseException:
            self.__exit__()
            raise

    def _build(self, store, full, line):
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
        urls, words = self._stores(store)
        self.ours = []
        for number, etcd_line in enumerate(self.etcd_lines):
            agent = self.agents.make([f"http://127.0.0.1:{etcd_line.port}"], urls[number], *words)
            if full is not None:
                written = agent.config.read_text()
                agent.config.write_text(
                    written.replace("schedules: {", f"schedules: {{full: {{cron: '{full}'}}, ")
                )
            self.ours.append(agent.start())

    def _stores(self, kind):
        """The store's URL for each agent, and the words that go with it."""
        self.store_lines = []
        if kind == "file":
            self.store = FileStore(self.directory / "store")
            return [self.store.url] * MEMBERS, ()
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
        return urls, ("--credentials", f"dir:{keys}")

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
