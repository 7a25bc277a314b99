"""When something runs.  Pure: readings of a wall clock in, what to do out.

A run belongs to a *tick* of its cron line.  Whatever happened (the agent was down, the last run took too
long, the clock was set forward), of all ticks that were missed exactly one is made up for: the newest.  Where
the clock was set back, ticks count from where it is now: so none is waited for that lies years ahead.

Days on which clocks change are Debian cron's: what falls into the missing hour runs right behind it, and what
names one time of the repeated hour runs once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKWARD = timedelta(minutes=2)
"""A clock that goes back by less was corrected, not set: no tick is run a second time for that."""
_AHEAD, _SEEN = timedelta(days=8), 200
"""How far, and how many ticks, `longest_pause` looks: it is asked at every scrape."""


@dataclass(frozen=True)
class Cron:
    """A cron line: minute, hour, day, month, weekday, in a time zone.

    Every run begins up to `jitter` after its tick, but before the next tick: how much depends on `seed` and
    the tick alone, so that many agents do not begin together, and one that restarts keeps its time.  Raises
    ConfigError.
    """

    expression: str
    timezone: str = "UTC"
    jitter: timedelta = timedelta(0)
    seed: str = ""
    suspend: bool = False

    def __post_init__(self) -> None:
        try:
            next(CronSim(self.expression, datetime.now(UTC)))
        except CronSimError as error:
            raise ConfigError(
                f"{self.expression!r} is not a cron line ({error})",
                hint="minute, hour, day, month, weekday: '0 */6 * * *'",
            ) from error
        except StopIteration:
            raise ConfigError(f"{self.expression!r} names no time that ever comes") from None
        try:
            ZoneInfo(self.timezone)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{self.timezone!r} is not a time zone that this machine knows",
                hint="such as Europe/Berlin or UTC; the package tzdata has them all",
            ) from error

    def next_tick(self, after: datetime) -> datetime | None:
        """The first tick behind a moment; None when there is none in the next 50 years."""
        return next(self._ticks(after, reverse=False), None)

    def last_tick(self, upto: datetime) -> datetime | None:
        """The newest tick at or before a moment."""
        return next(self._ticks(upto + timedelta(microseconds=1), reverse=True), None)

    def longest_pause(self, now: datetime) -> timedelta | None:
        """Between two of the next ticks: nights and weekends that the line spares are among them.

        None when it is suspended, or has no two ticks any more.
        """
        if self.suspend:
            return None
        longest: timedelta | None = None
        for before, tick in pairwise(islice(self._ticks(now, reverse=False), _SEEN)):
            longest = max(longest or timedelta(0), tick - before)
            if tick - now > _AHEAD:
                break
        return longest

    def begin(self, tick: datetime) -> datetime:
        """When the run of this tick begins."""
        if not self.jitter:
            return tick
        following = self.next_tick(tick)
        span = self.jitter if following is None else min(self.jitter, (following - tick) * 0.9)
        digest = hashlib.sha256(f"{self.seed}\0{self.expression}\0{tick.isoformat()}".encode()).digest()
        return tick + span * (int.from_bytes(digest[:8], "big") / 2**64)

    def _ticks(self, start: datetime, *, reverse: bool) -> Iterator[datetime]:
        local = start.astimezone(ZoneInfo(self.timezone))
        for tick in CronSim(self.expression, local, reverse=reverse):
            yield tick.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Due:
    """Run now, for this tick.  `is_late`: it is made up for."""

    tick: datetime
    is_late: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing before `until`, by the wall clock as it is now; None: nothing at all."""

    until: datetime | None


_LATE = timedelta(minutes=1)


class Timetable:
    """Which ticks of one cron line are done.  `since`: those up to it are, from an earlier life."""

    def __init__(self, cron: Cron, since: datetime) -> None:
        self.cron = cron
        self._done = since

    def decide(self, now: datetime) -> Due | Wait:
        """What is to be done at this reading of the clock."""
        if self.cron.suspend:
            self._done = max(self._done, now)  # what is suspended is not missed
            return Wait(None)
        if now < self._done - BACKWARD:
            self._done = now
        tick = self.cron.last_tick(now)
        if tick is not None and tick > self._done:
            begin = self.cron.begin(tick)
            if now >= begin:
                return Due(tick, is_late=now - begin > _LATE)
            # The run before it may still be owed: it is this one now.
            return Wait(begin)
        tick = self.cron.next_tick(max(now, self._done))
        return Wait(None if tick is None else self.cron.begin(tick))

    def done(self, tick: datetime) -> None:
        """The run of this tick has ended well, or was given up."""
        self._done = max(self._done, tick)
