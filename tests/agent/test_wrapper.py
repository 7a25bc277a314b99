"""The start protocol as two real processes play it: a sidecar that initializes, a wrapper that runs etcd."""

from __future__ import annotations

import os
import signal
import ssl
import stat
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from rootcellar.agent.compat import CompatApi, Initialization
from rootcellar.agent.etcd_config import EtcdConfig, written
from rootcellar.agent.initialization import Home, initialize
from rootcellar.errors import TargetError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles
from rootcellar.stores.file import FileStore
from testbed import binaries
from testbed.ports import free_port
from tests.agent.door_scene import TOKEN, ask, break_pages, captured, closed_port, eventually, served, write


class Scene:
    """One pod: where its data is, what its etcd is configured with, which modes it was checked in."""

    def __init__(self, directory, line, authority=None):
        self.directory, self.authority = directory, authority
        self.etcd = binaries.etcd(line).etcd
        self.data_dir = directory / "data" / "new.etcd"
        self.note = directory / "data" / "exit_code"
        self.store = FileStore(directory / "store")
        self.client_port, self.peer_port, self.port = free_port(), free_port(), free_port()
        self.modes = []
        self.scheme = "https" if authority else "http"
        (directory / "data").mkdir()
        (directory / "home").mkdir()

    @property
    def client_url(self):
        return f"{self.scheme}://localhost:{self.client_port}"

    def configuration(self):
        peer = f"http://127.0.0.1:{self.peer_port}"
        values = {
            "name": "etcd-config",
            "data-dir": str(self.data_dir),
            "logger": "zap",
            "initial-cluster": f"main-0={peer}",
            "initial-cluster-token": TOKEN,
            "listen-client-urls": f"{self.scheme}://127.0.0.1:{self.client_port}",
            "listen-peer-urls": peer,
            "advertise-client-urls": {"main-0": [self.client_url]},
            "initial-advertise-peer-urls": {"main-0": [peer]},
        }
        if self.authority:
            values["client-transport-security"] = {
                "cert-file": str(self.authority.server.certificate),
                "key-file": str(self.authority.server.key),
                "trusted-ca-file": str(self.authority.ca),
                "client-cert-auth": True,
            }
        return EtcdConfig.parse(yaml.safe_dump(values), "main-0")

    def initialize(self, mode):
        self.modes.append(mode.value)
        shared = self.configuration()
        return initialize(
            Home(
                self.data_dir, shared.member, shared.initial_cluster, TOKEN, 2 << 30, store=lambda: self.store
            ),
            mode,
        )

    def routes(self):
        def config(joins):
            return written(self.configuration().tailored(None, joins=joins))

        return CompatApi(Initialization(self.initialize), config, None).routes()

    @contextmanager
    def sidecar(self):
        pair = (
            {"cert": self.authority.server.certificate, "key": self.authority.server.key}
            if self.authority
            else {}
        )
        with served(self.routes, **pair) as url:
            yield url.rpartition("//")[2].replace("127.0.0.1", "localhost" if self.authority else "127.0.0.1")

    @contextmanager
    def wrapper(self, sidecar, *more):
        command = [
            *(sys.executable, "-m", "rootcellar", "wrapper", "start-etcd"),
            f"--backup-restore-host-port={sidecar}",
            f"--etcd-client-port={self.client_port}",
            f"--etcd-wrapper-port={self.port}",
            "--etcd-server-name=localhost",
            f"--exit-code-file={self.note}",
            f"--etcd={self.etcd}",
            *more,
        ]
        environment = {**os.environ, "HOME": str(self.directory / "home"), "ETCD_NAME": "nonsense"}
        log = (self.directory / "wrapper.log").open("ab")
        with log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def ready(self, context=None):
        url = f"{'https' if self.authority else 'http'}://localhost:{self.port}/readyz"
        try:
            return ask(url, context=context)[0] == 200
        except OSError:
            return False

    def log(self):
        return (self.directory / "wrapper.log").read_text()


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path, "3.6")


