"""Agents as processes of their own, beside real etcds."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from contextlib import AbstractContextManager, contextmanager, suppress

from rootcellar.agent import doorway
from rootcellar.errors import RootcellarError
from testbed.server import Server

COMMAND = (sys.executable, "-c", "import sys; from rootcellar.cli.main import main; sys.exit(main())")


def wait_until(condition, what="", seconds=60):
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long: {what}"
        pause.wait(0.05)
    return found


class AgentProcess:
    """`rootcellar agent` in a directory of its own, with a log that tests read."""

    def __init__(self, directory, endpoints, store, *words, delta="1s", **environment):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.store_url = store
        self.log_path = directory / "agent.log"
        self.config = directory / "rootcellar.yaml"
        self.state = directory / "state"
        self.words = words
        self.environment = environment
        self.write_config(endpoints, delta=delta)
        self.process = None

    def write_config(self, endpoints, *, delta="1s", extra=""):
        stores = f"stores: [{{name: main, url: '{self.store_url}'}}]\n" if self.store_url else ""
        self.config.write_text(
            f"{stores}etcd: {{endpoints: {json.dumps(endpoints)}}}\n"
            f"schedules: {{delta: {{every: {delta}}}}}\n"
            f"agent: {{poll: 1s, state-dir: '{self.state}'}}\n{extra}"
        )

    def start(self):
        server = Server("agent", self.directory)  # which dies with the tests
        command = [*COMMAND, "agent", "--config", self.config, "--log-format", "json", *self.words]
        server.launch(command, self.environment)
        self.process = server._process  # noqa: SLF001
        return self

    @property
    def events(self):
        found = []
        for line in self.log_path.read_text().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def logged(self, event, **values):
        return [
            each
            for each in self.events
            if each["event"] == event and all(each.get(name) == value for name, value in values.items())
        ]

    def wait_logged(self, event, count=1, **values):
        def there():
            assert self.process.poll() is None or event == "stopped", self.log_path.read_text()
            return len(self.logged(event, **values)) >= count

        wait_until(there, f"{event} {values} in {self.log_path}")
        return self.logged(event, **values)[-1]

    @property
    def doorway(self):
        path = doorway.place(self.state, self.store_url or "")
        try:
            return doorway.Doorway(**json.loads(path.read_text()))
        except (OSError, ValueError):
            return None

    def ask(self, path="/status", method="GET"):
        return self.doorway.ask(method, path, timeout=60)

    def get(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.doorway.url + path, timeout=10) as answer:
            return answer.read().decode()

    def phase(self):
        try:
            return self.ask()["state"]["phase"]
        except (OSError, RootcellarError, AttributeError):
            return None

    def reached(self):
        try:
            return self.ask()["recovery"]["last"] or 0
        except (OSError, RootcellarError, AttributeError):
            return 0

    def wait_reached(self, revision):
        wait_until(lambda: self.reached() >= revision, f"revision {revision}: {self.phase()}")

    def wait_phase(self, phase):
        wait_until(lambda: self.phase() == phase, f"phase {phase}")

    def signal(self, number):
        self.process.send_signal(number)

    @contextmanager
    def held_still(self):
        """It does nothing meanwhile, if it runs."""
        if self.process is None or self.process.poll() is not None:
            yield
            return
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def terminate(self):
        self.signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Agents(AbstractContextManager["Agents"]):
    """All agents of a test; killed after it."""

    def __init__(self, directory):
        self._directory = directory
        self._agents = []

    def make(self, endpoints, store, *words, **how):
        agent = AgentProcess(self._directory / f"agent-{len(self._agents)}", endpoints, store, *words, **how)
        self._agents.append(agent)
        return agent

    def start(self, endpoints, store, *words, **how):
        return self.make(endpoints, store, *words, **how).start()

    def __exit__(self, *_):
        for agent in self._agents:
            if agent.process is not None:
                with suppress(ProcessLookupError):
                    agent.process.send_signal(signal.SIGCONT)
            agent.kill()
