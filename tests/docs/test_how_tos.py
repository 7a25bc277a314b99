"""What the pages tell a person to type works, word for word."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rootcellar.backup.restore.place import read_note
from rootcellar.cli import flags, table
from rootcellar.cli.arguments import sort
from rootcellar.stores.file import FileStore
from tests.backup.ebr_data import EBR, EBR_PREFIX

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "cli.md"})]
"""All but the one that is made from the command line's own tables."""


def commands(page):
    """The rootcellar commands in a page's shell blocks; `...` stands for options that vary."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rootcellar"]:
                yield [word for word in words[1:] if word != "..."]


def every_command():
    for page in PAGES:
        for number, words in enumerate(commands(page)):
            yield pytest.param(words, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("words", list(every_command()))
def test_every_command_in_a_page_is_one_that_rootcellar_knows(words):
    """A block that ends an option with `...` leaves its value to the reader."""
    if words[-1] == flags.ENDPOINTS.flag:
        words = [*words, "http://127.0.0.1:2379"]

    found = sort(words, table.COMMANDS, flags.EVERYWHERE)

    assert found.command is not None


def carried_out(page, directory, store):
    """Run a page's restore commands with real paths in them."""
    for words in commands(ROOT / "docs" / page):
        real = [word.replace("DATA_DIR", str(directory)) for word in words]
        real = [store.url if word == "STORE" else word for word in real]
        done = subprocess.run(
            [sys.executable, "-m", "rootcellar", *real],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{real}: {done.stderr}"


@pytest.fixture
def store(tmp_path):
    """A backup in a directory that may be written to: a restore leaves a fork intent there."""
    shutil.copytree(EBR / "gzip-3.5" / "store" / EBR_PREFIX, tmp_path / "store")
    return FileStore(tmp_path / "store")


@pytest.fixture
def old_data(tmp_path):
    directory = tmp_path / "data"
    (directory / "member").mkdir(parents=True)
    return directory


def test_the_page_on_a_single_etcd_restores_one(store, old_data):
    carried_out("restore-single.md", old_data, store)

    assert read_note(old_data / "member")["revision"] == 294
    assert len(list((old_data / ".rootcellar-quarantine").iterdir())) == 1


def test_the_page_on_three_vms_restores_three(store, old_data):
    carried_out("restore-three-vms.md", old_data, store)

    notes = [read_note(old_data / name / "member") for name in ("", "m0", "m1", "m2")]
    assert [note["member"] for note in notes] == ["m0", "m0", "m1", "m2"]
    assert {(note["cluster"], note["revision"]) for note in notes} == {(notes[0]["cluster"], 294)}
