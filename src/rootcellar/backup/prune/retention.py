"""Which fulls a policy keeps, and why: etcd-backup-restore's two, and a real grandfather-father-son.

Pure: fulls with their times and the time of now in, a verdict on each out.  A policy speaks of fulls alone,
and by itself; what goes past it (holds, the newest chain, a minimum) is the business of `prune.plan`.

The time of a full is the second in its name.  EBR judges by nothing else, and every full has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Full(NamedTuple):
    """A full as a policy sees it: what it is called, and when it was taken (aware UTC, whole seconds)."""

    key: str
    created: datetime


class Verdict(NamedTuple):
    """What a policy says of one full, and why, for a person to read."""

    keep: bool
    reason: str


_NEWEST = Verdict(True, "the newest")


@dataclass(frozen=True, slots=True)
class LimitBased:
    """EBR's LimitBased: the newest `limit` fulls."""

    limit: int

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"a limit of {self.limit} keeps nothing", hint="keep at least one full")

    def judge(self, fulls: Sequence[Full], now: datetime) -> list[Verdict]:
        """One verdict for each full; they come oldest first."""
        del now  # a number is a number at any time
        kept = Verdict(True, f"one of the newest {self.limit}")
        gone = Verdict(False, f"there are {self.limit} newer")
        return [kept if index >= len(fulls) - self.limit else gone for index in range(len(fulls))]

    def __str__(self) -> str:
        return f"the newest {self.limit}"


@dataclass(frozen=True, slots=True)
class Exponential:
    """EBR's Exponential, with its quirks; `docs/retention.md` tells what they come to.

    Each full is compared with the next newer one in the list, whether that one stays or not, and stays itself
    when the two lie in different spans, counted backwards from the end of the current UTC day.  How long the
    spans are depends on its age: an hour, a day, a week.  The quirks:

    * hours are kept for the current UTC day alone, and of the current hour of it everything;
    * at the first full older than eight days the end of the day moves back by a day, for all that follow;
    * the spans move with the day, so a week's keeper of today may be none tomorrow;
    * all numbers are truncated towards zero, which matters where a clock went backwards.

    The rule: etcd-backup-restore, `pkg/snapshot/snapshotter/garbagecollector.go`.
    """

    def judge(self, fulls: Sequence[Full], now: datetime) -> list[Verdict]:
        """One verdict for each full; they come oldest first, in EBR's order."""
        if not fulls:
            return []
        end = now.astimezone(UTC).replace(hour=23, minute=59, second=59, microsecond=0)
        hour = now.astimezone(UTC).hour
        verdicts = [_NEWEST]
        in_weeks = False
        for index in range(len(fulls) - 2, -1, -1):
            older, newer = fulls[index].created, fulls[index + 1].created
            age = end - older
            if age < timedelta(hours=24):
                if older.hour == hour:
                    verdicts.append(Verdict(True, "of the current hour"))
                    continue
                span, unit = 1, "hour"
            elif age < timedelta(days=8):
                span, unit = 24, "day"
            elif age < timedelta(days=35):
                span, unit = 168, "week"
                if not in_weeks:
                    end -= timedelta(hours=24)
                    in_weeks = True
            else:
                verdicts.append(Verdict(False, "older than five weeks"))
                continue
            if _is_apart(end - older, end - newer, span):
                verdicts.append(Verdict(True, f"the newest of its {unit}"))
            else:
                verdicts.append(Verdict(False, f"not the newest of its {unit}"))
        return verdicts[::-1]

    def __str__(self) -> str:
        return "exponential"


def _is_apart(older: timedelta, newer: timedelta, span: int) -> bool:
    """Whether two ages differ in hours, days or weeks by at least `span` hours."""
    return any(
        _quotient(unit * (_whole(older, unit) - _whole(newer, unit)), span) != 0 for unit in (1, 24, 168)
    )


def _whole(age: timedelta, hours: int) -> int:
    return _quotient(age // timedelta(seconds=1), hours * 3600)


def _quotient(number: int, by: int) -> int:
    """Go's integer division, which truncates towards zero."""
    return number // by if number >= 0 else -(-number // by)


@dataclass(frozen=True, slots=True)
class Gfs:
    """Grandfather, father, son: of the newest so many hours, days, weeks, months and years the newest full.

    Hours, days, months and years are UTC's, weeks those of ISO 8601 (from Monday).  One without a full does
    not count: after a month in which nothing ran, seven days are the seven before it.
    """

    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    def __post_init__(self) -> None:
        if min(number for _, number in self._numbers()) < 0 or not any(n for _, n in self._numbers()):
            raise UsageError(
                "this policy keeps nothing", hint="give at least one of its numbers, such as daily"
            )

    def judge(self, fulls: Sequence[Full], now: datetime) -> list[Verdict]:
        """One verdict for each full; they come oldest first."""
        del now  # what is kept depends on the fulls that are there: a wrong clock here deletes nothing
        reasons: list[list[str]] = [[] for _ in fulls]
        by_time = sorted(range(len(fulls)), key=lambda index: (fulls[index].created, index), reverse=True)
        for level, number in self._numbers():
            spelled = _CALENDAR[level]
            seen: set[str] = set()
            for index in by_time:
                bucket = spelled(fulls[index].created.astimezone(UTC))
                if bucket not in seen and len(seen) < number:
                    seen.add(bucket)
                    reasons[index].append(f"{level} {bucket}")
        return [
            Verdict(True, f"the newest of {', '.join(each)}")
            if each
            else Verdict(False, "not the newest of any hour, day, week, month or year that counts")
            for each in reasons
        ]

    def _numbers(self) -> list[tuple[str, int]]:
        return [
            ("hour", self.hourly),
            ("day", self.daily),
            ("week", self.weekly),
            ("month", self.monthly),
            ("year", self.yearly),
        ]

    def __str__(self) -> str:
        return ", ".join(f"{number} {level}s" for level, number in self._numbers() if number)


_CALENDAR: dict[str, Callable[[datetime], str]] = {
    "hour": lambda at: at.strftime("%Y-%m-%d %H:00"),
    "day": lambda at: at.strftime("%Y-%m-%d"),
    "week": lambda at: at.strftime("%G-W%V"),
    "month": lambda at: at.strftime("%Y-%m"),
    "year": lambda at: at.strftime("%Y"),
}

Policy = LimitBased | Exponential | Gfs
