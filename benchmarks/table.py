"""The table that every benchmark ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Row(NamedTuple):
    """What was measured, the figure, the bar and whether it holds; None where there is no bar."""

    what: str
    figure: str
    bar: str = ""
    holds: bool | None = None


def show(rows: Sequence[Row]) -> int:
    """Print them; the exit code."""
    print("| what | figure | bar | |\n|---|---|---|---|")
    for row in rows:
        verdict = "" if row.holds is None else "holds" if row.holds else "**missed**"
        print(f"| {row.what} | {row.figure} | {row.bar} | {verdict} |")
    return 1 if any(row.holds is False for row in rows) else 0
