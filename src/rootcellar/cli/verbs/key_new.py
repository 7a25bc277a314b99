"""`key new`: a private key in a file, its public one on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.objects.sealing.keyring import Identity, write_identity
from rootcellar.cli import flags
from rootcellar.cli.document import Document

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


class NewKey(Document, frozen=True):
    """What was made.  The private key is in `file` alone."""

    file: str
    key_id: str
    recipient: str


def run(context: Context) -> int:
    """Make one."""
    path = context.arguments.need(flags.NEW_IDENTITY).absolute()
    identity = Identity.new()
    write_identity(identity, path)
    shown = NewKey(file=str(path), key_id=identity.key_id, recipient=str(identity.recipient))
    if context.console.is_text:
        context.console.lines([shown.recipient])
        context.console.note(f"key {shown.key_id} is in {path}: keep a copy elsewhere; nothing replaces it")
    else:
        context.console.document(shown)
    return 0
