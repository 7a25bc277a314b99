"""The agent: one process beside etcd that keeps it backed up.

An asyncio shell.  It watches who leads (`leadership`), has captures made while that is us (`captures`) and
jobs run on their schedules (`jobs`), answers HTTP (`http`), and looks after itself: steps that take too long,
a wall clock that jumps, files that change.  SIGTERM ends it with a last delta, SIGHUP has it read its
configuration again; so does a change of a certificate or of a file with credentials.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rootcellar.agent import doorway, leadership
from rootcellar.agent.board import Board
from rootcellar.agent.captures import FAULTS, Captures, settle
from rootcellar.agent.errands import full_job
from rootcellar.agent.http import Server
from rootcellar.agent.jobs import Diary, Errand, keep
from rootcellar.agent.journal import Journal
from rootcellar.agent.leadership import Role, Standing
from rootcellar.agent.mirror import Mirroring, Reached
from rootcellar.agent.standby import Standby, Tagged, adopt
from rootcellar.agent.state import UNREAD, UNSEEN, Fault
from rootcellar.agent.threads import in_thread
from rootcellar.errors import EtcdError, FencedError
from rootcellar.logs import told
from rootcellar.stores.meter import Meter, MeteredStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from rootcellar.agent.clock import Clock
    from rootcellar.agent.jobs import Job
    from rootcellar.agent.schedule import Cron, Timetable
    from rootcellar.agent.settings import Settings
    from rootcellar.backup.capture.outcome import Capture, Captured
    from rootcellar.backup.catalogue.records import Check
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.logs import Log
    from rootcellar.stores.protocol import Store

WATCHDOG = 5.0
JUMP = 30.0
"""Seconds that the wall clock may gain or lose against the monotonic one before it counts as set."""
ETCD_SECONDS = 3.0
"""For an answer to the question who leads."""


class Agent:
    """One agent.  `load` reads the configuration, and is called again for every reload."""

    def __init__(
        self,
        load: Callable[[], Settings],
        log: Log,
        clock: Clock,
    ) -> None:
        """Raises ConfigError and what else `load` does."""
        self._load = load
        self.settings = load()
        self.log = log
        self.clock = clock
        self.board = Board(clock, log)
        self.journal = Journal()
        self.meter = Meter()
        self.began_at = clock.now()
        self.captures: Captures | None = None
        self.diaries: list[Diary] = []
        self.timetables: dict[str, Timetable] = {}
        self.reached: dict[str, Reached] = {}
        self.standby: Standby | None = None
        self.store_url: str | None = None
        self.needs_restart: tuple[str, ...] = ()
        self._client: EtcdClient | None = None
        self._source: EtcdClient | None = None
        self._store: Store | None = None
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._leading: list[asyncio.Task[None]] = []

    @property
    def leads(self) -> bool | None:
        return self.board.facts.leads

    @property
    def is_writing(self) -> bool:
        return self.captures is not None

    def stop(self) -> None:
        """Cut a last delta, then end."""
        self._stopping.set()

    def reload(self) -> None:
        """Read the configuration again, and open everything anew."""
        self._reloading.set()

    async def run(self, *, ready: Callable[[], object] = lambda: None) -> None:
        """Until told to stop.  `ready` is called once it answers HTTP.

        Raises only what keeps it from beginning: ConfigError, OSError.
        """
        loop = asyncio.get_running_loop()
        for number, act in (
            (signal.SIGTERM, self.stop),
            (signal.SIGINT, self.stop),
            (signal.SIGHUP, self.reload),
        ):
            with suppress(RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, act)
        self._open(self.settings)
        async with Server(self) as server:
            path = doorway.write(self.settings.state_dir, server.doorway(self.store_url or ""))
            self.log.info(
                "started", store=self.store_url, etcd=",".join(self.settings.endpoints), http=server.url
            )
            ready()
            try:
                await self._live()
            finally:
                with suppress(OSError):
                    path.unlink()
        self.log.info("stopped", revision=self.journal.point.revision if self.journal.point else None)

    async def _live(self) -> None:
        """One round per reload."""
        watchdog = asyncio.create_task(self._watch())
        try:
            while not self._stopping.is_set():
                self._reloading.clear()
                with suppress(asyncio.CancelledError):
                    await self._round()
                if not self._stopping.is_set():
                    await self._renew()
        finally:
            watchdog.cancel()
            self._close()

    async def _renew(self) -> None:
        try:
            settings = await in_thread("load", self._load)
            before = self._client, self._source
            self._open(replace(settings, http=self.settings.http, state_dir=self.settings.state_dir))
        except Exception as error:  # noqa: BLE001  whatever it is: what runs goes on
            self.board.fault(Fault.CONFIG, f"{UNREAD}{error}")
            self.log.warning("reload-failed", **told(error))
            return
        for client in before:
            if client is not None:
                client.close()
        self.board.clear(Fault.CONFIG)
        self.needs_restart = settings.unlike(self.settings)
        if self.needs_restart:
            self.log.warning(
                "restart-needed", settings=", ".join(self.needs_restart), hint="a reload does not take these"
            )
        self.log.info("reloaded")

    def _open(self, settings: Settings) -> None:
        """Open everything that they name, and go by them.  Where something cannot be opened, all stays as it
        was: rules for one store must never be carried out in another.
        """
        stamp = _stamp(settings.files)  # before they are read, so that no change in between is missed
        with ExitStack() as opened:
            client = opened.enter_context(settings.open_client())
            source = opened.enter_context(settings.open_source()) if settings.open_source else None
            store = MeteredStore(settings.open_store(), self.meter) if settings.open_store else None
            opened.pop_all()
        self.settings, self._stamp = settings, stamp
        self._client, self._source, self._store = client, source, store
        self.store_url = store.url if store is not None else None
        self.reached = {
            each.name: self.reached.get(each.name) or Reached(each.name, each.url)
            for each in settings.mirrors
        }

    def _close(self) -> None:
        for client in (self._client, self._source):
            if client is not None:
                client.close()

    async def _round(self) -> None:
        """Follow the leadership until told to stop or reload."""
        self.board.lead(None)
        jobs = self._jobs()
        self.diaries = [Diary(job.name) for job in jobs]
        always = [
            asyncio.create_task(keep(job, self._diary(job), self)) for job in jobs if not job.needs_leadership
        ]
        standing = Standing(self.settings.rule)
        try:
            while not (self._stopping.is_set() or self._reloading.is_set()):
                try:
                    await self._look(standing, jobs)
                except Exception as error:  # noqa: BLE001  told, and tried again: it ends no agent
                    self._tell_unseen(error)
                else:
                    self._tell_unseen(None)
                await self.sleep(self.settings.poll)
        finally:
            if self._stopping.is_set():
                self.board.stop()
            for task in always:
                task.cancel()
            await self._resign(self.settings.grace)

    def _jobs(self) -> list[Job]:
        settings = self.settings
        jobs = [job for job in settings.jobs if self._store is not None or not job.needs_store]
        if settings.full is not None and self._store is not None:
            jobs.insert(
                0, full_job(settings.full, lambda: self.captures, skip_unchanged=settings.skip_unchanged)
            )
        return jobs

    def _diary(self, job: Job) -> Diary:
        for diary in self.diaries:
            if diary.name == job.name:
                return diary
        self.diaries.append(Diary(job.name))
        return self.diaries[-1]

    # leadership

    async def _look(self, standing: Standing, jobs: Sequence[Job]) -> None:
        assert self._client is not None  # noqa: S101  opened before
        sight = await in_thread("status", partial(leadership.look, self._client, timeout=ETCD_SECONDS))
        self.journal.status = sight.status or self.journal.status
        if sight.status is not None and sight.status.leader:  # without a leader the question hangs
            await self._count_members()
        self._tell_etcd(sight.role, sight.error, sight.status.errors if sight.status is not None else ())
        leads = standing.learn(sight, is_alone=self.journal.cluster_size == 1)
        if leads == self.leads:
            return
        if leads:
            self._lead(jobs)
        elif self.leads:
            self.log.warning("leadership-lost", role=sight.role)
            await self._resign(0)
        if not leads:
            self._hand_over(jobs)
        self.board.lead(leads)

    def _hand_over(self, jobs: Sequence[Job]) -> None:
        """What only a leader does has its ticks served by another agent from now on."""
        mine = {job.name for job in jobs if not job.needs_leadership}
        self.timetables = {name: each for name, each in self.timetables.items() if name in mine}

    def _tell_unseen(self, error: Exception | None) -> None:
        """A look that failed is a fault until the next one that does not."""
        known = self.board.facts.faults.get(Fault.INTERNAL, "").startswith(UNSEEN)
        if error is not None:
            self.board.fault(Fault.INTERNAL, f"{UNSEEN}{error}")
            if not known:
                self.log.error("look-failed", **told(error))
        elif known:
            self.board.clear(Fault.INTERNAL)

    async def _count_members(self) -> None:
        client = self._client
        assert client is not None  # noqa: S101  opened before
        with suppress(EtcdError):
            self.journal.cluster_size = len(await in_thread("members", client.member_list))

    def _tell_etcd(self, role: Role, error: EtcdError | None, errors: Sequence[str]) -> None:
        if role is Role.SILENT:
            self.board.fault(Fault.ETCD_UNAVAILABLE, str(error))
        else:
            if self.captures is None:
                self.board.clear(Fault.ETCD_UNAVAILABLE)
            if role is Role.LEADERLESS:
                self.board.fault(Fault.ETCD_NO_LEADER, "etcd has no leader: see which of its members are up")
            else:
                self.board.clear(Fault.ETCD_NO_LEADER)
        for fault, word in ((Fault.ETCD_NOSPACE, "NOSPACE"), (Fault.ETCD_CORRUPT, "CORRUPT")):
            found = [text for text in errors if word in text]
            if found:
                self.board.fault(fault, f"etcd reports {'; '.join(found)}")
            elif role is not Role.SILENT:
                self.board.clear(fault)

    def _lead(self, jobs: Sequence[Job]) -> None:
        assert self._client is not None  # noqa: S101  opened before
        self.log.info("leads")
        after: asyncio.Event | None = None
        if self._store is not None:
            self.captures = Captures(
                self.settings,
                self._client,
                self._store,
                source=self._source,
                board=self.board,
                journal=self.journal,
                log=self.log,
                clock=self.clock,
                adopt=partial(
                    adopt, self._others(), self._client, self._store, Tagged(self.log, self._store.url)
                ),
            )
            self._leading = [asyncio.create_task(self.captures.run(), name="captures")]
            after = self.captures.opened
            jobs = [*jobs, *self._further(self._client)]
        self._leading += [
            asyncio.create_task(self._keep_after(after, job), name=job.name)
            for job in jobs
            if job.needs_leadership
        ]

    def _others(self) -> list[Callable[[], Store]]:
        """Further stores, in which a restore may have left word."""
        mirrors = self.settings.mirrors
        return [*(each.open for each in mirrors), *(each.standby for each in mirrors if each.standby)]

    def _further(self, client: EtcdClient) -> list[Job]:
        """What is done about further stores; begins to watch over the first."""
        mirrors, first = self.settings.mirrors, self.settings.open_store
        jobs = [
            job for each in mirrors for job in Mirroring(each, self.reached[each.name], self.journal).jobs()
        ]
        second = next((each for each in mirrors if each.standby is not None), None)
        if second is not None and first is not None:
            self.standby = Standby(
                second,
                self.settings,
                client,
                source=self._source,
                first=(self.board, self.journal),
                origins=[first, second.open],
                log=self.log,
                clock=self.clock,
            )
            self._leading.append(asyncio.create_task(self.standby.run(), name="standby"))
            jobs += self.standby.jobs()
        return jobs

    async def _keep_after(self, opened: asyncio.Event | None, job: Job) -> None:
        if opened is not None and job.needs_store:
            await opened.wait()
        await keep(job, self._diary(job), self)

    async def _resign(self, grace: float) -> None:
        """End what only a leader does; with a grace period after a last delta was cut, if it can be."""
        tasks, self._leading = self._leading, []
        captures, self.captures = self.captures, None
        standby, self.standby = self.standby, None
        last = asyncio.create_task(standby.finish(grace)) if standby is not None and grace else None
        for task in tasks[1:] if captures is not None else tasks:
            if last is None or task.get_name() != "standby":
                task.cancel()
        if captures is not None and grace:
            await captures.finish()
            await asyncio.wait(tasks[:1], timeout=grace)
            if not tasks[0].done():
                self.log.warning("last-delta-given-up", grace=grace)
        if last is not None:
            await last
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        settle(self.board, *FAULTS)

    # what jobs need, and others ask for

    def errand(self, job: Job, tick: datetime) -> Errand:
        """What a job is run with."""
        assert self._client is not None  # noqa: S101  opened before
        epoch = self.captures.epoch if self.captures is not None else None
        return Errand(
            tick,
            self._client,
            self._store,
            self.settings.writer,
            self.log,
            job.name,
            epoch=epoch,
            now=self.clock.now,
        )

    async def sleep(self, seconds: float) -> None:
        """Or until told to stop or reload."""
        waits = [asyncio.create_task(each.wait()) for each in (self._stopping, self._reloading)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def full(self, *, final: bool | None = None) -> Captured | None:
        """Take a full now.  Raises FencedError where this agent writes nothing, and what stopped it."""
        return await self._writing().full(final=final, why="asked for")

    async def delta(self) -> Capture:
        """Store everything up to now.  Raises as `full` does."""
        return await self._writing().delta()

    def _writing(self) -> Captures:
        if self.captures is None:
            state = self.board.state
            why = "it has no store" if self._store is None else f"it is {state.phase} ({state.reason})"
            raise FencedError(
                f"this agent writes no backups now: {why}", hint="ask the agent beside etcd's leader"
            )
        return self.captures

    def expected_intervals(self) -> dict[str, float]:
        """Seconds between two deltas, and at most between two runs of each job as they are scheduled next."""
        found: dict[str, float] = {}
        settings, now = self.settings, self.clock.now()
        if self._store is None:
            return found
        if settings.delta_every is not None:
            found["delta"] = settings.delta_every
        crons: list[tuple[str, Cron | None]] = [("full", settings.full)]
        for name, cron in (*crons, *((job.name, job.cron) for job in settings.jobs)):
            pause = cron.longest_pause(now) if cron is not None else None
            if pause is not None:
                found[name] = pause.total_seconds()
        return found

    def proof_intervals(self) -> dict[Check, float]:
        """At most between two proofs that are scheduled for a check, in seconds."""
        jobs = self.settings.jobs if self._store is not None else ()
        now = self.clock.now()
        pauses = {job.proves: job.cron.longest_pause(now) for job in jobs if job.proves and job.cron}
        return {check: pause.total_seconds() for check, pause in pauses.items() if pause is not None}

    # looking after itself

    async def _watch(self) -> None:
        """Late steps, a clock that was set, files that changed."""
        wall, monotonic = self.clock.now(), self.clock.monotonic()
        while True:
            await asyncio.sleep(min(WATCHDOG, self.settings.poll))
            self.board.watch()
            now, passed = self.clock.now(), self.clock.monotonic()
            gained = (now - wall).total_seconds() - (passed - monotonic)
            wall, monotonic = now, passed
            if abs(gained) > JUMP:
                self.journal.clock_jumps += 1
                self.log.warning("clock-jumped", seconds=gained)
            if self._stamp != _stamp(self.settings.files):
                self.log.info("files-changed")
                self._stamp = _stamp(self.settings.files)
                self.reload()


def _stamp(files: Sequence[Path]) -> tuple[object, ...]:
    """Something that changes when one of the files does, also when a mounted Secret is exchanged."""
    found: list[object] = []
    for file in files:
        try:
            state = os.stat(file)  # noqa: PTH116  follows links, which is where Kubernetes changes them
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_ino, state.st_size))
    return tuple(found)
