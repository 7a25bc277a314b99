"""`key show`: the public keys of private ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.objects.sealing.keyring import read_identities
from rootcellar.cli import flags
from rootcellar.cli.document import Document, Part

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


class PublicKey(Part, frozen=True):
    """A recipient and the id that backups know it by."""

    key_id: str
    recipient: str


class PublicKeys(Document, frozen=True):
    """Those of a file or directory."""

    keys: tuple[PublicKey, ...]


def run(context: Context) -> int:
    """Show them."""
    found = read_identities(context.arguments.needed(flags.IDENTITY_FILE)).identities
    shown = PublicKeys(
        keys=tuple(PublicKey(key_id=each.key_id, recipient=str(each.recipient)) for each in found)
    )
    if context.console.is_text:
        context.console.lines(f"{each.key_id}  {each.recipient}" for each in shown.keys)
    else:
        context.console.document(shown)
    return 0
