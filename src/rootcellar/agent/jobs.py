"""What runs on a schedule beside the deltas: fulls, proofs, and whatever else keeps backups in order.

A job is a name, a cron line (or something that it runs behind) and a coroutine.  One job never overlaps
itself; a run that fails is tried again with growing pauses, until its next tick takes its place.  Jobs that
need it run only where this agent leads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from rootcellar.agent.backoff import Backoff
from rootcellar.agent.schedule import BACKWARD, Due, Timetable
from rootcellar.agent.state import Fault
from rootcellar.agent.threads import in_thread
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.errors import ProofError
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from datetime import datetime

    from rootcellar.agent.board import Board
    from rootcellar.agent.clock import Clock
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.backup.catalogue.records import Check
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.logs import Log
    from rootcellar.stores.protocol import Store

T = TypeVar("T")

BEHIND = 1.0
"""Seconds between two looks at what a job follows."""
POLL = 15.0
"""Seconds; the wall clock is looked at so often at least, so that a jump of it is noticed."""


@dataclass(frozen=True)
class Errand:
    """What a job is run with.  `tick` is when it was due; `store` is None where the agent has none.

    `epoch` is that of the session that is open, for what has to be done under the fence; `now` reads the wall
    clock.
    """

    tick: datetime
    client: EtcdClient
    store: Store | None
    writer: str
    log: Log
    name: str
    epoch: Epoch | None = None
    now: Callable[[], datetime] = utc_now

    def is_served(self, done_at: datetime | None) -> bool:
        """Whether what was done then is what this tick asks for.  Of a time to come it is not: the clock was
        ahead when it was done, and nothing else would be until then.
        """
        return done_at is not None and self.tick <= done_at <= self.now() + BACKWARD

    async def thread(self, call: Callable[[], T]) -> T:
        """Run an engine call in a thread."""
        return await in_thread(self.name, call)


@dataclass(frozen=True)
class Job:
    """`run` returns a sentence for the log.  `since`: up to when its runs are known to be done, from what the
    store or etcd shows; None for "since this agent leads".  `bound` is how many seconds a run may take before
    the watchdog says so.  `proves` is the strongest check that it is for: its ProofError is what it has
    found, and stands until its next tick.

    Without a `cron` it runs whenever `mark` shows something else than at its last good run (None: nothing
    yet), and rests in between for as long as that took.
    """

    name: str
    cron: Cron | None
    run: Callable[[Errand], Awaitable[str]]
    needs_leadership: bool = True
    needs_store: bool = True
    since: Callable[[], datetime | None] = lambda: None
    bound: float = 6 * 3600.0
    mark: Callable[[], Hashable] = lambda: None
    proves: Check | None = None


def every(seconds: float, monotonic: Callable[[], float] = time.monotonic) -> Callable[[], Hashable]:
    """A mark for a job that runs at once, and then again in each such period."""
    began = monotonic()
    return lambda: 1 + int((monotonic() - began) // seconds)


@dataclass
class Diary:
    """How a job has fared, for `status` and the metrics."""

    name: str
    is_suspended: bool = False
    next_at: datetime | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    error: str = ""
    runs: int = 0
    failures: int = 0
    is_running: bool = field(default=False)


class Around(Protocol):
    """What a runner needs of the agent."""

    @property
    def clock(self) -> Clock: ...
    @property
    def board(self) -> Board: ...
    @property
    def log(self) -> Log: ...
    @property
    def timetables(self) -> dict[str, Timetable]:
        """By the names of jobs; what is in here outlasts a reload."""
        ...

    async def sleep(self, seconds: float) -> None: ...
    def errand(self, job: Job, tick: datetime) -> Errand: ...


async def keep(job: Job, diary: Diary, around: Around) -> None:
    """Run a job on its schedule until cancelled."""
    if job.cron is None:
        await _follow(job, diary, around)
        return
    clock, backoff = around.clock, Backoff()
    timetable = _timetable(job, job.cron, around)
    diary.is_suspended = job.cron.suspend
    while True:
        now = clock.now()
        due = timetable.decide(now)
        if not isinstance(due, Due):
            diary.next_at = due.until
            left = timedelta.max if due.until is None else due.until - now
            await around.sleep(min(POLL, max(0.05, left.total_seconds())))
            continue
        pause = await _run(job, due, diary, around, backoff)
        if pause is None:
            timetable.done(due.tick)
        else:
            await around.sleep(pause)


def _timetable(job: Job, cron: Cron, around: Around) -> Timetable:
    """The one of before, so that a run which is owed stays owed; a new one for a new schedule."""
    now, since = around.clock.now(), job.since()
    known = around.timetables.get(job.name)
    if known is None or known.cron != cron:
        known = around.timetables[job.name] = Timetable(cron, now if since is None else min(since, now))
    elif since is not None:
        known.done(min(since, now))
    return known


async def _follow(job: Job, diary: Diary, around: Around) -> None:
    """Run a job behind whatever its mark follows, until cancelled."""
    done: Hashable = None
    backoff = Backoff()
    while True:
        mark = job.mark()
        if mark is None or mark == done:
            await around.sleep(BEHIND)
            continue
        began = around.clock.monotonic()
        pause = await _run(job, Due(around.clock.now(), is_late=False), diary, around, backoff)
        if pause is None:
            done = mark
            pause = min(POLL, around.clock.monotonic() - began)
        await around.sleep(pause)


async def _run(job: Job, due: Due, diary: Diary, around: Around, backoff: Backoff) -> float | None:
    """One run; how long to wait before it is tried again, None when it is done."""
    diary.began_at, diary.is_running = around.clock.now(), True
    diary.runs += 1
    began = around.clock.monotonic()
    try:
        with around.board.step(job.name, job.bound):
            diary.outcome = await job.run(around.errand(job, due.tick))
    except Exception as error:  # noqa: BLE001  a job's failure is told, and does not end the agent
        diary.failures += 1
        diary.error = str(error)
        if job.proves is not None and isinstance(error, ProofError):
            around.board.fault(Fault.PROOF, f"{job.name}: {error}")
            around.log.warning("proof-failed", job=job.name, **told(error))
            _settled(job, Fault.JOB, around)
            return None
        pause = backoff.pause(error)
        around.board.fault(Fault.JOB, f"{job.name}: {error}")
        around.log.warning("job-failed", job=job.name, again_in=pause, **told(error))
        return pause
    finally:
        diary.is_running, diary.ended_at = False, around.clock.now()
    backoff.reset()
    diary.error = ""
    _settled(job, Fault.JOB, around)
    _settled(job, Fault.PROOF, around)
    seconds = around.clock.monotonic() - began
    around.log.info("job-done", job=job.name, outcome=diary.outcome, late=due.is_late, seconds=seconds)
    return None


def _settled(job: Job, fault: Fault, around: Around) -> None:
    """This job has it no longer; it may be another's."""
    if around.board.facts.faults.get(fault, "").startswith(f"{job.name}: "):
        around.board.clear(fault)