def test_etcd_of_every_line_is_started_asked_and_ended_in_good_order(etcd_line, tmp_path):
    scene = Scene(tmp_path, etcd_line)
    with scene.sidecar() as sidecar, scene.wrapper(sidecar) as process:
        eventually(scene.ready)
        with EtcdClient([scene.client_url]) as client:
            assert [member.name for member in client.member_list()] == ["main-0"]
            write(client, 3)
        assert not scene.note.exists()
        configuration = tmp_path / "home" / "etcd.conf.yaml"
        assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
        process.terminate()
        assert process.wait(30) == 0, scene.log()
    assert scene.note.read_text() == "terminated"
    assert stat.S_IMODE(scene.note.stat().st_mode) == 0o600
    with scene.sidecar() as sidecar, scene.wrapper(sidecar):
        eventually(scene.ready)
        with EtcdClient([scene.client_url]) as client:
            assert client.header().revision == 4
    assert scene.modes == ["full", "sanity"]


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupt")])
def test_the_signal_that_ended_it_is_noted(scene, number, name):
    with scene.sidecar() as sidecar, scene.wrapper(sidecar) as process:
        eventually(scene.ready)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert scene.note.read_text() == name


def test_stop_is_heard_by_post_alone(scene):
    with scene.sidecar() as sidecar, scene.wrapper(sidecar) as process:
        eventually(scene.ready)
        url = f"http://localhost:{scene.port}/stop"
        assert ask(url)[0] == 200
        assert scene.ready()
        assert ask(url, "POST")[0] == 200
        assert process.wait(30) == 0
    assert scene.note.read_text() == "terminated"


def etcd_of(scene):
    """The pid of the etcd that has this scene's configuration."""
    wanted = str(scene.directory / "home" / "etcd.conf.yaml").encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0].endswith(b"/etcd") and wanted in words:
                return int(path.parent.name)
    return None


def test_an_etcd_that_is_killed_ends_the_wrapper_and_the_next_start_checks_everything(scene):
    with scene.sidecar() as sidecar:
        with scene.wrapper(sidecar) as process:
            eventually(scene.ready)
            process.terminate()
            process.wait(30)
        with scene.wrapper(sidecar) as process:
            eventually(scene.ready)
            os.kill(etcd_of(scene), signal.SIGKILL)
            assert process.wait(30) == 1
        assert not scene.note.exists()
        with scene.wrapper(sidecar):
            eventually(scene.ready)
    assert scene.modes == ["full", "sanity", "full"]


def test_etcd_dies_with_its_wrapper(scene):
    with scene.sidecar() as sidecar, scene.wrapper(sidecar) as process:
        eventually(scene.ready)
        pid = etcd_of(scene)
        process.kill()
        process.wait(30)
        eventually(lambda: etcd_of(scene) is None)
    assert pid
    assert not scene.note.exists()


def test_a_second_signal_ends_everything_and_leaves_no_good_note(scene):
    with scene.sidecar() as sidecar, scene.wrapper(sidecar) as process:
        eventually(scene.ready)
        os.kill(etcd_of(scene), signal.SIGSTOP)  # it will not end in good order
        process.terminate()
        eventually(lambda: not scene.ready())
        process.terminate()
        assert process.wait(30) == 1
    assert not scene.note.exists()


def test_a_signal_before_etcd_runs_does_not_pass_a_crash_for_a_good_end(scene):
    """The reference notes the signal whenever it comes: a crashed etcd is then checked as a sound one."""
    with closed_port() as port, scene.wrapper(f"127.0.0.1:{port}") as process:
        eventually(lambda: "the sidecar does not answer" in scene.log())
        process.terminate()
        assert process.wait(30) == 0
    assert not scene.note.exists()


