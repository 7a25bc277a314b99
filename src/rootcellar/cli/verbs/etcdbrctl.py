"""`etcdbrctl`: this program in the place of etcd-backup-restore's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import rootcellar
from rootcellar.cli import flags
from rootcellar.cli.etcdbrctl import reading
from rootcellar.cli.etcdbrctl.sections import SUBCOMMANDS, Common
from rootcellar.logs import carry_notes, make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rootcellar.cli.console import Console
    from rootcellar.cli.context import Context
    from rootcellar.cli.etcdbrctl.reading import Configuration

_TALKATIVE = 5


def run(context: Context) -> int:
    """Read the command line as the reference would, and carry it out."""
    words, console = context.arguments.operands(flags.WORDS), context.console
    if words and words[0] in ("-v", "--version"):
        console.lines([f"rootcellar {rootcellar.__version__}, in the place of etcdbrctl"])
        return 0
    if not words or {"--help", "-h"} & set(words):
        console.lines(_help(words[0] if words and words[0] in SUBCOMMANDS else None))
        return 0
    configuration = reading.read(words)
    talkative = configuration.get(Common).log_level >= _TALKATIVE
    carry_notes(make_log(), logging.DEBUG if talkative else logging.INFO)
    for warning in configuration.warnings:
        console.warn(warning)
    return _handler(configuration.command)(configuration, console, context.environ)


def _handler(command: str) -> Callable[[Configuration, Console, Mapping[str, str]], int]:
    if command in ("restore", "initialize"):
        from rootcellar.cli.etcdbrctl import before  # noqa: PLC0415 - each imports what it needs

        return before.restore if command == "restore" else before.initialize_once
    if command in ("compact", "copy"):
        from rootcellar.cli.etcdbrctl import storing  # noqa: PLC0415 - as above

        return storing.fold if command == "compact" else storing.copy
    from rootcellar.cli.etcdbrctl.living import serve, snapshot  # noqa: PLC0415 - as above

    return serve if command == "server" else snapshot


def _help(command: str | None) -> Iterator[str]:
    if command is None:
        yield f"usage: rootcellar etcdbrctl {'|'.join(SUBCOMMANDS)} [FLAGS]"
        return
    yield f"usage: rootcellar etcdbrctl {command} [FLAGS]"
    for placed in SUBCOMMANDS[command]:
        for _, flag in placed.flags():
            note = f"; no effect here: {flag.idle}" if flag.idle else ""
            yield f"  --{flag.name} (default {flag.default!r}){note}"
