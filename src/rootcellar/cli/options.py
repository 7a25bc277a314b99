"""What an option is.

An option is declared once, in `table`, and that declaration parses the command line, reads the environment
and the configuration, and writes the help, the reference page and the shell completion.  A value comes from
the first of these that has one: the flag, the variable, the configuration, the default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Generic, TypeVar

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T_co]):
    """An option with a value.  `parse` raises ValueError with the words that finish "VALUE is ...".

    `env`: also read from `ROOTCELLAR_...`.  `flag` is empty for what may only come from the environment.
    `setting` is the place in the configuration, such as `etcd.tls.ca`.  `default` is written as a person
    would.
    """

    flag: str
    parse: Callable[[str], T_co]
    metavar: str
    help: str
    short: str = ""
    repeated: bool = False
    env: bool = False
    setting: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The flag without its dashes."""
        return self.flag.lstrip("-")

    @property
    def variable(self) -> str:
        """The environment variable, or "" where there is none."""
        return f"ROOTCELLAR_{self.name.replace('-', '_').upper()}" if self.env else ""

    def read(self, value: str, source: str) -> T_co:
        """The value that was written in `source`.  Raises UsageError."""
        try:
            return self.parse(value)
        except ValueError as error:
            shown = "" if not value else f"{value!r}, "
            raise UsageError(f"{source} is {shown}{error}", hint=self.help) from error


def switch(flag: str, help: str, *, short: str = "") -> Option[bool]:  # noqa: A002 - as in Option
    """An option without a value."""
    return Option(flag, lambda _: True, "", help, short=short)


@dataclass(frozen=True, slots=True, eq=False)
class Operand(Generic[T_co]):
    """A word without a dash, known by its place.  One of a verb may be left out, and the last repeat."""

    metavar: str
    parse: Callable[[str], T_co]
    help: str
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """A verb: one word, or two (`snapshot full`).  `rootcellar.cli.verbs` has a module for it, with `run`.

    `raw`: it reads its own words, as another program would; all behind it are operands.
    """

    name: str
    summary: str
    about: str
    operands: tuple[Operand[object], ...] = ()
    options: tuple[Option[object], ...] = ()
    examples: tuple[str, ...] = ()
    raw: bool = False

    @property
    def module(self) -> str:
        """Where it is carried out."""
        name = re.sub("[ -]", "_", self.name)
        return f"rootcellar.cli.verbs.{name}{'_' if iskeyword(name) else ''}"