def test_the_wrapper_waits_for_a_sidecar_that_comes_later(scene):
    port = free_port()
    with scene.wrapper(f"127.0.0.1:{port}"):
        eventually(lambda: "the sidecar does not answer" in scene.log())
        with served(scene.routes, port=port):
            eventually(scene.ready)


def test_a_failed_initialization_is_tried_until_it_succeeds(scene):
    failures = [TargetError("no space"), TargetError("no space")]
    sound = scene.initialize

    def flaky(mode):
        if failures:
            raise failures.pop()
        return sound(mode)

    scene.initialize = flaky
    with scene.sidecar() as sidecar, scene.wrapper(sidecar):
        eventually(scene.ready)
    assert not failures
    assert "Failed" in scene.log()


def test_a_damaged_member_comes_back_from_its_backup(scene):
    with scene.sidecar() as sidecar:
        with scene.wrapper(sidecar) as process:
            eventually(scene.ready)
            with EtcdClient([scene.client_url]) as client:
                last = captured(client, scene.store)
                hashed = client.hash_kv()
            process.kill()
            process.wait(30)
            eventually(lambda: etcd_of(scene) is None)
        break_pages(scene.data_dir / "member" / "snap" / "db")
        with scene.wrapper(sidecar):
            eventually(scene.ready)
            with EtcdClient([scene.client_url]) as client:
                assert client.header().revision == last
                assert client.hash_kv(last).hash == hashed.hash


def test_tls_is_spoken_on_every_side(tmp_path, authority):
    scene = Scene(tmp_path, "3.6", authority)
    user = authority.client("root")
    trusted = ssl.create_default_context(cafile=authority.ca)
    more = (
        "--backup-restore-tls-enabled=true",
        f"--backup-restore-ca-cert-bundle-path={authority.ca}",
        f"--etcd-client-cert-path={user.certificate}",
        f"--etcd-client-key-path={user.key}",
    )
    with scene.sidecar() as sidecar, scene.wrapper(sidecar, *more) as process:
        eventually(lambda: scene.ready(trusted))
        with EtcdClient([scene.client_url], tls=TlsFiles(authority.ca, user.certificate, user.key)) as client:
            assert client.header().revision == 1
        process.terminate()
        assert process.wait(30) == 0, scene.log()


def test_an_etcd_that_cannot_be_asked_runs_and_is_ready_once_the_certificate_is_there(tmp_path, authority):
    scene, late = Scene(tmp_path, "3.6", authority), tmp_path / "late.pem"
    user = authority.client("root")
    more = (
        "--backup-restore-tls-enabled=true",
        f"--backup-restore-ca-cert-bundle-path={authority.ca}",
        f"--etcd-client-cert-path={late}",
        f"--etcd-client-key-path={user.key}",
    )
    with scene.sidecar() as sidecar, scene.wrapper(sidecar, *more) as process:
        eventually(lambda: f"etcd cannot be asked: cannot read {late}" in scene.log())
        assert process.poll() is None
        assert not scene.ready(authority.context())
        late.write_bytes(user.certificate.read_bytes())
        eventually(lambda: scene.ready(authority.context()))


def test_a_port_that_is_taken_is_said(scene):
    with served(list) as url, scene.sidecar() as sidecar:
        scene.port = int(url.rpartition(":")[2])
        with scene.wrapper(sidecar) as process:
            assert process.wait(30) == 12
    assert "cannot serve" in scene.log()


@pytest.mark.parametrize("address", ["http://a:1", "host", "host:port"])
def test_an_address_with_a_scheme_or_without_a_port_is_refused(scene, address):
    with scene.wrapper(address) as process:
        assert process.wait(30) == 11
    assert "write HOST:PORT" in scene.log()


def test_tls_without_an_authority_is_refused(scene):
    with scene.wrapper("a:1", "--backup-restore-tls-enabled=true") as process:
        assert process.wait(30) == 11
    assert "--backup-restore-ca-cert-bundle-path is needed" in scene.log()
