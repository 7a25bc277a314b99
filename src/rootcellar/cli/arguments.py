"""From words to a verb and its values.

The grammar is the usual one: `--flag VALUE` or `--flag=VALUE`, one-letter flags where declared, options and
operands in any order, `--` before operands that begin with a dash.  Nothing is abbreviated: a script must not
change its meaning because an option was added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rootcellar.cli.options import Command, Operand, Option

T = TypeVar("T")


@dataclass(slots=True)
class Words:
    """A command line, sorted but not yet understood: flags and what was written behind them, operands."""

    command: Command | None = None
    group: str = ""
    given: dict[Option[object], list[str]] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)


def sort(words: Sequence[str], commands: Sequence[Command], everywhere: Sequence[Option[object]]) -> Words:
    """Find the verb, its flags and its operands.  Raises UsageError.

    `everywhere` are the options that every verb has; they may stand before it.  Without a verb `command` is
    None, and `group` is the first word of one that needs a second.
    """
    found = Words()
    flags = _by_flag(everywhere)
    rest = iter(words)
    for word in rest:
        if word == "--":
            found.operands.extend(rest)
        elif word.startswith("-") and word != "-":
            _take_flag(word, rest, flags, found)
        elif found.command is not None:
            found.operands.append(word)
        else:
            command = _take_verb(word, commands, found)
            if command is not None:
                flags = _by_flag((*command.options, *everywhere))
                if command.raw:
                    found.operands.extend(rest)
    return found


def _by_flag(options: Iterable[Option[object]]) -> dict[str, Option[object]]:
    return {flag: option for option in options for flag in (option.flag, option.short) if flag}


def _take_verb(word: str, commands: Sequence[Command], found: Words) -> Command | None:
    name = f"{found.group} {word}".strip()
    for command in commands:
        if command.name == name:
            found.command = command
            return command
    if not found.group and any(command.name.startswith(f"{name} ") for command in commands):
        found.group = name
        return None
    there = [command.name for command in commands if command.name.startswith(found.group)]
    near = get_close_matches(name, there, 1)
    help_ = f"rootcellar {found.group} --help".replace("  ", " ")
    raise UsageError(
        f"there is no verb {name!r}",
        hint=f"did you mean {near[0]}?" if near else f"{help_} lists what there is",
    )


def _take_flag(word: str, rest: Iterator[str], flags: Mapping[str, Option[object]], found: Words) -> None:
    flag, has_value, value = word.partition("=")
    option = flags.get(flag)
    if option is None:
        raise _unknown(flag, flags, found)
    if not option.metavar:
        if has_value:
            raise UsageError(f"{flag} takes no value", hint=option.help)
    elif not has_value:
        following = next(rest, None)
        if following is None:
            raise UsageError(f"{flag} needs a value", hint=f"write {flag} {option.metavar}: {option.help}")
        value = following
    given = found.given.setdefault(option, [])
    if given and option.metavar and not option.repeated:
        raise UsageError(f"{flag} is given twice", hint=option.help)
    given.append(value)


def _unknown(flag: str, flags: Mapping[str, Option[object]], found: Words) -> UsageError:
    verb = found.command.name if found.command is not None else found.group
    near = get_close_matches(flag, flags, 1)
    help_ = f"rootcellar {verb} --help".replace("  ", " ")
    if near:
        hint = f"did you mean {near[0]}?"
    elif not verb:
        hint = "options of a verb come behind it"
    else:
        hint = f"{help_} lists what there is"
    return UsageError(f"{verb} has no option {flag}" if verb else f"no option {flag}", hint=hint)


class Arguments:
    """What a verb was given, each value from the first source that has one.

    `setting` looks a place of the configuration up; it is called only where the flag and the variable are
    silent, so that a broken file never stands in the way of a command line that says everything.
    """

    def __init__(
        self,
        words: Words,
        environ: Mapping[str, str],
        setting: Callable[[str], str | None],
    ) -> None:
        self._given = words.given
        self._environ = environ
        self._setting = setting
        self._operands: dict[Operand[object], list[str]] = {}
        if words.command is not None:
            self._operands = _place(words.command, words.operands)

    def get(self, option: Option[T]) -> T | None:
        """The value, or None where no source has one.  Raises UsageError, ConfigError."""
        if option in self._given:
            return option.read(self._given[option][-1], option.flag)
        if (written := self._environ.get(option.variable)) and option.variable:
            return option.read(written, option.variable)
        if option.setting and (written := self._setting(option.setting)) is not None:
            return option.read(written, f"{option.setting} in the configuration")
        return option.read(option.default, option.flag) if option.default else None

    def need(self, option: Option[T]) -> T:
        """The value.  Raises UsageError where no source has one."""
        value = self.get(option)
        if value is None:
            also = f" (or {option.variable})" if option.variable else ""
            raise UsageError(
                f"{option.flag} is needed", hint=f"{option.flag} {option.metavar}{also}: {option.help}"
            )
        return value

    def all(self, option: Option[T]) -> tuple[T, ...]:
        """The values of an option that may be repeated."""
        return tuple(option.read(value, option.flag) for value in self._given.get(option, ()))

    def has(self, option: Option[object]) -> bool:
        """Whether the flag was given."""
        return option in self._given

    def operand(self, operand: Operand[T]) -> T | None:
        """An operand, or None where it was left out."""
        for word in self._operands.get(operand, ()):
            return self._read(operand, word)
        return None

    def needed(self, operand: Operand[T]) -> T:
        """An operand that cannot be left out."""
        return self._read(operand, self._operands[operand][0])

    def operands(self, operand: Operand[T]) -> tuple[T, ...]:
        """An operand that may be repeated."""
        return tuple(self._read(operand, word) for word in self._operands.get(operand, ()))

    def _read(self, operand: Operand[T], word: str) -> T:
        try:
            return operand.parse(word)
        except ValueError as error:
            raise UsageError(f"{operand.metavar} is {word!r}, {error}", hint=operand.help) from error


def _place(command: Command, words: Sequence[str]) -> dict[Operand[object], list[str]]:
    """Give each word to its operand: where there is a word less than operands, the optional one has none."""
    wanted = list(command.operands)
    needed = [operand for operand in wanted if not operand.optional]
    repeats = bool(wanted) and wanted[-1].repeated
    form = f"rootcellar {usage(command)}"
    if len(words) < len(needed):
        raise UsageError(f"{needed[len(words)].metavar} is missing", hint=f"write {form}")
    if len(words) > len(wanted) and not repeats:
        raise UsageError(f"{words[len(wanted)]!r} is one word too many", hint=f"write {form}")
    if len(words) == len(needed) and len(wanted) > len(needed):
        wanted = needed
    placed = {operand: [word] for operand, word in zip(wanted, words, strict=False)}
    if wanted and repeats:
        placed[wanted[-1]] = list(words[len(wanted) - 1 :])
    return placed


def usage(command: Command) -> str:
    """The verb with its operands, as help writes it."""
    words = [command.name]
    for operand in command.operands:
        shown = f"[{operand.metavar}]" if operand.optional else operand.metavar
        words.append(f"{shown}..." if operand.repeated else shown)
    return " ".join(words)
