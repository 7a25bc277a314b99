"""Servers of a run, as its workers have them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed import binaries, sharing
from testbed.cache import UnavailableError
from testbed.server import ServerError
from testbed.sharing import Guest, Host
from testbed.tls import Authority
from tests.agent.agents import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def host(tmp_path):
    host = Host(lambda: tmp_path)
    yield host
    host.close()


def test_all_who_ask_have_the_same_server_and_names_of_their_own(host):
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda _: Guest(*host.door()).ask("fake_gcs"), range(4)))
    told.append(host.ask("fake_gcs"))
    assert len({each.port for each in told}) == 1
    buckets = [each.new_bucket() for each in told]
    assert len({each.name for each in buckets}) == 5


def test_an_authority_of_the_same_root_is_trusted_as_that_of_the_servers(host, tmp_path):
    mine = Authority(tmp_path / "mine", Guest(*host.door()).root())
    assert mine.ca.read_bytes() == (tmp_path / "tls" / "ca.pem").read_bytes()
    there = host.ask("seaweed_tls")
    there.ca = mine.ca
    assert there.answers()
    there.ca = Authority(tmp_path / "stranger").ca
    assert not there.answers()


def test_what_did_not_start_is_an_error_of_everybody_who_asks(host, monkeypatch):
    monkeypatch.setattr(binaries, "fake_gcs", lambda: Path("/bin/false"))
    for asked in (host, Guest(*host.door())):
        with pytest.raises(ServerError, match="fake-gcs exited with 1 before it was answering"):
            asked.ask("fake_gcs")


def test_what_cannot_be_had_is_told_as_that(host, monkeypatch):
    def refused():
        raise UnavailableError("not for this machine")

    monkeypatch.setattr(binaries, "fake_gcs", refused)
    with pytest.raises(UnavailableError, match="not for this machine"):
        Guest(*host.door()).ask("fake_gcs")


def test_a_stranger_is_not_let_in_and_keeps_nobody_out(host):
    address, _key = host.door()
    with pytest.raises(Exception, match="digest"):
        Guest(address, b"guessed").ask("fake_gcs")
    assert Guest(*host.door()).trouble() == ""


def test_a_server_that_hangs_is_trouble_and_one_that_answers_is_none(host, monkeypatch):
    port = Guest(*host.door()).ask("fake_gcs").port
    assert host.trouble() == ""
    monkeypatch.setattr(sharing, "_PATIENCE", 0)
    (server,) = servers(port)
    os.kill(server, signal.SIGSTOP)
    try:
        assert "fake-gcs, which all tests share, does not answer" in Guest(*host.door()).trouble()
    finally:
        os.kill(server, signal.SIGCONT)


FAKE_GCS_FOR_ALL = """
import os, signal, time
import pytest

@pytest.fixture(autouse=True)
def told(fake_gcs):
    with open(os.environ["TOLD"], "a") as told:
        told.write(f"{fake_gcs.port} {os.getpid()}\\n")
"""


class Run:
    """A test run of one file, beside ours."""

    def __init__(self, directory, text):
        (directory / "test_it.py").write_text(FAKE_GCS_FOR_ALL + text)
        self._told = directory / "told"
        self._told.touch()
        self._command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
        self._command += ["-q", "--rootdir", directory, "--basetemp", directory / "temporary", directory]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._options = {"cwd": ROOT, "env": {**environment, "TOLD": str(self._told)}, "text": True}

    def done(self, *words):
        """The finished process."""
        return subprocess.run([*self._command, *words], capture_output=True, check=False, **self._options)

    def started(self, *words):
        return subprocess.Popen([*self._command, *words], stdout=subprocess.DEVNULL, **self._options)

    def told(self):
        """Port and process, once for each test."""
        return [tuple(map(int, line.split())) for line in self._told.read_text().splitlines()]


def servers(port):
    """Processes of the server on that port."""
    wanted = f"\0-port\0{port}\0".encode()
    return [int(each.parent.name) for each in Path("/proc").glob("[0-9]*/cmdline") if wanted in read(each)]


def read(path):
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


def test_all_workers_of_a_run_share_a_server_that_ends_with_it(tmp_path):
    text = """
@pytest.mark.parametrize("number", range(4))
def test_it(fake_gcs, number):
    assert fake_gcs.new_bucket().name
"""
    run = Run(tmp_path, text)
    done = run.done("-n2")
    assert "4 passed" in done.stdout, done.stdout
    assert len({process for _, process in run.told()}) == 2
    ((port),) = {port for port, _ in run.told()}
    assert servers(port) == []


def test_a_killed_run_leaves_neither_servers_nor_workers(tmp_path):
    text = """
@pytest.mark.parametrize("number", range(2))
def test_it(number):
    time.sleep(600)
"""
    run = Run(tmp_path, text)
    with run.started("-n2") as controller:
        wait_until(lambda: len(run.told()) == 2, "both workers have the server")
        ((port),) = {port for port, _ in run.told()}
        workers = [process for _, process in run.told()]
        assert len(servers(port)) == 1
        controller.send_signal(signal.SIGKILL)
    wait_until(lambda: not servers(port), "the server has ended")
    wait_until(
        lambda: not any(read(Path(f"/proc/{each}/cmdline")) for each in workers), "so have the workers"
    )


def test_a_shared_server_that_dies_fails_its_tests_with_its_log_and_no_others(tmp_path):
    text = """
def test_kills(fake_gcs):
    from tests.testbed.test_sharing import servers
    for each in servers(fake_gcs.port):
        os.kill(each, signal.SIGKILL)
    fake_gcs.new_bucket()

def test_asks(fake_gcs):
    pass

@pytest.fixture
def told():
    pass

def test_asks_nothing():
    pass
"""
    done = Run(tmp_path, text).done("-n0")
    assert done.stdout.count("fake-gcs, which all tests share, has ended") >= 2
    assert re.search(r"1 failed, 1 passed,.* 1 error", done.stdout)
