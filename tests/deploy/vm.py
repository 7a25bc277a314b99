"""A machine for one walk-through: directories below a temporary one, and of systemd what the unit needs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.agent.agents import COMMAND, wait_until
from tests.deploy.shipped import UNIT

PLACES = ("/etc/rootcellar", "/run/rootcellar", "/var/lib/rootcellar")


def unit():
    """The unit's settings: name to all its values, in order."""
    found = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def seconds(written):
    """Of a time span as systemd and our configuration write it: 45, 45s."""
    return int(written.removesuffix("s"))


class Machine:
    """Runs the commands of a page, with `words` (what the page says -> what it is here) replaced."""

    def __init__(self, root, words, environment):
        self.root = root
        self.words = {**words, **{place: f"{root}{place}" for place in PLACES}}
        self.environment = {
            **os.environ,
            "ROOTCELLAR_CONFIG": self.here("/etc/rootcellar/config.yaml"),
            **environment,
        }
        for place in PLACES:
            (Path(f"{root}{place}")).mkdir(parents=True)
        self.log = root / "agent.log"
        self.agent = None
        self.jobs = []

    def here(self, text):
        for written, real in self.words.items():
            text = text.replace(written, real)
        return text

    def run(self, line):
        """Carry out a line of the page; what it printed."""
        words = shlex.split(self.here(line), comments=True)
        if words[-1] == "&":
            self.jobs.append(
                subprocess.Popen(
                    words[:-1], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            return ""
        if words[0] == "systemctl":
            return getattr(self, f"_{words[1].replace('-', '_')}")()
        if words[:2] == ["kill", "%1"]:
            job = self.jobs.pop()
            job.terminate()
            job.wait(30)
            return ""
        if words[0] == "rootcellar":
            words = [*COMMAND, *words[1:]]
        if self.jobs:  # what was put into the background a line ago may still be starting
            wait_until(lambda: self._tried(words).returncode == 0, line)
        done = self._tried(words)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{self.said()}"
        return done.stdout

    def _tried(self, words):
        return subprocess.run(
            words,
            cwd=self.root,
            env={
                name: value
                for name, value in self.environment.items()
                if name != "ETCDCTL_ENDPOINTS" or "--endpoints" not in words  # etcdctl takes one of both
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    # what systemd does with the unit

    def _daemon_reload(self):
        return ""

    def _enable(self):
        credentials = self.root / "run" / "credentials"
        shutil.rmtree(credentials, ignore_errors=True)
        credentials.mkdir()
        for each in unit()["LoadCredential"]:
            name, _, path = each.partition(":")
            shutil.copy(self.here(path), credentials / name)
        environment = dict(
            word.replace("%d", str(credentials)).split("=", 1)
            for line in unit()["Environment"]
            for word in shlex.split(self.here(line))
        )
        program, *words = shlex.split(self.here(unit()["ExecStart"][0]))
        assert Path(program).name == "rootcellar"
        before = len(self.said())
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                [*COMMAND, *words], env={**os.environ, **environment}, stdout=log, stderr=log, cwd=self.root
            )

        def at_work():
            said = self.said()
            is_open = "event=session" in said[before:] and "event=stored" in said
            return is_open or self.agent.poll() is not None

        wait_until(at_work, "a session, and a backup")
        assert self.agent.poll() is None, self.said()
        return ""

    def _reload(self):
        assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
        self.agent.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=reloaded" in self.said(), "reloaded")
        return ""

    def _stop(self):
        self.agent.send_signal(signal.Signals[unit()["KillSignal"][0]])
        assert self.agent.wait(seconds(unit()["TimeoutStopSec"][0])) == 0, self.said()
        return ""

    def _restart(self):
        self._stop()
        return self._enable()

    def close(self):
        for each in [*self.jobs, *filter(None, [self.agent])]:
            with suppress(ProcessLookupError):
                each.kill()
            each.wait()


def shell_lines(page):
    """All lines of the page's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
