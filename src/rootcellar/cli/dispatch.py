"""From a command line to the verb that carries it out.

Help imports no engine: a verb's module is imported when the verb is run.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

import rootcellar
from rootcellar.cli import flags, table
from rootcellar.cli import help as help_
from rootcellar.cli.arguments import Words, sort
from rootcellar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rootcellar.cli.console import Console


def dispatch(given: Sequence[str], console: Console, environ: Mapping[str, str] = os.environ) -> int:
    """Carry out a command line; the exit code.  Raises RootcellarError and whatever else stops the verb."""
    if given[:1] == ["help"]:
        given = [*given[1:], flags.HELP.flag]
    words = sort(given, table.COMMANDS, flags.EVERYWHERE)
    if flags.VERSION in words.given:
        console.lines([f"rootcellar {rootcellar.__version__}"])
        return 0
    if words.command is None or flags.HELP in words.given:
        console.out.write(_help(words, console))
        return 0
    context = Context(words, console, environ)
    console.output = context.arguments.need(flags.OUTPUT)
    console.quiet = context.arguments.has(flags.QUIET)
    module = import_module(words.command.module)
    code: int = module.run(context)
    return code


def _help(words: Words, console: Console) -> str:
    if words.command is not None:
        return help_.verb(words.command, flags.EVERYWHERE, console.out)
    if words.group:
        members = [command for command in table.COMMANDS if command.name.startswith(f"{words.group} ")]
        return help_.group(members, words.group, console.out)
    return help_.overview(table.GROUPS, flags.EVERYWHERE, console.out)
