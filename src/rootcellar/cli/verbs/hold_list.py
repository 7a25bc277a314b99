"""`hold list`: what is kept, by whom, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.cli import columns, sources
from rootcellar.cli.document import Document
from rootcellar.cli.held import HeldPart

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


class Holds(Document, frozen=True):
    """The holds in force."""

    store: str
    holds: tuple[HeldPart, ...]


def run(context: Context) -> int:
    """List them."""
    console = context.console
    store = sources.readable(context)
    holds = sorted(read_catalogue(store).holds, key=lambda hold: hold.created_at)
    if not console.is_text:
        console.document(Holds(store=store.url, holds=tuple(map(HeldPart.of, holds))))
        return 0
    rows = [
        (hold.nonce, columns.short_date(hold.created_at), hold.by, hold.key, hold.reason) for hold in holds
    ]
    console.lines(columns.table(("HOLD", "SINCE (UTC)", "BY", "OBJECT", "REASON"), rows))
    if not rows:
        console.note("nothing is held")
    return 0
