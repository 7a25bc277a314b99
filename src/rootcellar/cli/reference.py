"""The reference parts of the documentation, written from the tables: `python -m rootcellar.cli.reference
docs`.

What a person wrote in a page stays; what lies between the two marks is replaced.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import inspect

from rootcellar import errors
from rootcellar.backup.restore.plan import RestorePlan
from rootcellar.cli import flags, table
from rootcellar.cli.arguments import usage
from rootcellar.cli.console import API_VERSION
from rootcellar.cli.document import Document
from rootcellar.cli.help import described
from rootcellar.cli.help import flags as written
from rootcellar.cli.schema import File
from rootcellar.cli.verbs.config_schema import DRAFT, schema
from rootcellar.cli.verbs.config_schema import written as written_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.cli.options import Command, Option

Kind = TypeVar("Kind")

BEGIN = "<!-- what follows is generated: python -m rootcellar.cli.reference docs -->"
END = "<!-- end of what is generated -->"


def cli_reference() -> str:
    """All verbs, the options they share, the variables and the exit codes."""
    lines = ["## Verbs", ""]
    for title, commands in table.GROUPS.items():
        lines += [f"### {title[:1].upper()}{title[1:]}", ""]
        for command in commands:
            lines += _verb(command)
    lines += ["## Everywhere", "", *_options(flags.EVERYWHERE), ""]
    lines += ["## Reaching etcd", "", *_options(flags.CONNECTION), ""]
    lines += ["## Variables", "", "| variable | the same as |", "|---|---|", *_variables(), ""]
    lines += [
        "## Exit codes",
        "",
        "| code | `code` in JSON | what it means |",
        "|---|---|---|",
        *_exit_codes(),
    ]
    return "\n".join(lines)


def _verb(command: Command) -> Iterator[str]:
    yield f"#### `rootcellar {usage(command)}`"
    yield ""
    yield from (" ".join(part.split()) + "\n" for part in command.about.split("\n\n"))
    if command.operands or command.options:
        yield from (f"* `{operand.metavar}`: {operand.help}" for operand in command.operands)
        yield from _options(option for option in command.options if option not in flags.CONNECTION)
        if flags.ENDPOINTS in command.options:
            yield "* and how to [reach etcd](#reaching-etcd)"
        yield ""
    if command.examples:
        yield from ("```sh", *command.examples, "```", "")


def _options(options: Iterable[Option[object]]) -> Iterator[str]:
    for option in options:
        yield f"* `{written(option)}`: {described(option)}"


def _variables() -> Iterator[str]:
    options = {option.variable: option.flag for option in flags.EVERYWHERE if option.variable}
    for command in table.COMMANDS:
        options |= {option.variable: option.flag for option in command.options if option.variable}
    told = {name: f"`{flag}`" for name, flag in options.items()}
    told[flags.STORE_VARIABLE] = "STORE"
    told[flags.PASSWORD_VARIABLE] = "the password of `--user`; there is no flag for it"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in sorted(told.items()))


def _exit_codes() -> Iterator[str]:
    _import_verbs()
    yield "| 0 | | done |"
    yield "| 1 | `error` | a mistake in rootcellar, or an error of the operating system |"
    found: list[type[errors.RootcellarError]] = [errors.RootcellarError, *below(errors.RootcellarError)]
    for kind in sorted(found, key=lambda kind: kind.exit_code):
        meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
        yield f"| {kind.exit_code} | `{kind.code}` | {meaning} |"
    yield "| 130 | | interrupted (Ctrl-C) |"
    yield "| 141 | | whoever read the output closed it |"
    yield "| 143 | | terminated (SIGTERM) |"


def _import_verbs() -> None:
    """Have every class that a verb brings with it."""
    for command in table.COMMANDS:
        import_module(command.module)


def below(kind: type[Kind]) -> Iterator[type[Kind]]:
    """All that derives from a class."""
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def configuration_reference() -> str:
    """Every key of the file."""
    lines = ["## Keys", "", "| key | value | meaning |", "|---|---|---|"]
    lines += _keys(inspect.type_info(File), "")
    return "\n".join(lines)


def _keys(kind: inspect.Type, place: str) -> Iterator[str]:
    described_, kind = _unwrapped(kind)
    if isinstance(kind, inspect.VarTupleType):
        yield from _keys(kind.item_type, f"{place}[]")
    if not isinstance(kind, inspect.StructType):
        return
    for field in kind.fields:
        below = f"{place}.{field.encode_name}".lstrip(".")
        described_, inner = _unwrapped(field.type)
        item = _unwrapped(inner.item_type)[1] if isinstance(inner, inspect.VarTupleType) else inner
        struct = item.cls if isinstance(item, inspect.StructType) else None
        meaning = described_ or (struct.__doc__ or "" if struct is not None else "")
        default = "" if field.required or struct is not None else _default(field)
        told = f"{' '.join(meaning.split())}{default}".strip()
        yield f"| `{below}` | {_kind(inner)} | {told} |"
        yield from _keys(field.type, below)


def _unwrapped(kind: inspect.Type) -> tuple[str, inspect.Type]:
    """A description, and the type without it and without null."""
    description = ""
    while True:
        if isinstance(kind, inspect.Metadata):
            extra = kind.extra_json_schema or {}
            description = description or str(extra.get("description", ""))
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        else:
            return description, kind


def _kind(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.VarTupleType):
        return f"list of {_kind(_unwrapped(kind.item_type)[1])}"
    if isinstance(kind, inspect.StructType):
        return "table"
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    return "number" if isinstance(kind, inspect.IntType) else "text"


def _default(field: inspect.Field) -> str:
    value = field.default
    if value in (None, False, (), "") or value is msgspec.NODEFAULT:
        return ""
    return f" (default `{value}`)"


def replaced(page: str, part: str) -> str:
    """`page` with `part` between its marks.  Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no place for what is generated")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def output_schema() -> str:
    """The JSON Schema of everything that --output json writes, as JSON."""
    _import_verbs()
    kinds: list[type[Document]] = sorted(below(Document), key=lambda kind: kind.__name__)
    items = [kind.ITEMS for kind in kinds if kind.ITEMS is not None]
    _, parts = msgspec.json.schema_components([*kinds, *items, RestorePlan])
    for kind in kinds:
        members = parts[kind.__name__]
        if kind.ITEMS is not None:
            ref = {"$ref": f"#/$defs/{kind.ITEMS.__name__}"}
            members["properties"]["items"] = {"type": "array", "items": ref}
            members["required"].append("items")
        members["properties"]["apiVersion"] = {"const": API_VERSION}
        members["required"].append("apiVersion")
    names = [*(kind.__name__ for kind in kinds), RestorePlan.__name__]
    refs = [{"$ref": f"#/$defs/{name}"} for name in names]
    return written_schema({"$schema": DRAFT, "anyOf": refs, "$defs": dict(sorted(parts.items()))})


PAGES = {"cli.md": cli_reference, "configuration.md": configuration_reference}


SCHEMAS = {"config.schema.json": schema, "output.schema.json": output_schema}


def write(docs: Path) -> None:
    """Bring the pages up to date."""
    for name, reference in PAGES.items():
        page = docs / name
        page.write_text(replaced(page.read_text("utf-8"), reference()), "utf-8")
    for name, text in SCHEMAS.items():
        (docs / name).write_text(text(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
