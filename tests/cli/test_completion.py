"""Shell completion."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rootcellar.cli.verbs.complete import candidates
from rootcellar.cli.verbs.completion import SCRIPTS


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["re"], ["restore"]),
        (["ho"], ["hold"]),
        (["hold", ""], ["add", "release", "list"]),
        (["snapshot", "d"], ["delta"]),
        (["restore", "--to-"], ["--to-revision", "--to-time"]),
        (["--ou"], ["--output"]),
        (["ls", "--output", ""], ["text", "json", "yaml"]),
        (["--output", "json", "ver"], ["verify"]),
        (["restore", "--plan", "x"], []),
        (["restore", "store", ""], []),
        (["restore", "@"], ["@main", "@other"]),
        (["restore", "@o"], ["@other"]),
        (["nonsense", ""], []),
    ],
)
def test_what_may_come_next(words, found):
    assert candidates(words, ["@main", "@other"]) == found


def test_stores_of_the_configuration_are_offered(ok, config):
    config("stores:\n- {name: main, url: 'file:///x'}\n")
    assert ok("complete", "--", "ls", "@").out == "@main\n"
    config("nonsense: [\n")
    assert ok("complete", "--", "ls", "@").out == ""


def test_nothing_typed_offers_all_verbs(ok):
    offered = ok("complete", "--").out.split()
    assert {"restore", "snapshot", "config"} <= set(offered)
    assert "complete" not in offered


def test_bash_completes_with_the_script(ok, tmp_path):
    """In a real bash, with a `rootcellar` on its path."""
    program = tmp_path / "rootcellar"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom rootcellar.cli.main import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    script = tmp_path / "completion"
    script.write_text(ok("completion", "bash").out)
    done = subprocess.run(
        [
            shutil.which("bash"),
            "-c",
            f'source {script}; COMP_WORDS=(rootcellar hold re); COMP_CWORD=2; _rootcellar; echo "$COMPREPLY"',
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{tmp_path}:{Path('/bin')}:{Path('/usr/bin')}"},
    )
    assert done.stdout == "release\n"


def test_each_shell_has_a_script(ok, cli):
    for shell in SCRIPTS:
        assert "rootcellar complete --" in ok("completion", shell).out
    assert cli("completion", "powershell").code == 11
