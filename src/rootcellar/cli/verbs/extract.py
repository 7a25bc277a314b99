"""`extract`: keys and values out of a backup, for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.extract import lines, tree
from rootcellar.cli import columns, flags
from rootcellar.cli.document import Document
from rootcellar.cli.looking import opened, within
from rootcellar.cli.outfile import private
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rootcellar.backup.browse.browse import Found
    from rootcellar.cli.context import Context


class Extracted(Document, frozen=True):
    """What was written, and where; not said when the keys themselves go to stdout."""

    origin: str
    revision: int
    format: str
    path: str
    keys: int


def run(context: Context) -> int:
    """Write them as they are read."""
    arguments, console = context.arguments, context.console
    form, out = arguments.need(flags.FORMAT), arguments.get(flags.OUT)
    with_values = not arguments.has(flags.NO_VALUES)
    if form == "raw" and (out is None or not with_values):
        raise UsageError(
            "--format raw writes values into files",
            hint="name a directory with -o DIR, and leave out --no-values",
        )
    with opened(context) as backup:
        found = browse.keys(backup, within(arguments), arguments.get(flags.LIMIT))
        if out is None:
            for line in lines(found, values=with_values):
                console.out.write_bytes(line)
            return 0
        if form == "raw":
            count = sum(1 for _ in tree(found, out))
        else:
            count = _write(found, out, with_values=with_values)
        if console.is_text:
            console.note(f"{columns.plural(count, 'key')} at revision {backup.revision} written to {out}")
        else:
            console.document(
                Extracted(
                    origin=backup.origin, revision=backup.revision, format=form, path=str(out), keys=count
                )
            )
    return 0


def _write(found: Iterable[Found], path: Path, *, with_values: bool) -> int:
    count = 0
    with private(path) as file:
        for line in lines(found, values=with_values):
            file.write(line)
            count += 1
    return count
