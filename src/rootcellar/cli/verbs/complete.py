"""`complete`: what could stand where a shell's cursor is.  For the scripts that `completion` prints.

Nothing is printed where a file name or something of the person's own belongs: the shell then offers files.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rootcellar.cli import flags, table
from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rootcellar.cli.context import Context
    from rootcellar.cli.options import Command, Option


def run(context: Context) -> int:
    """Print the candidates, one per line."""
    words = list(context.arguments.operands(flags.WORDS)) or [""]
    stores: list[str] = []
    if words[-1].startswith("@"):
        with suppress(ConfigError):
            stores = [f"@{store.name}" for store in context.configuration.file.stores]
    context.console.lines(candidates(words, stores))
    return 0


def candidates(words: Sequence[str], stores: Sequence[str] = ()) -> list[str]:
    """What may stand in place of the last of `words`, which is not finished."""
    *before, unfinished = words
    command, group, waiting = _seen(before)
    if waiting is not None:
        found: Sequence[str] = waiting.choices
    elif unfinished.startswith("-"):
        options = (*(command.options if command is not None else ()), *flags.EVERYWHERE)
        found = [option.flag for option in options]
    elif unfinished.startswith("@"):
        found = stores
    elif command is None:
        found = list(dict.fromkeys(_next_words(group)))
    else:
        found = ()
    return [each for each in found if each.startswith(unfinished)]


def _seen(before: Sequence[str]) -> tuple[Command | None, str, Option[object] | None]:
    """The verb, or the first word of one, and the option that waits for its value."""
    command: Command | None = None
    group = ""
    waiting: Option[object] | None = None
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            options = (*(command.options if command is not None else ()), *flags.EVERYWHERE)
            named = (option for option in options if word in (option.flag, option.short) and option.metavar)
            waiting = next(named, None)
        elif command is None:
            name = f"{group} {word}".strip()
            command = next((each for each in table.COMMANDS if each.name == name), None)
            group = name
    return command, group, waiting


def _next_words(group: str) -> Iterator[str]:
    for commands in table.GROUPS.values():
        for command in commands:
            if command.name.startswith(f"{group} ".lstrip()):
                yield command.name.removeprefix(group).split()[0]
