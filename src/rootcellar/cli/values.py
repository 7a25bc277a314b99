"""What a person writes on a command line, in the environment or in the configuration, as values.

Each function takes the text and raises ValueError with the words that finish the sentence "VALUE is ...".
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND: Final = 10**9
"""Moments and durations are nanoseconds here, as event times are."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])i?)?b?\Z", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_ESCAPE = re.compile(r"(\\x[0-9a-fA-F]{2}|\\\\)")
_BAD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?!x[0-9a-fA-F]{2}|\\)")
_UNITS = {
    "ms": SECOND // 1000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86400 * SECOND,
    "w": 7 * 86400 * SECOND,
}
_GO_SPAN = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, **{u: _UNITS[u] for u in ("ms", "s", "m", "h")}}
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*(Z|z|UTC|[+-]\d\d:?\d\d)?\Z",
    re.ASCII,
)
_GENERATIONS = frozenset({"hourly", "daily", "weekly", "monthly", "yearly"})
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_INT64_MAX = 2**63 - 1


def text(value: str) -> str:
    """As it stands, but not nothing."""
    if not value:
        raise ValueError("empty")
    return value


def path(value: str) -> Path:
    """A path; `~` is the home directory."""
    return Path(text(value)).expanduser()


def maybe_path(value: str) -> Path | None:
    """A path, or nothing at all, as templates write what they have no value for."""
    return path(value) if value else None


def key(value: str) -> bytes:
    r"""A key of etcd: UTF-8, with `\xNN` for a byte that is none, and `\\` for a backslash."""
    if not value:
        raise ValueError("empty")
    if "\\" not in value:
        return os.fsencode(value)
    if _BAD_ESCAPE.search(value):
        raise ValueError(r"not a key: a backslash is written \\, a byte \xNN")
    parts = _ESCAPE.split(value)
    return b"".join(
        bytes.fromhex(part[2:]) if part.startswith("\\x") else b"\\" if part == "\\\\" else os.fsencode(part)
        for part in parts
    )


def names(value: str) -> tuple[str, ...]:
    """Several, parted by commas."""
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise ValueError("empty")
    return found


def address(value: str) -> tuple[str, int]:
    """Where to listen: `:8080` for every address of this machine, `127.0.0.1:8080`, `[::1]:8080`."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError("no address: write [HOST]:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def count(value: str) -> int:
    """A whole number, 0 or more; `1_000_000` and `1,000,000` are fine."""
    digits = value.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdecimal():
        raise ValueError("not a whole number")
    if len(digits) > 19 or int(digits) > _INT64_MAX:
        raise ValueError("larger than etcd can count")
    return int(digits)


def choice(*allowed: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")
        return value

    return parse


def size(value: str) -> int:
    """Bytes: `2GiB`, `512M`, `1048576`.  All units are powers of 1024, as etcd's quota is."""
    found = _SIZE.match(value.strip())
    if not found:
        raise ValueError("not a size such as 2GiB or 1048576")
    return int(float(found[1]) * (1 << _SHIFTS[(found[2] or "").lower()]))


def span(value: str) -> int:
    """Nanoseconds: `90s`, `10m`, `1h30m`, `2d`."""
    rest = value.strip().replace(" ", "")
    parts = _SPAN.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError("not a duration such as 90s, 10m, 1h30m or 2d")
    if sum(float(number) * _UNITS[unit] for number, unit in parts) > _INT64_MAX:
        raise ValueError("longer than 292 years")
    return sum(int(float(number) * _UNITS[unit]) for number, unit in parts)


def go_span(value: str) -> int:
    """Nanoseconds of a duration as Go writes it: `1h30m0s`, `1.5h`, `300ms`, `-1s`, and a bare `0`."""
    sign, rest = (-1, value[1:]) if value[:1] == "-" else (1, value.removeprefix("+"))
    if rest == "0":
        return 0
    parts = _GO_SPAN.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError("not a duration as Go writes it, such as 90s, 5m or 1h30m0s")
    return sign * sum(round(float(number) * _GO_UNITS[unit]) for number, unit in parts)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a history: a revision, a moment in unix nanoseconds, or (neither) the latest."""

    revision: int | None = None
    moment: int | None = None


def point(value: str) -> Point:
    """A revision, a time as in `moment`, or `latest`."""
    words = value.strip()
    if words.lower() == "latest":
        return Point()
    if words.replace("_", "").replace(",", "").isdecimal():
        return Point(revision=count(words))
    try:
        return Point(moment=moment(words))
    except ValueError as error:
        raise ValueError(
            str(error).replace("not a time", "neither a revision, nor `latest`, nor a time")
        ) from error


def policy(value: str) -> tuple[tuple[str, int], ...]:
    """`exponential`, `limit=7`, or generations: `hourly=24,daily=7,weekly=4,monthly=12,yearly=3`."""
    if value.strip() == "exponential":
        return (("exponential", 1),)
    found: dict[str, int] = {}
    for part in names(value):
        name, _, number = part.partition("=")
        if name in found or name not in _GENERATIONS | {"limit"} or not number:
            raise ValueError("none of exponential, limit=7, hourly=24,daily=7,weekly=4,monthly=12,yearly=3")
        found[name] = count(number)
    if "limit" in found and len(found) > 1:
        raise ValueError("two policies: a limit stands alone")
    if not any(found.values()):
        raise ValueError("a policy that keeps nothing")
    return tuple(found.items())


def moment(value: str, *, now: Callable[[], int] = time.time_ns) -> int:
    """Unix nanoseconds: RFC 3339 with an offset, `now`, or a duration and `ago`."""
    words = value.strip()
    if words.lower() == "now":
        return now()
    if words.lower().endswith("ago"):
        return now() - span(words[:-3])
    found = _MOMENT.match(words)
    if not found:
        raise ValueError("not a time such as 2026-11-21T09:32:13Z or '10m ago'")
    if found[8] is None:
        raise ValueError("a time without a zone: add Z for UTC, or an offset such as +01:00")
    zone = "+00:00" if found[8] in {"Z", "z", "UTC"} else found[8]
    try:
        at = datetime.fromisoformat(
            f"{found[1]}-{found[2]}-{found[3]}T{found[4]}:{found[5]}:{found[6] or '00'}{zone}"
        )
        seconds = (at - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"no time ({error})") from error
    return seconds * SECOND + int((found[7] or "").ljust(9, "0"))
