"""What every command line has in common: help, errors, exit codes, signals, terminals and pipes."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rootcellar
from rootcellar.cli import flags, table
from rootcellar.cli.verbs import config_show
from tests.cli.conftest import COMMAND, on_terminal

NAMES = [command.name for command in table.COMMANDS]


def test_without_a_verb_there_is_help(cli):
    result = cli()
    assert result.code == 0
    assert result.out == cli("--help").out == cli("help").out
    for command in (command for commands in table.GROUPS.values() for command in commands):
        assert command.name in result.out
        assert command.summary in " ".join(result.out.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_has_help_with_each_of_its_options_and_can_be_run(cli, name):
    result = cli(*name.split(), "--help")
    assert result.code == 0
    assert result.out == cli("help", *name.split()).out
    (command,) = (each for each in table.COMMANDS if each.name == name)
    for option in () if command.raw else (*command.options, *flags.EVERYWHERE):
        assert option.flag in result.out
    assert callable(import_module(command.module).run)


def test_help_fits_the_terminal_it_is_on(monkeypatch, cli):
    monkeypatch.setenv("COLUMNS", "60")
    for line in cli("restore", "--help").out.partition("examples")[0].splitlines():
        assert len(line) <= 60


def test_the_first_word_of_two_lists_the_second(cli):
    result = cli("snapshot")
    assert "snapshot full" in result.out
    assert "snapshot delta" in result.out
    assert "restore" not in result.out


def test_the_version_is_that_of_the_package(cli):
    assert cli("--version").out == f"rootcellar {rootcellar.__version__}\n"


def test_an_error_is_a_line_and_a_hint_on_stderr(cli):
    result = cli("ls", "/nowhere/at/all")
    assert (result.code, result.out) == (11, "")
    assert result.err == (
        "rootcellar: /nowhere/at/all does not exist\n"
        "hint: give a store's URL, @NAME, a directory or a snapshot file\n"
    )


@pytest.mark.parametrize(
    "words", [("ls", "/nowhere/at/all"), ("lss",), ("ls", "--nonsense"), ("config", "shw")]
)
def test_an_error_is_a_document_where_results_would_be(cli, words):
    for asked in (("--output", "json"), ("--output=json",)):
        result = cli(*words, *asked)
        assert (result.code, result.out) == (11, "")
        error = json.loads(result.err)
        assert error["apiVersion"] == "rootcellar.dev/v1"
        assert (error["kind"], error["code"], error["exitCode"]) == ("Error", "usage", 11)
        assert error["message"]


def test_the_environment_may_ask_for_json_too(cli, monkeypatch, ebr):
    monkeypatch.setenv("ROOTCELLAR_OUTPUT", "json")
    assert cli("ls", ebr()).json["kind"] == "Backups"
    assert json.loads(cli("lss").err)["kind"] == "Error"


def test_a_mistake_of_ours_is_told_without_a_traceback_unless_asked_for(cli, monkeypatch):
    def broken(_context):
        raise KeyError("x")

    monkeypatch.setattr(config_show, "run", broken)
    result = cli("config", "show")
    assert result.code == 1
    assert result.err.splitlines()[0] == "rootcellar: internal error: KeyError: 'x'"
    assert "Traceback" not in result.err
    assert "Traceback" in cli("config", "show", "--debug").err


def test_an_error_of_the_operating_system_names_the_file(cli):
    result = cli("key", "new", "-o", "/nowhere/at/all")
    assert result.code == 1
    assert "/nowhere/at/all: no such file or directory" in result.err


def test_debug_shows_where_an_expected_error_arose(cli):
    assert "Traceback" in cli("ls", "/nowhere/at/all", "--debug").err


def test_a_reader_that_goes_away_ends_it_silently(ebr, elsewhere):
    with subprocess.Popen(
        [*COMMAND, "extract", str(ebr())], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=elsewhere
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE
    assert error == b""


def test_a_parent_may_give_it_no_stdout(ebr, elsewhere):
    words = [*COMMAND, "ls", str(ebr())]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *words], capture_output=True, cwd=elsewhere, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_disk_that_is_full_is_told(ebr, elsewhere):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "ls", str(ebr())],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=elsewhere,
            check=False,
            text=True,
        )
    assert done.returncode == 1
    assert "no space left on device" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_code_and_no_traceback(number, code, elsewhere):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with subprocess.Popen(
            [
                *COMMAND,
                "status",
                str(elsewhere),
                "--endpoints",
                f"http://127.0.0.1:{port}",
                "--timeout",
                "60s",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=elsewhere,
            text=True,
        ) as process:
            connection, _ = listener.accept()  # it is at work now
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
            connection.close()
    assert process.returncode == code
    assert "Traceback" not in error


def test_colours_are_for_terminals_that_want_them(terminal, ebr):
    store = ebr()
    coloured = terminal("ls", store, env={"NO_COLOR": ""})[1]
    assert "\x1b[" in coloured
    assert "\x1b[" not in terminal("ls", store, env={"NO_COLOR": "1"})[1]
    assert "\x1b[" not in terminal("ls", store, env={"NO_COLOR": "", "TERM": "dumb"})[1]


def test_a_pipe_gets_neither_colours_nor_progress(command, ebr):
    done = command("verify", ebr(), env={**os.environ, "NO_COLOR": ""})
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_progress_is_shown_on_a_terminal_unless_quiet(terminal, ebr):
    store = ebr()
    shown = terminal("verify", store)[1]
    assert "of 54.5 KiB" in shown
    assert "apply" in shown
    assert "apply" not in terminal("verify", store, "--quiet")[1]


def test_a_question_is_asked_on_a_terminal_and_no_is_an_answer(terminal, ebr, tmp_path):
    store, target = ebr(), tmp_path / "data"
    assert terminal("restore", store, "--data-dir", target, "--to-revision", 200)[0] == 0
    again = ("restore", store, "--data-dir", target, "--to-revision", 210, "--replace")
    code, shown = terminal(*again, typed="n\n")
    assert (code, "replace the data in" in shown) == (11, True)
    assert json.loads((target / "member" / "rootcellar.json").read_text())["revision"] == 200
    assert terminal(*again, typed="y\n")[0] == 0
    assert json.loads((target / "member" / "rootcellar.json").read_text())["revision"] == 210


def test_help_costs_little_more_than_the_interpreter(elsewhere):
    """A ratio of processor time, as machines and their load differ: 150 ms where a bare start takes 15."""

    def cheapest(*words):
        costs = []
        for _ in range(9):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, capture_output=True, cwd=elsewhere)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(costs)

    bare = cheapest(sys.executable, "-c", "pass")
    assert cheapest(*COMMAND, "--help") < 10 * bare
    assert cheapest(*COMMAND, "restore", "--help") < 10 * bare


def test_help_imports_no_engine_and_nothing_heavy(elsewhere):
    code = (
        "import sys; from rootcellar.cli.main import main; main(['restore', '--help']);"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'grpc', 'numpy', 'botocore', 'msgspec', 'yaml', 'rich', 'asyncio'}),"
        " [name for name in sys.modules if name.startswith('rootcellar.') and 'cli' not in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=elsewhere
    )
    assert done.stdout.splitlines()[-1] == "[] ['rootcellar.errors', 'rootcellar.booleans']"


def test_a_key_cannot_command_the_terminal(tmp_path, elsewhere):
    """A key with escape sequences is shown, not obeyed."""
    words = [sys.executable, "-c", "from rootcellar.cli.columns import key; print(key(b'\\x1b[2J\\x07'))"]
    _, shown = on_terminal(words, elsewhere, "", {})
    assert shown.strip() == r"\x1b[2J\x07"
