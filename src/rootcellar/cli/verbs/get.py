"""`get`: one value out of a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.extract import text
from rootcellar.cli import columns, flags
from rootcellar.cli.document import Document
from rootcellar.cli.looking import KeyShown, base64, lease, opened
from rootcellar.cli.outfile import private
from rootcellar.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.browse.browse import Found, Opened
    from rootcellar.cli.context import Context


class Value(Document, frozen=True):
    """A key with its value at `revision`; a value that is no text is in `valueBase64`."""

    origin: str
    revision: int
    item: KeyShown
    value: str | None
    value_base64: str | None


def run(context: Context) -> int:
    """Into a pipe or a file goes the value and nothing else; a person is shown what it is, too."""
    arguments, console = context.arguments, context.console
    key, out = arguments.needed(flags.KEY), arguments.get(flags.OUT)
    with opened(context) as backup:
        found = browse.get(backup, key)
        if found is None:
            raise NotFoundError(
                f"there is no key {columns.key(key)} at revision {backup.revision}",
                hint="`rootcellar history` shows when it came and went, `rootcellar keys` what is there",
            )
        if out is not None:
            with private(out) as file:
                file.write(found.record.value)
        elif not console.is_text:
            console.document(_document(backup, found))
        elif console.out.is_terminal:
            console.lines(_shown(found))
        else:
            console.out.write_bytes(found.record.value)
    return 0


def _document(backup: Opened, found: Found) -> Value:
    return Value(
        origin=backup.origin,
        revision=backup.revision,
        item=KeyShown.of(found.record),
        value=text(found.record.value),
        value_base64=base64(found.record.value),
    )


def _shown(found: Found) -> Iterator[str]:
    record = found.record
    leased = f", lease {lease(record)}" if record.lease else ""
    written = f"created at {record.create_revision}, modified at {record.mod_revision}"
    yield f"{written}, version {record.version}{leased}"
    if found.kubernetes is not None:
        yield f"Kubernetes: {found.kubernetes}"
    value = text(record.value)
    if value is None:
        yield f"{columns.size(len(record.value))} that are no text: say -o FILE, or send them into a pipe"
    else:
        yield value
