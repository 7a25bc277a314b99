from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from rootcellar.backup.restore.plan import RestorePlan
from rootcellar.cli import reference, table
from rootcellar.cli.document import Document
from rootcellar.cli.main import main
from tests.backup.ebr_data import EBR, EBR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

for _command in table.COMMANDS:
    import_module(_command.module)
KINDS = {kind.__name__: kind for kind in reference.below(Document)}

COMMAND = (sys.executable, "-c", "import sys; from rootcellar.cli.main import main; sys.exit(main())")


@dataclass(frozen=True)
class Result:
    """What a command line came to."""

    code: int
    out: str
    err: str
    raw: bytes = b""

    @property
    def json(self) -> Any:
        """The document, which must be what its published type says."""
        document = json.loads(self.out)
        members = dict(document)
        assert document["apiVersion"] == "rootcellar.dev/v1"
        if document["kind"] == "RestorePlan":
            assert (
                json.loads(msgspec.json.encode(msgspec.json.decode(self.out, type=RestorePlan))) == document
            )
            return document
        del members["apiVersion"]
        kind = KINDS[document["kind"]]
        if kind.ITEMS is not None:
            msgspec.json.decode(json.dumps(members.pop("items")), type=list[kind.ITEMS])
        found = msgspec.json.decode(json.dumps(members), type=kind)
        assert json.loads(msgspec.json.encode(found)) == members, "the type does not know all of it"
        return document

    @property
    def yaml(self) -> Any:
        return yaml.safe_load(self.out)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No test sees a configuration file that lies about, or leaves something where it was started."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("NO_COLOR", "1")
    return directory


@pytest.fixture
def cli(capfdbinary):
    """Runs a command line in this process: `cli("ls", store)`; `ok` also demands that it succeeds."""

    def run(*words: object) -> Result:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return Result(code, out.decode(errors="replace"), err.decode(), out)

    return run


@pytest.fixture
def ok(cli):
    def run(*words: object) -> Result:
        result = cli(*words)
        assert result.code == 0, result.err
        return result

    return run


@pytest.fixture
def command(elsewhere):
    """Runs a command line in a process of its own, as a shell does."""

    def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        options.setdefault("text", True)
        options.setdefault("timeout", 120)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*COMMAND, *map(str, words)], capture_output=True, check=False, cwd=elsewhere, **options
        )

    return run


@pytest.fixture
def terminal(elsewhere):
    """Runs a command line on a terminal of its own; the exit code and all that it showed."""

    def run(*words: object, typed: str = "", env: dict[str, str] | None = None) -> tuple[int, str]:
        return on_terminal([*COMMAND, *map(str, words)], elsewhere, typed, env or {})

    return run


def on_terminal(words: Sequence[str], cwd: Path, typed: str, env: dict[str, str]) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env}
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        poll = select.poll()  # select() refuses descriptors above 1023, and a test worker may have many open
        poll.register(ours, select.POLLIN)
        while poll.poll(120_000):
            try:
                more = os.read(ours, 1 << 16)
            except OSError:  # how a terminal says that nobody is at its other end
                break
            shown += more
        code = process.wait(timeout=60)
    os.close(ours)
    return code, shown.decode(errors="replace")


@pytest.fixture
def ebr(tmp_path):
    """A copy of a backup that etcd-backup-restore wrote."""

    def copy(name: str = "gzip-3.5") -> Path:
        root = tmp_path / f"ebr-{name}"
        shutil.copytree(EBR / name / "store" / EBR_PREFIX, root)
        return root

    return copy


@pytest.fixture
def expected():
    """What a restore of it must come to."""

    def read(name: str = "gzip-3.5") -> Any:
        return json.loads((EBR / name / "expected.json").read_text())

    return read


@pytest.fixture
def config(elsewhere):
    """Writes a configuration file where it is looked for."""

    def write(text: str) -> Path:
        path = elsewhere / "rootcellar.yaml"
        path.write_text(text)
        return path

    return write
