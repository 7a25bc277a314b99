"""The options that only `defrag` has."""

from __future__ import annotations

from rootcellar.cli import values
from rootcellar.cli.options import Option


def percent(value: str) -> float:
    """A share in percent."""
    try:
        found = float(value.removesuffix("%"))
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:
        raise ValueError("not a number of percent from 0 to 100")
    return found


WASTE = Option(
    "--waste", percent, "PERCENT", "only members that waste at least so much of their file", default="30"
)
LEAST = Option("--least", values.size, "SIZE", "and at least so many bytes", default="64MiB")
EACH = Option("--each", values.span, "DURATION", "how long one member may take", default="8m")
