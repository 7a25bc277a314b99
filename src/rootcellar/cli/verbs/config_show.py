"""`config show`: what is in force, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.cli import flags
from rootcellar.cli.configuration import masked
from rootcellar.cli.document import Document
from rootcellar.cli.table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rootcellar.cli.context import Context

_BLOTTED = "***"


class ConfigurationShown(Document, frozen=True):
    """The file as it is written, and the variables that go above it."""

    path: str | None
    file: dict[str, Any]
    environment: dict[str, str]


def run(context: Context) -> int:
    """Show both."""
    configuration = context.configuration
    shown = ConfigurationShown(
        path=str(configuration.path) if configuration.path is not None else None,
        file=masked(dict(configuration.written)),
        environment=dict(_heard(context.environ)),
    )
    if context.console.is_text:
        context.console.lines(_lines(shown))
    else:
        context.console.document(shown)
    return 0


def _heard(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that are set and mean something; what looks like ours and is not, too."""
    options = {option.variable for command in COMMANDS for option in command.options if option.variable}
    options |= {option.variable for option in flags.EVERYWHERE if option.variable} | {flags.STORE_VARIABLE}
    for name, value in sorted(environ.items()):
        if name == flags.PASSWORD_VARIABLE:
            yield name, _BLOTTED
        elif name in options:
            yield name, value
        elif name.startswith("ROOTCELLAR_"):
            yield name, "(means nothing)"


def _lines(shown: ConfigurationShown) -> Iterator[str]:
    yield f"# {shown.path}" if shown.path is not None else "# no configuration file"
    if shown.file:
        yield yaml.safe_dump(shown.file, sort_keys=False, allow_unicode=True).rstrip()
    if shown.environment:
        yield "# environment, above the file"
        yield from (f"# {name}={value}" for name, value in shown.environment.items())
