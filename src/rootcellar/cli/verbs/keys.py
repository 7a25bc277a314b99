"""`keys`: the keys that a backup holds at a point."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from rootcellar.backup.browse import browse
from rootcellar.cli import columns, flags
from rootcellar.cli.document import Document, stream
from rootcellar.cli.looking import KeyShown, lease, opened, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.backup.browse.browse import Found
    from rootcellar.cli.context import Context

_BATCH = 500
"""Rows whose columns are aligned together: all of them may be millions."""


class Keys(Document, frozen=True):
    """What stands above the keys."""

    ITEMS: ClassVar[type | None] = KeyShown
    origin: str
    revision: int


def run(context: Context) -> int:
    """List them as they are read."""
    arguments, console = context.arguments, context.console
    with opened(context) as backup:
        found = browse.keys(backup, within(arguments), arguments.get(flags.LIMIT))
        if not console.is_text:
            head = Keys(origin=backup.origin, revision=backup.revision)
            stream(console, head, (KeyShown.of(each.record) for each in found))
        elif arguments.has(flags.LONG):
            console.lines(_long(found))
        else:
            console.lines(columns.key(each.record.key) for each in found)
    return 0


def _long(found: Iterable[Found]) -> Iterator[str]:
    """Rows in batches, so that the first come at once and none is waited for."""
    rows = iter(found)
    while batch := list(islice(rows, _BATCH)):
        yield from columns.table(
            ("MODIFIED", "VERSION", "SIZE", "LEASE", "KEY", "KUBERNETES"), map(_row, batch), right=(0, 1, 2)
        )


def _row(found: Found) -> tuple[str, ...]:
    record = found.record
    return (
        str(record.mod_revision),
        str(record.version),
        columns.size(len(record.value)),
        lease(record) or "-",
        columns.key(record.key),
        str(found.kubernetes or ""),
    )
