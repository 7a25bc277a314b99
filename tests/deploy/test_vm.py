"""The unit and the walk-through: what they say works, word for word."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from testbed.cache import UnavailableError
from testbed.ports import free_port
from tests.deploy.shipped import CONFIG, ROOT, UNIT
from tests.deploy.vm import Machine, seconds, shell_lines, unit

PAGE = ROOT / "docs" / "agent-beside-etcd-on-a-vm.md"
OF_THE_SYSTEM = ("python3 -m venv", "/opt/rootcellar/bin/pip", "ln -s", "install", "systemd-sysusers")
"""What makes the machine ready.  The fixture has done that."""


def config():
    return yaml.safe_load(CONFIG.read_text())


@pytest.fixture
def machine(tmp_path, etcd, authority, bucket):
    member = etcd.start("3.6", tls=authority)
    client = authority.client()
    store = f"s3://{bucket.name}/etcd-main?endpoint={quote(bucket.endpoint, safe='')}&region={bucket.region}"
    words = {
        config()["stores"][0]["url"]: store,
        config()["etcd"]["endpoints"][0]: member.endpoint,
        config()["agent"]["http"]["listen"]: f"127.0.0.1:{free_port()}",
        "127.0.0.1:12379": f"127.0.0.1:{free_port()}",
        "127.0.0.1:12380": f"127.0.0.1:{free_port()}",
    }
    environment = {
        "PATH": f"{member.programs.etcd.parent}:{os.environ['PATH']}",
        "ETCDCTL_API": "3",
        "ETCDCTL_ENDPOINTS": member.endpoint,
        "ETCDCTL_CACERT": str(authority.ca),
        "ETCDCTL_CERT": str(client.certificate),
        "ETCDCTL_KEY": str(client.key),
    }
    here = Machine(tmp_path / "vm", words, environment)
    here.member = member
    etc = Path(here.here("/etc/rootcellar"))
    (etc / "main").mkdir()
    (etc / "etcd").mkdir()
    (etc / "main" / "accessKeyID").write_text(bucket.access_key)
    (etc / "main" / "secretAccessKey").write_text(bucket.secret_key)
    shutil.copy(authority.ca, etc / "etcd" / "ca.crt")
    shutil.copy(client.certificate, etc / "etcd" / "client.crt")
    shutil.copy(client.key, etc / "etcd" / "client.key")
    (etc / "config.yaml").write_text(here.here(CONFIG.read_text()))
    yield here
    here.close()


def test_the_walk_through_ends_with_a_proven_backup_and_a_restored_etcd(machine):
    machine.member.etcdctl("put", "first", "value")
    printed = {}
    for line in shell_lines(PAGE):
        if line.startswith(OF_THE_SYSTEM):
            continue
        printed[line] = machine.run(line)

    assert "leader" in printed["rootcellar status"]
    assert "replayed" in printed["rootcellar ls"]
    assert printed["etcdctl --endpoints http://127.0.0.1:12379 get drill"].split("\n")[1] == "we were here"
    assert machine.agent.returncode == 0
    assert "parent=" not in machine.said()  # the drill forked nothing


def test_the_agent_of_the_unit_is_found_by_commands_of_its_machine(machine):
    machine.member.etcdctl("put", "first", "value")
    machine.run("systemctl enable --now rootcellar-agent")

    machine.run("rootcellar snapshot full")

    assert 'why="asked for"' in machine.said()
    assert json.loads(machine.run("rootcellar status --output json"))["agent"]["epoch"] == 1


def test_the_unit_gives_the_agent_more_time_than_its_last_delta_may_take():
    grace = seconds(config()["agent"]["grace"])
    assert seconds(unit()["TimeoutStopSec"][0]) >= 2 * grace
    assert unit()["KillSignal"] == ["SIGTERM"]
    assert unit()["KillMode"] == ["mixed"]


def test_the_unit_the_configuration_and_the_page_speak_of_the_same_places():
    written, settings = config(), unit()
    credentials = dict(each.split(":") for each in settings["LoadCredential"])
    tls = written["etcd"]["tls"]
    assert {credentials["ca.crt"], credentials["client.crt"], credentials["client.key"]} == set(tls.values())
    directory = written["stores"][0]["credentials"]["dir"]
    assert credentials["accessKeyID"] == f"{directory}/accessKeyID"
    assert written["agent"]["state-dir"] == f"/run/{settings['RuntimeDirectory'][0]}"
    scratch = {each["scratch"] for each in written["schedules"]["proofs"].values()}
    assert scratch == {f"/var/lib/{settings['StateDirectory'][0]}"}
    page = PAGE.read_text()
    for each in ("/etc/rootcellar/config.yaml", written["agent"]["http"]["listen"], directory):
        assert each in page
    assert settings["ExecStart"][0].split()[0] in page
    assert settings["ExecStart"][0].split()[-1] in page


def test_the_agent_of_the_unit_may_write_where_it_must_and_no_further():
    settings = unit()
    assert settings["ProtectSystem"] == ["strict"]
    assert settings["NoNewPrivileges"] == ["yes"]
    assert settings["User"] == ["rootcellar"]
    assert settings["CapabilityBoundingSet"] == [""]
    assert "rootcellar" in (ROOT / "deploy/systemd/rootcellar.sysusers.conf").read_text().split()


@pytest.fixture
def systemd_analyze():
    found = shutil.which("systemd-analyze")
    if found is None:
        raise UnavailableError("systemd-analyze is not on this machine")
    return found


def test_systemd_finds_no_fault_in_the_unit(systemd_analyze, tmp_path):
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/rootcellar", sys.executable))

    done = subprocess.run([systemd_analyze, "verify", copy], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_calls_the_unit_well_confined(systemd_analyze, tmp_path):
    done = subprocess.run(
        [systemd_analyze, "security", "--offline=yes", "--threshold=20", UNIT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr
