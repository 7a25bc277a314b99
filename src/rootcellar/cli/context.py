"""What a verb is run with."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from rootcellar.cli import flags
from rootcellar.cli.arguments import Arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli.arguments import Words
    from rootcellar.cli.configuration import Configuration
    from rootcellar.cli.console import Console


class Context:
    """The arguments of a verb, the configuration behind them, and the console to talk to."""

    def __init__(self, words: Words, console: Console, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ
        self._words = words
        self.arguments = Arguments(words, environ, self._setting)
        self.console = console

    def again(self) -> Context:
        """The same command line, with the configuration as it is by now."""
        return Context(self._words, self.console, self.environ)

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration file, read when something is asked of it.  Raises ConfigError."""
        from rootcellar.cli import configuration  # noqa: PLC0415 - many a command line needs none

        return configuration.read(configuration.find(self.arguments.get(flags.CONFIG)))

    def _setting(self, place: str) -> str | None:
        return self.configuration.setting(place)
