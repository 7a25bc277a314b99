"""The demonstration tells the truth, and cleans up behind itself."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rootcellar.cli.verbs import demo
from testbed import binaries
from tests.cli.conftest import COMMAND


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    return directory


@pytest.mark.parametrize("line", ["3.4", "3.6", "3.7"])
def test_what_was_lost_comes_back(ok, scratch, line):
    report = ok("demo", "--etcd", binaries.etcd(line).etcd, "--output", "json").json
    assert (report["kind"], report["passed"]) == ("DemoReport", True)
    assert report["hashKvLost"] == report["hashKvRestored"]
    assert report["keysLost"] == report["keysRestored"] == 2701
    assert list(scratch.iterdir()) == []


def test_it_shows_the_real_commands_and_a_report(ok, scratch):
    shown = ok("demo", "--etcd", binaries.etcd("3.6").etcd).out
    for told in (
        "$ rootcellar snapshot full store",
        "$ rootcellar snapshot delta store",
        "$ kill -9 ",
        "$ rootcellar ls store",
        "$ rootcellar restore store --data-dir etcd --to-time 20",
        "history has forked: this is timeline 2",
        "$ rootcellar verify store --level 5",
        "verdict      the same",
    ):
        assert told in shown
    assert list(scratch.iterdir()) == []


def test_it_warns_of_an_etcd_that_corrupts(ok, scratch):
    result = ok("demo", "--etcd", binaries.etcd("3.5.1").etcd)
    assert "etcd 3.5.1 may lose writes when it is killed" in result.err


def test_it_can_be_kept_to_look_at(ok, scratch):
    result = ok("demo", "--etcd", binaries.etcd("3.6").etcd, "--keep", "--output", "json")
    kept = Path(result.json["directory"])
    assert f"everything is in {kept}" in result.err
    assert "can restore  revision 347" in ok("ls", kept / "store").out


def test_a_configuration_that_lies_about_has_no_say(ok, scratch, config, monkeypatch):
    config("etcd: {user: nobody, quota: 1KiB}\nstores:\n- {name: x, url: 'file:///nowhere'}\n")
    monkeypatch.setenv("ROOTCELLAR_STORE", "file:///nowhere")
    ok("demo", "--etcd", binaries.etcd("3.6").etcd)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_etcd_and_no_files(scratch, elsewhere, number, code):
    with subprocess.Popen(
        [*COMMAND, "demo", "--etcd", str(binaries.etcd("3.6").etcd)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=elsewhere,
        env={**os.environ, "TMPDIR": str(scratch)},
        text=True,
    ) as process:
        # By then the first etcd runs, and the second act is about to end.
        for line in process.stdout:
            if "snapshot full" in line:
                break
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in error
    assert list(scratch.iterdir()) == []


def test_an_etcd_that_is_none_is_refused(cli, scratch):
    result = cli("demo", "--etcd", "/bin/true")
    assert result.code == 12
    assert "does not say its version" in result.err


def test_a_difference_is_an_error(cli, scratch, monkeypatch):
    honest = demo.state

    def other(client, revision=None):
        found = honest(client, revision)
        return found._replace(hash=found.hash + (revision is not None))

    monkeypatch.setattr(demo, "state", other)
    result = cli("demo", "--etcd", binaries.etcd("3.6").etcd)
    assert result.code == 36
    assert "NOT the same" in result.out
