from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.agent.schedule import BACKWARD, Cron, Due, Timetable, Wait
from rootcellar.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def at(text, zone=UTC):
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


def ticks(cron, start, count):
    found = []
    for _ in range(count):
        start = cron.next_tick(start)
        found.append(start)
    return found


def test_a_tick_is_due_once():
    table = Timetable(Cron("0 */6 * * *"), at("2026-11-21T01:00:00"))
    assert table.decide(at("2026-11-21T05:59:59")) == Wait(at("2026-11-21T06:00:00"))
    due = table.decide(at("2026-11-21T06:00:00"))
    assert due == Due(at("2026-11-21T06:00:00"), is_late=False)
    assert table.decide(at("2026-11-21T06:00:30")) == due, "until it is done"
    table.done(due.tick)
    assert table.decide(at("2026-11-21T06:00:31")) == Wait(at("2026-11-21T12:00:00"))


def test_just_before_its_tick_nothing_is_due():
    table = Timetable(Cron("0 * * * *"), at("2026-11-21T01:00:00"))
    assert table.decide(at("2026-11-21T01:59:59.999999")) == Wait(at("2026-11-21T02:00:00"))


def test_of_many_missed_runs_the_newest_is_made_up_for():
    table = Timetable(Cron("*/10 * * * *"), at("2025-01-01T00:00:00"))
    due = table.decide(at("2026-11-21T06:07:00"))
    assert due == Due(at("2026-11-21T06:00:00"), is_late=True)
    table.done(due.tick)
    assert table.decide(at("2026-11-21T06:07:01")) == Wait(at("2026-11-21T06:10:00"))


def test_a_run_that_outlasts_ticks_is_followed_by_one():
    table = Timetable(Cron("* * * * *"), at("2026-11-21T06:00:00"))
    due = table.decide(at("2026-11-21T06:01:00"))
    assert due.tick == at("2026-11-21T06:01:00")
    table.done(due.tick)  # five minutes later
    again = table.decide(at("2026-11-21T06:06:20"))
    assert again.tick == at("2026-11-21T06:06:00")
    table.done(again.tick)
    assert table.decide(at("2026-11-21T06:06:40")) == Wait(at("2026-11-21T06:07:00"))


def test_a_suspended_schedule_neither_runs_nor_owes():
    cron = Cron("0 * * * *", suspend=True)
    assert Timetable(cron, at("2026-11-21T01:00:00")).decide(at("2026-11-21T06:07:00")) == Wait(None)


def test_a_clock_set_forward_by_years_and_back_leads_to_one_run_and_no_silence():
    table = Timetable(Cron("0 * * * *"), at("2026-11-21T01:00:00"))
    late = table.decide(at("2031-11-21T01:30:00"))
    assert late == Due(at("2031-11-21T01:00:00"), is_late=True)
    table.done(late.tick)
    assert table.decide(at("2026-11-21T01:31:00")) == Wait(at("2026-11-21T02:00:00"))
    assert isinstance(table.decide(at("2026-11-21T02:00:00")), Due)


def test_a_clock_that_is_corrected_by_seconds_does_not_run_a_tick_twice():
    table = Timetable(Cron("0 * * * *"), at("2026-11-21T01:00:00"))
    due = table.decide(at("2026-11-21T02:00:01"))
    table.done(due.tick)
    assert table.decide(at("2026-11-21T01:59:58")) == Wait(at("2026-11-21T03:00:00"))


def test_in_the_night_without_half_past_two_the_run_comes_right_behind_it():
    cron = Cron("30 2 * * *", "Europe/Berlin")
    assert [each.astimezone(BERLIN).isoformat() for each in ticks(cron, at("2026-03-28T12:00:00"), 2)] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_in_the_night_with_two_half_past_twos_it_runs_once():
    cron = Cron("30 2 * * *", "Europe/Berlin")
    assert [each.astimezone(BERLIN).isoformat() for each in ticks(cron, at("2026-10-24T12:00:00"), 2)] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_what_runs_every_half_hour_does_so_through_both_nights():
    for night in ("2026-03-29", "2026-10-25"):
        found = ticks(Cron("*/30 * * * *", "Europe/Berlin"), at(f"{night}T00:00:00", BERLIN), 20)
        gaps = {later - earlier for earlier, later in pairwise(found)}
        assert gaps == {timedelta(minutes=30)}


def test_jitter_is_the_same_for_a_tick_and_another_for_the_next_and_for_another_agent():
    cron = Cron("0 * * * *", jitter=HOUR / 2, seed="a")
    one, two = ticks(cron, at("2026-11-21T00:00:00"), 2)
    assert cron.begin(one) == Cron("0 * * * *", jitter=HOUR / 2, seed="a").begin(one)
    assert cron.begin(one) - one != cron.begin(two) - two
    assert cron.begin(one) != Cron("0 * * * *", jitter=HOUR / 2, seed="b").begin(one)


def test_a_run_with_jitter_waits_for_its_moment():
    cron = Cron("0 * * * *", jitter=HOUR / 2, seed="a")
    table = Timetable(cron, at("2026-11-21T00:00:00"))
    tick = at("2026-11-21T01:00:00")
    begin = cron.begin(tick)
    assert table.decide(at("2026-11-21T00:30:00")) == Wait(begin)
    assert table.decide(tick) == Wait(begin)
    assert table.decide(begin) == Due(tick, is_late=False)


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */6 * * *", "30 2 * * *", "0 0 29 2 *", "5 4 * * sun"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"]),
    st.floats(0, 20_000),
    st.lists(st.floats(-2e6, 4e6), min_size=1, max_size=30),
)
def test_whatever_the_clock_does_there_is_no_storm_and_no_silence(expression, zone, jitter, jumps):
    """A reading leads to at most one run, and a clock that runs on from anywhere comes to the next."""
    cron = Cron(expression, zone, timedelta(seconds=jitter), "seed")
    now = at("2026-06-01T00:00:00")
    table = Timetable(cron, now)
    for jump in jumps:
        now += timedelta(seconds=jump)
        decision = table.decide(now)
        if isinstance(decision, Due):
            assert decision.tick <= now
            table.done(decision.tick)
            decision = table.decide(now)
            assert isinstance(decision, Wait)
        assert decision.until > now - BACKWARD
        begin = cron.begin(cron.next_tick(now + BACKWARD))
        assert decision.until <= begin, "no tick that lies ahead is passed over"
    assert isinstance(table.decide(decision.until), Due)


@pytest.mark.parametrize("expression", ["", "every day", "60 * * * *", "* * * *", "0 0 30 2 *"])
def test_what_is_no_cron_line_is_told(expression):
    with pytest.raises(ConfigError, match=r"cron line|no time"):
        Cron(expression)


def test_an_unknown_time_zone_is_told():
    with pytest.raises(ConfigError, match="time zone"):
        Cron("0 * * * *", "Mars/Olympus")
