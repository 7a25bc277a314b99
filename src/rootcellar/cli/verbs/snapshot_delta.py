"""`snapshot delta`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli.capturing import snapshot

if TYPE_CHECKING:
    from rootcellar.cli.context import Context


def run(context: Context) -> int:
    """Take one."""
    return snapshot(context, full=False)
