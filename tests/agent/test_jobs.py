"""Jobs on a clock that goes as the test tells it."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from rootcellar.agent.board import Board
from rootcellar.agent.errands import full_job
from rootcellar.agent.jobs import Diary, Errand, Job, keep
from rootcellar.agent.schedule import Cron
from rootcellar.agent.state import Fault
from rootcellar.errors import TransientError
from rootcellar.logs import make_log

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


class Life:
    """What a job runs in: sleeping makes time pass, and at some moments the wall clock jumps."""

    def __init__(self, until, jumps=()):
        self.wall, self.passed = START, 0.0
        self.until = until
        self.jumps = list(jumps)
        self.out = io.StringIO()
        self.clock = self
        self.log = make_log("json", self.out)
        self.board = Board(self, self.log)
        self.timetables = {}

    def now(self):
        return self.wall

    def monotonic(self):
        return self.passed

    def pass_(self, seconds):
        self.wall += timedelta(seconds=seconds)
        self.passed += seconds
        if self.jumps and self.passed >= self.jumps[0][0]:
            self.wall += self.jumps.pop(0)[1]

    async def sleep(self, seconds):
        self.pass_(seconds)
        if self.passed > self.until:
            raise asyncio.CancelledError

    def errand(self, job, tick):
        return Errand(tick, None, None, "tests/1", self.log, job.name, now=self.now)

    def run(self, job):
        diary = Diary(job.name)

        async def live():
            await keep(job, diary, self)

        with suppress(asyncio.CancelledError):
            asyncio.run(live())
        return diary

    @property
    def events(self):
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


def hourly(run, since=None):
    return Job("tidy", Cron("0 * * * *"), run, since=lambda: since)


def counting(life, found, *seconds):
    """Notes when it runs; the first runs take so many seconds, the others one."""
    lengths = [*seconds]

    async def run(errand):
        found.append((errand.tick, life.wall))
        life.pass_(lengths.pop(0) if lengths else 1)
        return "done"

    return run


def test_a_job_runs_at_each_of_its_ticks():
    life, found = Life(3 * 3600), []
    diary = life.run(hourly(counting(life, found)))
    assert [tick.hour for tick, _ in found] == [10, 11, 12]
    assert all(timedelta(0) <= at - tick < timedelta(seconds=16) for tick, at in found)
    assert (diary.runs, diary.failures, diary.outcome) == (3, 0, "done")


def test_what_was_missed_while_the_agent_was_down_runs_once_at_its_start():
    life, found = Life(60), []
    life.run(hourly(counting(life, found), since=START - timedelta(days=9)))
    assert [(tick.hour, at) for tick, at in found] == [(9, START)]


def test_a_run_that_outlasts_two_ticks_is_followed_by_one():
    life, found = Life(5 * 3600), []
    life.run(hourly(counting(life, found, 2.5 * 3600)))
    assert [tick.hour for tick, _ in found] == [10, 12, 13, 14]


def test_a_clock_that_is_set_leads_to_no_storm_and_no_silence():
    """Forward by years, back again, back by a day: between the jumps it runs once an hour."""
    year = timedelta(days=365)
    jumps = [(3600, 5 * year), (2 * 3600, -5 * year), (4 * 3600, timedelta(days=-1))]
    life, found = Life(8 * 3600, jumps), []
    life.run(hourly(counting(life, found)))
    assert 7 <= len(found) <= 11
    last = [at for _, at in found][-3:]
    assert last[2] - last[1] <= timedelta(hours=1, seconds=20)


class Fulls:
    """Captures that say when the last full was."""

    def __init__(self, life, last):
        self.life, self.last_full_at = life, last
        self.opened = asyncio.Event()
        self.opened.set()
        self.taken = []

    async def full(self, **_how):
        self.taken.append(self.life.wall)
        self.last_full_at = self.life.wall
        return SimpleNamespace(key="v2/Full")


def test_a_full_of_a_time_to_come_serves_no_tick():
    """The clock was a year ahead when it was taken: until then there would be none."""
    life = Life(86400)
    fulls = Fulls(life, START + timedelta(days=365))
    life.run(full_job(Cron("0 */6 * * *"), lambda: fulls, skip_unchanged=False))
    assert [at.hour for at in fulls.taken] == [12, 18, 0, 6]


@pytest.mark.parametrize("after", [timedelta(0), timedelta(seconds=70)])
def test_a_full_since_the_tick_serves_it_also_by_a_clock_that_is_a_little_ahead(after):
    life = Life(3600)
    tick = START.replace(hour=10, minute=0)
    fulls = Fulls(life, tick + after)
    diary = life.run(full_job(Cron("0 * * * *"), lambda: fulls, skip_unchanged=False))
    assert (diary.runs, diary.outcome, fulls.taken) == (1, "a full was taken since", [])


class ReloadedError(Exception):
    """A round of the agent has ended."""


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_run_that_is_owed_stays_owed_over_a_reload_of_the_same_schedule(is_changed):
    """The nightly prune fails, and the reload brings what it lacked."""
    life, runs, ends = Life(3 * 3600), [], [True]

    async def run(errand):
        runs.append((errand.tick.hour, life.wall))
        if len(runs) == 1:
            raise TransientError("the store is away")
        return "done"

    class Around:
        def __getattr__(self, name):
            return getattr(life, name)

        async def sleep(self, seconds):
            if runs and ends:
                ends.clear()
                raise ReloadedError
            await life.sleep(seconds)

    async def live():
        with suppress(ReloadedError):
            await keep(Job("prune", Cron("0 10 * * *"), run), Diary("prune"), Around())
        cron = Cron("0 8 * * *" if is_changed else "0 10 * * *")
        await keep(Job("prune", cron, run), Diary("prune"), Around())

    with suppress(asyncio.CancelledError):
        asyncio.run(live())
    assert [tick for tick, _ in runs] == ([10] if is_changed else [10, 10])
    assert all(at < START.replace(hour=10, minute=1) for _, at in runs)


def test_a_job_that_fails_is_tried_again_with_pauses_and_told():
    life = Life(4000)
    attempts = []

    async def run(errand):
        attempts.append(life.passed)
        if len(attempts) < 4:
            raise TransientError("the store is away")
        return "done"

    diary = life.run(hourly(run))
    assert (diary.runs, diary.failures, diary.error) == (4, 3, "")
    assert attempts[-1] - attempts[0] < 60
    assert Fault.JOB not in life.board.facts.faults
    failed = [each for each in life.events if each["event"] == "job-failed"]
    assert [each["code"] for each in failed] == ["transient"] * 3
