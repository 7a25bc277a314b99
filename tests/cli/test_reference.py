"""The documentation is that of the tables."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from rootcellar import errors
from rootcellar.cli import flags, reference, table
from rootcellar.cli.arguments import Arguments, sort
from rootcellar.errors import RootcellarError

ROOT = Path(__file__).parents[2]
DOCS, README = ROOT / "docs", ROOT / "README.md"


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_each_page_is_up_to_date(name):
    page = (DOCS / name).read_text()
    current = reference.replaced(page, reference.PAGES[name]())
    assert page == current, "run python -m rootcellar.cli.reference docs"


@pytest.mark.parametrize("name", sorted(reference.SCHEMAS))
def test_each_published_schema_is_that_of_the_types(name):
    """What programs rely on changes only where somebody sees it change."""
    published = (DOCS / name).read_text()
    assert published == reference.SCHEMAS[name](), "run python -m rootcellar.cli.reference docs"


def test_the_schema_has_every_kind_of_output():
    schema = json.loads(reference.SCHEMAS["output.schema.json"]())
    kinds = {each["$ref"].rpartition("/")[2] for each in schema["anyOf"]}
    assert {"Backups", "CheckResult", "Keys", "RestorePlan", "RestoreResult", "Snapshot"} <= kinds
    assert schema["$defs"]["Keys"]["properties"]["items"]["items"] == {"$ref": "#/$defs/KeyShown"}
    assert schema["$defs"]["Backups"]["properties"]["kind"] == {"enum": ["Backups"]}


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="no place"):
        reference.replaced("nothing", "something")


def commands(text):
    """The command lines in a page's shell blocks."""
    for block in re.findall(r"^ *```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rootcellar"]:
                yield words[1:]


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_every_command_line_in_a_page_can_be_read(page):
    for words in commands(page.read_text()):
        if words[0] == "VERB":
            continue
        found = sort(words, table.COMMANDS, flags.EVERYWHERE)
        assert found.command is not None
        given = Arguments(found, {}, lambda _: None)
        for option, values in found.given.items():
            if not any(
                re.fullmatch(r"[A-Z_]+|\.\.\.", value) for value in values
            ):  # what a person is to fill in
                given.all(option) if option.repeated else given.get(option)


def test_pages_show_command_lines():
    assert len(list(commands((DOCS / "cli.md").read_text()))) > 20
    assert len(list(commands(README.read_text()))) > 5


def every_error():
    """The tree of `errors`, and what any verb's modules add to it."""
    for command in table.COMMANDS:
        import_module(command.module)
    found = [RootcellarError, *reference.below(RootcellarError)]
    return [each for each in found if each.__module__.startswith("rootcellar")]


@pytest.mark.parametrize("number", ["exit_code", "code"])
def test_no_two_errors_share_what_scripts_tell_them_apart_by(number):
    shared = Counter(getattr(each, number) for each in every_error())
    assert [each for each, count in shared.items() if count > 1] == []


def test_every_error_has_its_exit_code_in_the_tree_and_in_the_page():
    page = (DOCS / "cli.md").read_text()
    for each in every_error():
        drawn = re.search(rf"{each.__name__} +(?:exit +)?{each.exit_code}\b", errors.__doc__)
        assert drawn, f"{each.__name__} is not drawn with its exit code in errors.py"
        assert f"| {each.exit_code} | `{each.code}` |" in page, each.__name__
        assert 10 <= each.exit_code < 126, "0 to 3 are `check`'s, 126 and up the shell's"


def test_no_two_options_of_a_verb_share_a_flag():
    for command in table.COMMANDS:
        options = (*command.options, *flags.EVERYWHERE)
        names = [name for option in options for name in (option.flag, option.short) if name]
        assert len(names) == len(set(names)), command.name


def test_defaults_are_values_that_their_options_accept():
    for command in table.COMMANDS:
        for option in command.options:
            if option.default:
                option.read(option.default, option.flag)
