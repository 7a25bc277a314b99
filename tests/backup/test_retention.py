"""The policies: EBR's two held against its rules, and grandfather, father, son against a calendar."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.backup.prune.retention import Exponential, Full, Gfs, LimitBased
from rootcellar.errors import UsageError

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def fulls_at(*times):
    return [Full(f"{number}", time) for number, time in enumerate(sorted(times))]


def kept(policy, fulls, now=NOW):
    return [
        full.created for full, verdict in zip(fulls, policy.judge(fulls, now), strict=True) if verdict.keep
    ]


# Exponential


def go_div(a, b):
    """Division as Go has it."""
    return int(a / b) if abs(a) < 1 << 50 else pytest.fail("not exact")


def reference(created, now):
    """The rule once more, written from the inventory of facts: unix seconds, newest first; which stay."""
    midnight = now - now % 86_400
    eod = midnight + 86_399
    stay, week_seen, infinity = [True], False, None
    for newer, older in itertools.pairwise(created):
        d = eod - older
        if d < 24 * 3600:
            threshold = 0 if older % 86_400 // 3600 == now % 86_400 // 3600 else 1
        elif d < 8 * 24 * 3600:
            threshold = 24
        elif d < 35 * 24 * 3600:
            threshold = 168
            if not week_seen:
                week_seen = True
                eod -= 24 * 3600
        else:
            threshold = infinity
        if threshold is infinity:
            stay.append(False)
            continue
        if threshold == 0:
            stay.append(True)
            continue
        hours = go_div(eod - older, 3600) - go_div(eod - newer, 3600)
        days = go_div(eod - older, 3600 * 24) - go_div(eod - newer, 3600 * 24)
        weeks = go_div(eod - older, 3600 * 168) - go_div(eod - newer, 3600 * 168)
        differ = (go_div(hours, threshold), go_div(24 * days, threshold), go_div(168 * weeks, threshold))
        stay.append(any(part != 0 for part in differ))
    return stay


def held_to_reference(times, now):
    fulls = [Full(str(number), time) for number, time in enumerate(times)]
    ours = [verdict.keep for verdict in Exponential().judge(fulls, now)]
    newest_first = [int(full.created.timestamp()) for full in reversed(fulls)]
    assert ours[::-1] == reference(newest_first, int(now.timestamp()))
    return ours


STEPS = {"hourly": HOUR, "90 minutes": 1.5 * HOUR, "6 hours": 6 * HOUR, "daily": DAY, "26 hours": 26 * HOUR}


@pytest.mark.parametrize("hour", [0, 7, 13, 23])
@pytest.mark.parametrize("every", STEPS)
@pytest.mark.parametrize("days", [1, 3, 8, 9, 34, 36, 60])
def test_exponential_keeps_what_the_reference_keeps_of_a_steady_schedule(every, days, hour):
    now = NOW.replace(hour=hour)
    count = int(days * DAY / STEPS[every])
    held_to_reference([now - number * STEPS[every] for number in range(count, -1, -1)], now)


@pytest.mark.parametrize("seed", range(60))
def test_exponential_keeps_what_the_reference_keeps_of_fulls_at_any_time(seed):
    chance = random.Random(seed)
    now = NOW + timedelta(seconds=chance.randrange(10 * 86_400))
    span = chance.choice([1, 9, 40, 90]) * 86_400
    times = [now - timedelta(seconds=chance.randrange(-7200, span)) for _ in range(chance.randrange(1, 120))]
    if seed % 3:
        times.sort()  # else as after clocks that were set back
    held_to_reference(times, now)


def test_the_hours_of_yesterday_collapse_at_midnight():
    """Hours are those of the current UTC day, not the newest 24."""
    hourly = [datetime(2026, 11, 21, 23, tzinfo=UTC) - number * HOUR for number in range(24 * 8)]
    evening = kept(Exponential(), fulls_at(*hourly), datetime(2026, 11, 21, 23, 10, tzinfo=UTC))
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    night = kept(Exponential(), fulls_at(*evening, midnight), midnight + timedelta(minutes=10))
    assert len([each for each in evening if each.day == 21]) == 24
    assert len([each for each in night if each.day == 21]) == 1
    assert (len(evening), len(night)) == (31, 9)


def test_daily_passes_leave_no_weekly_full_and_a_single_one_does():
    """The second consequence: what a week keeps today is gone tomorrow, because the weeks move along."""
    every_six = timedelta(hours=6)
    start = NOW - 60 * DAY
    alive: list[datetime] = []
    for number in range(4 * 60 + 1):
        now = start + number * every_six
        alive = kept(Exponential(), fulls_at(*alive, now), now)
    assert min(alive) > NOW - 10 * DAY
    at_once = kept(Exponential(), fulls_at(*(NOW - number * every_six for number in range(4 * 60))))
    assert len([each for each in at_once if each < NOW - 10 * DAY]) >= 3


def test_exponential_of_no_fulls_and_of_one():
    assert Exponential().judge([], NOW) == []
    assert kept(Exponential(), fulls_at(NOW - 1000 * DAY)) == [NOW - 1000 * DAY]


# LimitBased


@given(st.integers(1, 12), st.integers(0, 20))
def test_a_limit_keeps_that_many_of_the_newest(limit, count):
    times = [NOW - number * HOUR for number in range(count)]
    assert kept(LimitBased(limit), fulls_at(*times)) == sorted(times)[-limit:]


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(UsageError, match="a limit of 0 keeps nothing"):
        LimitBased(0)


# Grandfather, father, son

SPELLED = {"hourly": "%Y%m%d%H", "daily": "%Y%m%d", "weekly": "%G%V", "monthly": "%Y%m", "yearly": "%Y"}
times = st.lists(
    st.datetimes(datetime(2019, 12, 1), datetime(2027, 1, 31)).map(  # noqa: DTZ001  the zone comes next
        lambda at: at.replace(microsecond=0, tzinfo=UTC)
    ),
    max_size=60,
    unique=True,
)
numbers = st.fixed_dictionaries({level: st.integers(0, 6) for level in SPELLED}).filter(
    lambda each: any(each.values())
)


@given(times, numbers)
def test_gfs_keeps_the_newest_of_each_period_that_has_one(times, numbers):
    expected = set()
    for level, number in numbers.items():
        newest = {}
        for time in sorted(times):
            newest[time.strftime(SPELLED[level])] = time
        expected |= set(sorted(newest.values())[::-1][:number])
    assert kept(Gfs(**numbers), fulls_at(*times)) == sorted(expected)


@given(times, numbers)
def test_gfs_changes_its_mind_about_nothing_that_it_kept(times, numbers):
    once = kept(Gfs(**numbers), fulls_at(*times))
    assert kept(Gfs(**numbers), fulls_at(*once)) == once


def test_empty_days_do_not_count():
    """A cluster that was off for a month still has its three days when it comes back."""
    times = [NOW - number * DAY for number in (0, 30, 31, 32)]
    assert kept(Gfs(daily=3), fulls_at(*times)) == sorted(times)[1:]


def test_weeks_begin_on_monday_and_belong_to_one_year():
    new_year = [datetime(2026, 12, 31, 12, tzinfo=UTC), datetime(2027, 1, 3, 12, tzinfo=UTC)]
    monday = datetime(2027, 1, 4, 0, 5, tzinfo=UTC)
    assert kept(Gfs(weekly=4), fulls_at(*new_year, monday)) == [new_year[1], monday]


def test_a_reason_names_every_period_that_keeps_a_full():
    (newest,) = fulls_at(NOW)
    (verdict,) = Gfs(hourly=1, weekly=1, yearly=1).judge([newest], NOW)
    assert verdict == (True, "the newest of hour 2026-11-21 18:00, week 2026-W47, year 2026")
    earlier, _ = Gfs(daily=7).judge(fulls_at(NOW - HOUR, NOW), NOW)
    assert earlier.reason == "not the newest of any hour, day, week, month or year that counts"


@pytest.mark.parametrize("numbers", [{}, {"daily": 0}, {"daily": -1, "weekly": 2}])
def test_a_policy_that_keeps_nothing_is_refused(numbers):
    with pytest.raises(UsageError, match="keeps nothing"):
        Gfs(**numbers)
