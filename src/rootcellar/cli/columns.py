"""Text that a tired person can read: aligned columns, sizes, times, ages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SECOND = 10**9
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), gap: str = "  "
) -> Iterator[str]:
    """Rows under their header; columns in `right` end flush.  Empty without rows."""
    cells = [list(row) for row in rows]
    if not cells:
        return
    cells.insert(0, list(header))
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    ends = set(right)
    for row in cells:
        padded = (
            cell.rjust(width) if column in ends else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield gap.join(padded).rstrip()


def size(count: float) -> str:
    """`512 B`, `1.5 MiB`."""
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    unit = _UNITS[power]
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def number(count: int) -> str:
    """`1,234,567`."""
    return f"{count:,}"


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 delta`, `4 deltas`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def moment(nanoseconds: int) -> str:
    """Unix nanoseconds as `2026-11-21 09:32:03 UTC`, rounded down."""
    return datetime.fromtimestamp(nanoseconds // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def date(at: datetime | None, otherwise: str = "never") -> str:
    """An aware datetime, the same way."""
    return otherwise if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def short_date(at: datetime) -> str:
    """An aware datetime in UTC, where the header says so."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds(count: float) -> str:
    """How long something took: `0.42 s`, `3 min 20 s`, `2 h 5 min`, `3 days`."""
    if count < 10:
        return f"{count:.2f} s"
    if count < 60:
        return f"{count:.0f} s"
    if count < 3600:
        return f"{count // 60:.0f} min {count % 60:.0f} s"
    if count < 2 * 86400:
        return f"{count // 3600:.0f} h {count % 3600 // 60:.0f} min"
    return f"{count / 86400:.0f} days"


def ago(nanoseconds: int, now: int) -> str:
    """How long ago a moment was: `12 s ago`, `3 days ago`; `in the future` for a clock that is off."""
    passed = (now - nanoseconds) / SECOND
    if passed < -1:
        return "in the future"
    return f"{_coarse(max(passed, 0))} ago"


def _coarse(passed: float) -> str:
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if passed < limit:
            return f"{passed // unit:.0f} {name}"
    return f"{passed // 86400:.0f} days"


def key(raw: bytes) -> str:
    r"""A key or a value on one line: what cannot be printed as `\xNN`, a backslash doubled.

    Nothing that a terminal would obey gets through, and what is shown can be given back as a KEY.
    """
    text = raw.decode(errors="surrogateescape")
    shown = "".join(each if each.isprintable() and each != "\\" else _escaped(each) for each in text)
    return re.sub(r"^ +| +\Z", lambda found: r"\x20" * len(found[0]), shown)


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Lines of at most `width` characters, the following ones of a paragraph indented."""
    for index, paragraph in enumerate(text.split("\n\n")):
        if index:
            yield ""
        yield from wrap(" ".join(paragraph.split()), width, subsequent_indent=indent, break_on_hyphens=False)
