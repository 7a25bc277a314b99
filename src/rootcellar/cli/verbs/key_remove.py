"""`key remove`: take back what `key add-recipient` gave, and say what it does not take back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.objects.sealing.grants import remove_recipient
from rootcellar.backup.objects.sealing.keyring import parse_recipients
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document

if TYPE_CHECKING:
    from rootcellar.cli.context import Context

_KEY_ID = re.compile(r"[0-9a-f]{16}\Z")


class KeyRemoved(Document, frozen=True):
    """`removed` no longer open with the key; `locked` do, because the store keeps their grants; `written_for`
    it do until they are pruned.
    """

    store: str
    key_id: str
    removed: tuple[str, ...]
    locked: tuple[str, ...]
    written_for: tuple[str, ...]


def run(context: Context) -> int:
    """Remove its grants."""
    named = context.arguments.needed(flags.RECIPIENT)
    key_id = named if _KEY_ID.match(named) else parse_recipients([named])[0].key_id
    store = sources.writable(context)
    done = remove_recipient(store, read_catalogue(store), key_id)
    shown = KeyRemoved(
        store=store.url, key_id=key_id, removed=done.removed, locked=done.locked, written_for=done.own
    )
    console = context.console
    if console.is_text:
        console.lines([f"key {key_id} was taken back from {columns.plural(len(done.removed), 'snapshot')}"])
    else:
        console.document(shown)
    if done.own:
        many = columns.plural(len(done.own), "snapshot")
        console.warn(f"{many} written for key {key_id} open with it until they are pruned")
    if done.locked:
        console.warn(f"{columns.plural(len(done.locked), 'grant')} cannot be removed: retention forbids it")
    console.warn("whoever had this key may have read these backups: change the secrets in them if it leaked")
    return 0
