"""What every part of an object of ours or of a peer's is made of."""

from __future__ import annotations

from msgspec import Struct


class Part(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Read: fields that we do not know are skipped.  Written: what is absent or empty is left out, as Go's
    `omitempty` does, so that an object read and written by both does not change.  Whoever patches a status
    names what is to go away, with an explicit null.
    """
