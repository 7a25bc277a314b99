"""What etcd is configured with, made from what its members share."""

from __future__ import annotations

import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml

from rootcellar.agent.etcd_config import EtcdConfig, written
from rootcellar.errors import ConfigError
from rootcellar.etcd.answers import Member
from testbed import binaries
from testbed.ports import free_port
from testbed.server import Server

if TYPE_CHECKING:
    from pathlib import Path

THREE = ",".join(f"main-{n}=http://main-{n}.main-peer.ns.svc:2380" for n in range(3))
SHARED = f"""\
name: etcd-config
data-dir: /var/etcd/data/new.etcd
metrics: basic
snapshot-count: 10000
quota-backend-bytes: 8589934592
initial-cluster-token: etcd-cluster
initial-cluster-state: new
initial-cluster: {THREE}
initial-advertise-peer-urls:
  main-0: [http://main-0.main-peer.ns.svc:2380]
  main-1: [http://main-1.main-peer.ns.svc:2380, http://10.0.0.1:2380]
  main-2: [http://main-2.main-peer.ns.svc:2380]
advertise-client-urls:
  main-0: [http://main-0.main-peer.ns.svc:2379]
  main-1: [http://main-1.main-peer.ns.svc:2379]
  main-2: [http://main-2.main-peer.ns.svc:2379]
"""


def member(number, *, learner=False, name=None):
    url = f"http://main-{number}.main-peer.ns.svc:2380"
    return Member(number + 1, f"main-{number}" if name is None else name, (url,), (), learner)


def tailored(pod="main-1", members=None, text=SHARED, **more):
    return EtcdConfig.parse(text, pod).tailored(members, **more)


def test_each_member_gets_its_own_name_and_urls():
    values = tailored()
    assert values["name"] == "main-1"
    assert values["initial-advertise-peer-urls"] == "http://main-1.main-peer.ns.svc:2380,http://10.0.0.1:2380"
    assert values["advertise-client-urls"] == "http://main-1.main-peer.ns.svc:2379"


def test_what_is_not_the_members_own_stays_as_it_is():
    values = tailored()
    assert values["data-dir"] == "/var/etcd/data/new.etcd"
    assert values["quota-backend-bytes"] == 8589934592
    assert values["initial-cluster-token"] == "etcd-cluster"


@pytest.mark.parametrize("members", [None, [], [member(0)]], ids=["silent", "none", "one"])
def test_a_new_cluster_has_all_its_members(members):
    values = tailored(members=members)
    assert values["initial-cluster"] == THREE
    assert values["initial-cluster-state"] == "new"


def test_a_learner_is_told_of_those_who_are_there_and_itself():
    values = tailored("main-1", [member(0), member(1, learner=True, name="")])
    assert values["initial-cluster"] == ",".join(THREE.split(",")[:2])
    assert values["initial-cluster-state"] == "existing"


def test_a_restart_among_voters_is_no_joining():
    values = tailored("main-1", [member(0), member(1)])
    assert values["initial-cluster"] == ",".join(THREE.split(",")[:2])
    assert values["initial-cluster-state"] == "new"


def test_who_joins_is_never_told_to_found_a_cluster_because_the_list_cannot_be_read():
    """The reference falls back to `new`, and the member founds a cluster of its own."""
    assert tailored(members=None, joins=True)["initial-cluster-state"] == "existing"


def test_a_member_name_prefix_goes_before_the_pods_name_and_is_kept_from_etcd():
    text = SHARED.replace("main-", "shoot-main-") + "member-name-prefix: shoot\n"
    values = tailored("main-1", text=text)
    assert values["name"] == "shoot-main-1"
    assert values["advertise-client-urls"] == "http://shoot-main-1.shoot-main-peer.ns.svc:2379"
    assert "member-name-prefix" not in values


OLD = """\
initial-cluster: main-0=http://main-0.main-peer.ns.svc:2380
initial-advertise-peer-urls: http@main-peer@ns@2380
advertise-client-urls: https@main-peer@ns@2379
"""


def test_files_of_older_versions_name_the_service():
    values = tailored("main-0", text=OLD)
    assert values["initial-advertise-peer-urls"] == "http://main-0.main-peer.ns.svc:2380"
    assert values["advertise-client-urls"] == "https://main-0.main-peer.ns.svc:2379"


def test_a_plain_url_is_a_plain_url():
    values = tailored("one", text="advertise-client-urls: http://a:2379,http://b:2379\n")
    assert values["advertise-client-urls"] == "http://a:2379,http://b:2379"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHARED.replace("main-1:", "main-7:"), "nothing for member main-1"),
        ("- a\n", "holds no mapping"),
        ("a: [", "is no YAML"),
        ("initial-cluster: nonsense\n", "initial-cluster has 'nonsense'"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        EtcdConfig.parse(text, "main-1").tailored([])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        EtcdConfig.read(tmp_path / "etcd.conf.yaml", "main-0")
    assert "ETCD_CONF" in caught.value.hint


def test_urls_may_come_again_for_one_member():
    config = EtcdConfig.parse("initial-cluster: a=http://x:1,b=http://y:1,a=http://z:1\n", "a")
    assert config.initial_cluster == {"a": ("http://x:1", "http://z:1"), "b": ("http://y:1",)}


class Configured(Server):
    """An etcd that has nothing but its file."""

    def __init__(self, directory: Path, program: Path, config: Path, url: str) -> None:
        super().__init__("etcd", directory)
        self._command, self._url = [program, "--config-file", config], url

    def start(self) -> None:
        self.launch(self._command)
        self.wait_until(self._healthy, "healthy")

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=5) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False


def test_etcd_of_every_line_starts_on_what_is_written(etcd_line, tmp_path):
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    shared = {
        "name": "etcd-config",
        "data-dir": str(tmp_path / "data"),
        "logger": "zap",
        "initial-cluster": f"pre-main-0={peer}",
        "initial-cluster-token": "etcd-cluster",
        "listen-client-urls": client,
        "listen-peer-urls": peer,
        "advertise-client-urls": {"pre-main-0": [client]},
        "initial-advertise-peer-urls": {"pre-main-0": [peer]},
        "member-name-prefix": "pre",
        "next-cluster-version-compatible": True,
    }
    path = tmp_path / "etcd.conf.yaml"
    path.write_text(written(EtcdConfig.parse(yaml.safe_dump(shared), "main-0").tailored(None)))
    programs = binaries.etcd(etcd_line)
    server = Configured(tmp_path / "run", programs.etcd, path, client)
    (tmp_path / "run").mkdir(exist_ok=True)
    try:
        server.start()
        environment = {"ETCDCTL_API": "3"}
        listed = subprocess.run(
            [programs.etcdctl, "--endpoints", client, "member", "list"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=30,
        ).stdout
    finally:
        server.kill()
    assert "pre-main-0" in listed
    assert client in listed
