"""`key add-recipient`: let another key open what is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.objects.sealing.grants import add_recipient
from rootcellar.backup.objects.sealing.keyring import parse_recipients
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document
from rootcellar.cli.identity import whoami
from rootcellar.cli.sealing import keyring

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


class KeyGranted(Document, frozen=True):
    """Which snapshots the key opens now that it did not open before, by their keys."""

    store: str
    key_id: str
    granted: tuple[str, ...]
    encrypted: int


def run(context: Context) -> int:
    """Write a grant for each snapshot that lacks one."""
    store = sources.writable(context)
    (recipient,) = parse_recipients([context.arguments.needed(flags.RECIPIENT)])
    catalogue = read_catalogue(store)
    granted = add_recipient(
        store, catalogue, recipient, keyring(context, store), by=whoami(), now=datetime.now(UTC)
    )
    shown = KeyGranted(
        store=store.url,
        key_id=recipient.key_id,
        granted=tuple(each.name.key for each in granted),
        encrypted=sum(each.name.is_encrypted for each in catalogue.snapshots),
    )
    if not context.console.is_text:
        context.console.document(shown)
        return 0
    many = columns.plural(len(granted), "snapshot")
    context.console.lines([f"key {shown.key_id} now opens {many} more, of {shown.encrypted} encrypted ones"])
    context.console.note("to have it open those to come, add it to `encryption.recipients` of the store")
    return 0
