"""`hold release`: lift a hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.ledger import release_hold
from rootcellar.cli import flags, sources
from rootcellar.cli.held import Held
from rootcellar.cli.identity import whoami
from rootcellar.errors import NotFoundError

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


def run(context: Context) -> int:
    """Write a release; the hold stays where it is, for who held what is worth knowing."""
    arguments, console = context.arguments, context.console
    store = sources.writable(context)
    wanted = arguments.needed(flags.HOLD)
    hold = next((each for each in read_catalogue(store).holds if each.nonce == wanted), None)
    if hold is None:
        raise NotFoundError(f"there is no hold {wanted} in force", hint="`rootcellar hold list` shows them")
    release_hold(store, hold, reason=arguments.need(flags.REASON), by=whoami(), now=datetime.now(UTC))
    if console.is_text:
        console.lines([f"{hold.key} is no longer held by {hold.nonce}"])
    else:
        console.document(Held.of(hold))
    return 0
