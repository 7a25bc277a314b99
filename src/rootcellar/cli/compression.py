"""How objects are compressed, in words and in names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup import names
from rootcellar.cli import flags

if TYPE_CHECKING:
    from rootcellar.cli.arguments import Arguments

_SUFFIXES = {"gzip": names.GZIP, "zlib": names.ZLIB, "none": names.NONE}


def suffix(arguments: Arguments) -> str:
    """What --compression is called in an object's name."""
    return _SUFFIXES[arguments.need(flags.COMPRESSION)]
