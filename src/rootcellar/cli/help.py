"""Help, written from the tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rootcellar.cli.arguments import usage
from rootcellar.cli.columns import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rootcellar.cli.console import Stream
    from rootcellar.cli.options import Command, Option

_WIDEST = 100
_USUAL = 80
_MARGIN = 2
_LEFT = 28


def width() -> int:
    """Columns to use: the terminal's, but no more than can be read."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return min(int(said), _WIDEST)
    try:
        return min(os.get_terminal_size(1).columns or _USUAL, _WIDEST)  # 1: stdout, as shutil does it
    except OSError:
        return _USUAL


def overview(groups: dict[str, Sequence[Command]], everywhere: Sequence[Option[object]], out: Stream) -> str:
    """What `rootcellar --help` says."""
    lines = ["Backup, proof and restore for etcd.", "", "usage: rootcellar VERB [STORE] ..."]
    for title, commands in groups.items():
        lines += ["", out.style(title, "bold")]
        for command in commands:
            lines += _entry(command.name, command.summary)
    lines += ["", out.style("everywhere", "bold"), *_options(everywhere)]
    lines += [
        "",
        *wrapped(
            "A STORE is a URL (file:///path, s3://bucket/prefix?region=...), @NAME from the configuration, "
            "or a path; without one, ROOTCELLAR_STORE or the configuration's first store is meant.  "
            "`rootcellar VERB --help` says more.",
            width(),
        ),
    ]
    return "\n".join(lines) + "\n"


def group(commands: Sequence[Command], word: str, out: Stream) -> str:
    """What the first word of two-word verbs says."""
    lines = [f"usage: rootcellar {word} VERB ...", "", out.style("verbs", "bold")]
    for command in commands:
        lines += _entry(command.name, command.summary)
    return "\n".join(lines) + "\n"


def verb(command: Command, everywhere: Sequence[Option[object]], out: Stream) -> str:
    """What `rootcellar VERB --help` says."""
    options = " [OPTIONS]" if command.options else ""
    lines = [f"usage: rootcellar {usage(command)}{options}", "", *wrapped(command.about, width())]
    if command.operands:
        lines += ["", out.style("operands", "bold")]
        for operand in command.operands:
            lines += _entry(operand.metavar, operand.help)
    if command.options:
        lines += ["", out.style("options", "bold"), *_options(command.options)]
    if command.examples:
        lines += [
            "",
            out.style("examples", "bold"),
            *(f"{'':{_MARGIN}}{example}" for example in command.examples),
        ]
    lines += ["", out.style("everywhere", "bold"), *_options(everywhere)]
    return "\n".join(lines) + "\n"


def _options(options: Sequence[Option[object]]) -> Iterator[str]:
    for option in options:
        if option.flag:
            yield from _entry(flags(option), described(option))


def flags(option: Option[object]) -> str:
    """`-o, --out FILE`."""
    names = ", ".join(filter(None, (option.short, option.flag)))
    return f"{names} {option.metavar}".rstrip()


def described(option: Option[object]) -> str:
    """What an option means, and where else its value may come from."""
    notes = [option.variable, option.setting and f"{option.setting} in the configuration"]
    if option.default:
        notes.append(f"default {option.default}")
    if option.repeated:
        notes.append("repeatable")
    told = "; ".join(note for note in notes if note)
    return f"{option.help} [{told}]" if told else option.help


def _entry(left: str, right: str) -> Iterator[str]:
    """One thing and what it is, in two columns; the left one is never cut."""
    room = max(width() - _LEFT, 20)
    lines = list(wrapped(right, room))
    start = f"{'':{_MARGIN}}{left}"
    if len(start) > _LEFT - 2:
        yield start
        yield from (f"{'':{_LEFT}}{line}" for line in lines)
        return
    yield f"{start:{_LEFT}}{lines[0] if lines else ''}".rstrip()
    yield from (f"{'':{_LEFT}}{line}" for line in lines[1:])
