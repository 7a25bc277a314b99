"""`sizes`: what takes the space in a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.browse.extract import text
from rootcellar.backup.browse.sizes import sizes
from rootcellar.cli import columns, flags
from rootcellar.cli.document import Document, Part
from rootcellar.cli.looking import base64, opened

if TYPE_CHECKING:
    from rootcellar.backup.browse.sizes import Size
    from rootcellar.cli.context import Context


class Group(Part, frozen=True, omit_defaults=True, kw_only=True):
    """The keys below a prefix; without one, all that were too many to tell apart.  Sizes are in bytes."""

    prefix: str | None = None
    prefix_base64: str | None = None
    live_keys: int
    live_bytes: int
    history_rows: int
    history_bytes: int


class Sizes(Document, frozen=True):
    """Groups, the largest first.  `file_bytes` is the whole database, with free pages and bbolt's own."""

    origin: str
    revision: int
    file_bytes: int
    groups: tuple[Group, ...]


def run(context: Context) -> int:
    """Count by prefix."""
    arguments, console = context.arguments, context.console
    with opened(context) as backup:
        depth = arguments.need(flags.DEPTH)
        found = sizes(backup.keyspace, arguments.get(flags.PREFIX) or b"", depth=depth)
        shown = found[: arguments.get(flags.LIMIT)]
        if not console.is_text:
            console.document(
                Sizes(
                    origin=backup.origin,
                    revision=backup.revision,
                    file_bytes=backup.file.size,
                    groups=tuple(map(_group, shown)),
                )
            )
            return 0
        header = ("TOTAL", "LIVE", "KEYS", "HISTORY", "ROWS", "PREFIX")
        console.lines(columns.table(header, map(_row, shown), right=(0, 1, 2, 3, 4)))
        total = sum(each.total_bytes for each in found)
        console.note(f"{columns.size(total)} of rows in a database of {columns.size(backup.file.size)}")
    return 0


def _group(size: Size) -> Group:
    return Group(
        prefix=None if size.prefix is None else text(size.prefix),
        prefix_base64=None if size.prefix is None else base64(size.prefix),
        live_keys=size.live_keys,
        live_bytes=size.live_bytes,
        history_rows=size.history_rows,
        history_bytes=size.history_bytes,
    )


def _row(size: Size) -> tuple[str, ...]:
    return (
        columns.size(size.total_bytes),
        columns.size(size.live_bytes),
        columns.number(size.live_keys),
        columns.size(size.history_bytes),
        columns.number(size.history_rows),
        "(all others)" if size.prefix is None else columns.key(size.prefix),
    )
