"""From a command line, or the file it names, to typed sections.

`--flag=value` and `--flag value`, one-letter flags, Go's durations and booleans.  As in the reference the
file of `--config-file` replaces all flags.  Unlike there, what is not known in it is told, and so is every
flag that means nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from rootcellar.cli.etcdbrctl.sections import SUBCOMMANDS, Common, Flag, FromFile, Placed
from rootcellar.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

T = TypeVar("T")
_OLD_KEYS = {"restoredatadir": "datadir", "tempsnapshotsdir": "tempdir"}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subcommand with all its values.  `given` are the names of the flags that were said."""

    command: str
    sections: Mapping[tuple[type[Any], str], Any]
    given: frozenset[str]
    warnings: tuple[str, ...]

    def get(self, section: type[T], before: str = "") -> T:
        """One section's values."""
        found = self.sections[section, before]
        assert isinstance(found, section)  # noqa: S101  the mapping is made by section
        return found


def read(words: Sequence[str]) -> Configuration:
    """Raises UsageError, ConfigError."""
    command = words[0] if words else ""
    if command not in SUBCOMMANDS:
        near = get_close_matches(command, SUBCOMMANDS, 1)
        raise UsageError(
            f"etcdbrctl has no command {command!r}" if command else "etcdbrctl needs a command",
            hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(SUBCOMMANDS)}",
        )
    placed = SUBCOMMANDS[command]
    given = _sorted(words[1:], command, placed)
    warnings: list[str] = []
    if "config-file" in given:
        path = Path(given.pop("config-file")[-1])
        ignored = sorted(set(given) - {"log-level"})
        if ignored:
            names = ", ".join(f"--{name}" for name in ignored)
            warnings.append(f"--config-file replaces all flags: {names} are not heard")
        given = {name: given[name] for name in given if name == "log-level"}
        given |= _from_file(path, placed, warnings)
    sections = {}
    for each in placed:
        values = {attribute: _value(flag, given.get(flag.name)) for attribute, flag in each.flags()}
        sections[each.section, each.before] = each.section(**values)
        warnings += [
            f"--{flag.name} has no effect here: {flag.idle}"
            for _, flag in each.flags()
            if flag.idle
            and not flag.usual
            and flag.name in given
            and given[flag.name][-1] not in (flag.default, flag.moot)
        ]
    return Configuration(command, sections, frozenset(given), tuple(warnings))


def _value(flag: Flag, given: Sequence[str] | None) -> Any:
    written = flag.default if given is None else ",".join(given) if flag.many else given[-1]
    try:
        return flag.parse(written)
    except ValueError as error:
        raise UsageError(
            f"--{flag.name} is {written!r}, {error}", hint=f"the default is {flag.default!r}"
        ) from error


def _sorted(words: Sequence[str], command: str, placed: Sequence[Placed]) -> dict[str, list[str]]:
    flags = {flag.name: flag for each in placed for _, flag in each.flags()}
    shorts = {flag.short: flag for flag in flags.values() if flag.short}
    given: dict[str, list[str]] = {}
    rest = list(words)[::-1]
    while rest:
        word = rest.pop()
        name, equals, value = word.partition("=")
        flag = flags.get(name[2:]) if name.startswith("--") else None
        if flag is None and len(name) >= 2 and name[0] == "-" and name[1] != "-":
            flag = shorts.get(name[1])
            if flag is not None and name[2:]:  # -d/path, as pflag has it
                equals, value = "=", word[2:]
        if flag is None:
            raise _unknown(word, command, flags)
        if not equals:
            if flag.is_switch:
                value = rest.pop() if rest and _is_boolean(flag, rest[-1]) else "true"
            elif rest:
                value = rest.pop()
            else:
                raise UsageError(f"--{flag.name} needs a value", hint=f"the default is {flag.default!r}")
        given.setdefault(flag.name, []).append(value)
    return given


def _is_boolean(flag: Flag, word: str) -> bool:
    try:
        flag.parse(word)
    except ValueError:
        return False
    return True


def _unknown(word: str, command: str, flags: Mapping[str, Flag]) -> UsageError:
    if not word.startswith("-"):
        return UsageError(f"{word!r} is one word too many", hint=f"etcdbrctl {command} takes flags alone")
    near = get_close_matches(word.lstrip("-").partition("=")[0], flags, 1)
    return UsageError(
        f"etcdbrctl {command} has no flag {word.partition('=')[0]}",
        hint=f"did you mean --{near[0]}?" if near else f"rootcellar etcdbrctl {command} --help lists them",
    )


def _from_file(path: Path, placed: Sequence[Placed], warnings: list[str]) -> dict[str, list[str]]:
    """What a configuration file says, as flags would have said it.  Names in it are as Go reads them: in
    whatever case.
    """
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is neither YAML nor JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no mapping", hint="it has sections such as snapstoreConfig")
    known: dict[tuple[str, str], Flag] = {}
    for each in placed:
        for _, flag in each.flags():
            if each.section not in (Common, FromFile):
                known[_plain(each.key), _plain(flag.key)] = flag
    given: dict[str, list[str]] = {}
    for section, key, value in _entries(document, {section for section, _ in known}):
        found = known.get((_plain(section), _OLD_KEYS.get(_plain(key), _plain(key))))
        place = f"{section}.{key}" if section else key
        if found is None:
            near = get_close_matches(
                _plain(key), [name for where, name in known if where == _plain(section)], 1
            )
            told = f" (did you mean {near[0]}?)" if near else ""
            warnings.append(f"{path} has {place}, which is not known{told}")
        else:
            given[found.name] = _written(value, place)
    return given


def _entries(document: Mapping[Any, Any], sections: set[str]) -> Iterator[tuple[str, str, Any]]:
    for name, value in document.items():
        if _plain(str(name)) in sections and isinstance(value, dict):
            yield from ((str(name), str(key), each) for key, each in value.items())
        else:
            yield "", str(name), value


def _written(value: object, place: str) -> list[str]:
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, list):
        return [str(each) for each in value]
    if isinstance(value, str | int | float):
        return [str(value)]
    raise ConfigError(f"{place} is {value!r}", hint="it should be a word, a number or a list")


def _plain(key: str) -> str:
    return key.replace("-", "").lower()
