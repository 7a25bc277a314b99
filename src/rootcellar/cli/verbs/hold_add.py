"""`hold add`: forbid that a chain is ever pruned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.ledger import write_hold
from rootcellar.cli import flags, sources
from rootcellar.cli.held import Held
from rootcellar.cli.identity import whoami
from rootcellar.cli.window import find

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


def run(context: Context) -> int:
    """Write a hold."""
    arguments, console = context.arguments, context.console
    store = sources.writable(context)
    full = find(read_catalogue(store), arguments.needed(flags.OBJECT))
    hold = write_hold(
        store,
        full,
        reason=arguments.need(flags.REASON),
        by=whoami(),
        now=datetime.now(UTC),
        through=arguments.get(flags.THROUGH),
    )
    if console.is_text:
        console.lines([f"{hold.key} is held: hold {hold.nonce}"])
    else:
        console.document(Held.of(hold))
    return 0
