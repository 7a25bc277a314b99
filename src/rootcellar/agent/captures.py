"""Captures, while this agent leads: a session that is always open, and what is done about its faults.

Nothing ends it but being told so.  A session that another writer, or a restore of etcd, has ended is followed
by the next, after a pause where that is wise (`backoff`); everything else is tried again in the same one, so
that what was taken off the watch is not lost.

Losing the leadership cancels `run`: the session is closed, and what is on its way to the store becomes no
object.  The end of the process is kinder: `finish` has a last delta cut.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.agent.backoff import Backoff, rule_for
from rootcellar.agent.state import UNREAD, Fault
from rootcellar.agent.threads import in_thread
from rootcellar.backup.capture.outcome import Capture, Need, NeedFull
from rootcellar.backup.capture.proof import prove_upload
from rootcellar.backup.capture.session import Session
from rootcellar.errors import (
    EtcdUnavailableError,
    FencedError,
    ForkedError,
    IdentityError,
    RootcellarError,
    StoreError,
)
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from rootcellar.agent.board import Board
    from rootcellar.agent.clock import Clock
    from rootcellar.agent.journal import Journal
    from rootcellar.agent.settings import Settings
    from rootcellar.backup.capture.outcome import Captured, Deltas
    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.logs import Log
    from rootcellar.stores.protocol import Store

OPEN_BOUND = 300.0
FULL_BOUND = 3600.0
BEAT_BOUND = 120.0
STORE_SECONDS = 300.0
"""What storing a delta may take beyond its period before the watchdog says so."""
WEDGED = 4.0
"""After so many times its bound a step is given up, and its session with it."""
SPARING = 900.0
"""Seconds between two fulls for what deltas can go on without: new users, revisions too large for EBR, a
damaged object.
"""
STEPS = frozenset({"open", "deltas", "full"})
"""What is timed under these names is a capture's; jobs have names of their own."""

_OPENING = 10.0
"""Seconds that whoever asks for a capture waits for a session that is being opened."""
_ETCD_MAY_RETURN = 5.0
"""Seconds that an etcd which is away is waited for at the end of the process."""

_BLOCKING = frozenset(Need) - {Need.AUTH, Need.EBR, Need.DAMAGED}
_OF_ETCD = (Fault.ETCD_UNAVAILABLE, Fault.ETCD_DENIED, Fault.ETCD)
_OF_STORE = (Fault.STORE_UNAVAILABLE, Fault.STORE_DENIED, Fault.STORE)
_OURS = (*_OF_ETCD, *_OF_STORE, Fault.FENCED, Fault.FOREIGN, Fault.INTERNAL)
FAULTS = (*_OURS, Fault.GAP, Fault.DAMAGED, Fault.PROOF, Fault.JOB)
"""What can only be wrong while this agent leads."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """Somebody who asked for a delta, and when (monotonic); the full that had to come first, if one had."""

    since: float
    future: asyncio.Future[Capture]
    full: Captured | None = None


class Captures:
    """One stay as the leader."""

    def __init__(  # noqa: PLR0913 - what one agent is made of
        self,
        settings: Settings,
        client: EtcdClient,
        store: Store,
        *,
        source: EtcdClient | None,
        board: Board,
        journal: Journal,
        log: Log,
        clock: Clock,
        adopt: Callable[[], bool] = lambda: False,
    ) -> None:
        """`adopt` is asked where the store takes the cluster for a foreign one: whether it may try again."""
        self._settings = settings
        self._adopt = adopt
        self._client = client
        self._source = source
        self._store = store
        self._board = board
        self._journal = journal
        self._log = log
        self._clock = clock
        self._backoff = Backoff()
        self._session: Session | None = None
        self._has_session = asyncio.Event()
        self._full: asyncio.Task[Captured | None] | None = None
        self._awaited: asyncio.Task[Captured | None] | None = None
        """The full without which deltas cannot go on, until somebody has looked at what it came to."""
        self._waiters: list[_Waiter] = []
        self._wake = asyncio.Event()
        self._finishing: float | None = None
        self._told_at_end: set[Fault] = set()
        self._ended_by: RootcellarError | None = None
        self._spared_until = 0.0
        self.opened = asyncio.Event()
        """Set once a session was opened: from then on the journal knows what the store holds."""
        self.last_full_at: datetime | None = None

    async def run(self) -> None:
        """Until cancelled, or finished."""
        try:
            while self._finishing is None:
                try:
                    await self._stay()
                except ForkedError as error:
                    self._log.warning("etcd-restored", **told(error))
                except Exception as error:  # noqa: BLE001  told, and tried again: an agent never gives up
                    await self._pause(error)
        finally:
            self._leave()
            self._refuse_waiters(FencedError("this agent writes no backups any more", hint=_HINT))

    async def finish(self) -> None:
        """Have a last delta cut, then end."""
        self._finishing = time.monotonic()
        if self._session is not None:
            self._session.cut()
        self._wake.set()

    # what others ask for

    @property
    def epoch(self) -> Epoch | None:
        """That of the session that is open."""
        return self._session.epoch if self._session is not None else None

    async def delta(self) -> Capture:
        """Store everything up to now; with the full that was needed for it, if one was.

        Raises FencedError where this agent writes nothing, and what stopped the attempt.
        """
        session = await self._the_session()
        waiter = _Waiter(time.monotonic(), asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._hurry(session)
        return await waiter.future

    async def full(
        self, *, final: bool | None = None, unless_unchanged: bool = False, why: str
    ) -> Captured | None:
        """Take a full; None where nothing changed.  One that is under way is waited for first.

        Raises FencedError where this agent writes nothing, and what stopped the attempt.
        """
        session = await self._the_session()
        while self._full is not None and not self._full.done():
            await asyncio.wait({self._full})
            session = await self._the_session()  # that one may have ended with it
        task = self._begin_full(session, why, final=final, unless_unchanged=unless_unchanged)
        await asyncio.wait({task})
        if task.cancelled():
            raise FencedError("the session ended before its full was taken", hint=_HINT)
        return task.result()

    async def _the_session(self) -> Session:
        """The one that is open.  One that is just being opened is waited for: whoever asks has read that this
        agent leads.
        """
        if self._finishing is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPENING):
                    await self._has_session.wait()
        if self._session is None:
            raise FencedError(
                f"this agent writes no backups now: it is {self._board.state.phase}"
                f" ({self._board.state.reason})",
                hint=_HINT,
            )
        return self._session

    # one session

    async def _stay(self) -> None:
        async with self._step("open", OPEN_BOUND):
            session = await in_thread("open", self._open, drop=Session.close)
        self._session, self._ended_by = session, None
        self._has_session.set()
        try:
            catalogue = session.take_catalogue()
            self._journal.opened(session, catalogue)
            self._journal.epochs[self._store.url] = session.epoch.number
            self.last_full_at = max(
                (each.record.captured_at for each in catalogue.snapshots if each.is_full and each.record),
                default=None,
            )
            del catalogue
            self.opened.set()
            self._works()
            self._tell_opened(session)
            await self._use(session)
        finally:
            self._leave()

    def _open(self) -> Session:
        try:
            return self._opened()
        except IdentityError:
            if not self._adopt():
                raise
            return self._opened()

    def _opened(self) -> Session:
        return Session(
            self._client,
            self._store,
            writer=self._settings.writer,
            source=self._source,
            after=self._journal.epochs.get(self._store.url, 0),
            options=self._settings.options,
            clock=self._clock.now,
        )

    def _tell_opened(self, session: Session) -> None:
        self._log.info(
            "session",
            epoch=session.epoch.number,
            timeline=session.timeline_number,
            continues=session.need is None,
            reached=session.reached,
            **({} if session.need is None else {"why": session.need.reason}),
        )
        if session.timeline is not None and session.timeline.parent is not None:
            self._log.warning(
                "timeline",
                timeline=session.timeline.number,
                parent=session.timeline.parent,
                forked_at=session.timeline.forked_at,
                moved=len(session.abandoned.moved) if session.abandoned else 0,
            )
        for key in session.abandoned.locked if session.abandoned else ():
            self._log.warning("not-moved", key=key, hint="do not use etcdbrctl on this prefix any more")

    def _leave(self) -> None:
        session, self._session = self._session, None
        self._has_session.clear()
        if session is not None:
            # Closing waits for the watch's thread, which may wait for etcd.
            threading.Thread(target=session.close, name="session-close", daemon=True).start()
        full, self._full, self._awaited = self._full, None, None
        if full is not None:
            full.cancel()  # it may hang: the next session must neither wait for it nor end with it

    @asynccontextmanager
    async def _step(self, name: str, bound: float, *, work: bool = False) -> AsyncIterator[None]:
        """A step of a session.  Raises FencedError where it takes so long that the session is given up."""
        limit = asyncio.timeout(bound * WEDGED)
        with self._board.step(name, bound, work=work):
            try:
                async with limit:
                    yield
            except TimeoutError:
                if not limit.expired():
                    raise
                raise FencedError(
                    f"{name} took longer than {bound * WEDGED:.0f} s: the session was given up",
                    hint="the store or etcd answers nothing at all",
                ) from None

    async def _use(self, session: Session) -> None:
        every = self._settings.delta_every
        tick = self._clock.monotonic()  # the first collection catches up
        while True:
            deadline = None if every is None else tick
            try:
                await self._collect(session, deadline)
            except (FencedError, ForkedError):
                raise
            except RootcellarError as error:
                self._resolve_waiters(session, error)
                if self._is_over(error):
                    self._log.warning("last-delta-given-up", **told(error))
                    return
                await self._pause(error)
                continue
            if self._ended_by is not None:
                raise self._ended_by
            if self._finishing is not None and session.asked_at >= self._finishing:
                return
            if every is None:
                await self._wake.wait()
                self._wake.clear()
            elif (now := self._clock.monotonic()) >= tick:  # what was cut short leaves its tick to the next
                tick = tick + every if tick + every > now else now + every

    def _is_over(self, error: RootcellarError) -> bool:
        """Whether nothing can come of a last delta: an etcd in the same pod ends at the same signal."""
        if self._finishing is None or not isinstance(error, EtcdUnavailableError):
            return False
        return time.monotonic() - self._finishing > _ETCD_MAY_RETURN

    async def _collect(self, session: Session, deadline: float | None) -> None:
        """One period: collect, beat, and take the full that is needed, if one is."""
        left = max(0.0, deadline - self._clock.monotonic()) if deadline is not None else 0.0
        async with self._step("deltas", left + STORE_SECONDS):
            done = await in_thread("deltas", lambda: session.collect(deadline))
        self._take_awaited()
        if self._awaited is None and (done.need is None or done.need.need not in _BLOCKING):
            self._works()
        elif session.is_following:  # etcd has answered; the store may still refuse the full
            self._board.clear(*_OF_ETCD)
        self._journal.all_captured(done.written)
        for each in done.written:
            self._tell(each)
        if session.point is not None and session.point != self._journal.point:
            self._journal.point = session.point
            await self._beat(session)
        for each in done.written:
            await self._prove(each)
        full = await self._needed(session, done.need)
        self._resolve_waiters(session, None, done, full)

    async def _beat(self, session: Session) -> None:
        """A heartbeat that fails is told; the next one says all that it would have said."""
        try:
            with self._board.step("heartbeat", BEAT_BOUND):
                async with asyncio.timeout(BEAT_BOUND):
                    await in_thread("heartbeat", session.beat)
        except (StoreError, TimeoutError) as error:
            self._log.warning("heartbeat-failed", **told(error))

    async def _prove(self, captured: Captured) -> None:
        """File what the upload proves in passing.  What failed is told, and `_needed` has a full taken.

        It decides nothing about the capture: where the store does not answer there is no proof of this one.
        """
        bound = FULL_BOUND if captured.snapshot.is_full else BEAT_BOUND
        try:
            with self._board.step("upload-proof", bound):
                async with asyncio.timeout(bound):
                    proof = await in_thread(
                        "upload-proof", lambda: prove_upload(self._store, captured, self._clock.now)
                    )
        except (StoreError, TimeoutError) as error:
            self._journal.uploads["unfiled"] += 1
            self._log.warning("upload-not-proven", key=captured.key, **told(error))
            return
        self._journal.uploaded(captured, proof)
        if (failed := proof.failed) is not None:
            self._log.error(
                "upload-damaged", key=captured.key, check=failed.check, detail=failed.detail, hint=_DAMAGED
            )

    def _damage(self) -> NeedFull | None:
        """The full that a damaged object asks for."""
        damage = self._journal.damage
        if damage is None:
            self._board.clear(Fault.DAMAGED)
            return None
        self._board.fault(Fault.DAMAGED, damage.detail)
        if self._finishing is not None:
            return None  # the next start reads of it in the store, and has the time
        return NeedFull(Need.DAMAGED, damage.detail)

    async def _needed(self, session: Session, need: NeedFull | None) -> Captured | None:
        """Take the full that deltas need.  Those that can go on without are not waited for."""
        damage = self._damage()
        if need is None:
            if self._awaited is None:
                self._board.clear(Fault.GAP)
            need = damage
        if need is None:
            return None
        running = self._full is not None and not self._full.done()
        if is_blocking := need.need in _BLOCKING:
            # Nothing is stored until this full is: that is a gap, unless nothing was to be stored before.
            if need.need not in (Need.FIRST, Need.FINAL):
                self._board.fault(Fault.GAP, f"deltas cannot go on: {need.reason}")
        elif running or self._clock.monotonic() < self._spared_until:
            return None
        else:
            self._spared_until = self._clock.monotonic() + SPARING
        task = self._full if running else self._begin_full(session, need.reason)
        assert task is not None  # noqa: S101  one or the other
        if self._waiters or self._finishing is not None:
            await asyncio.wait({task})
        if is_blocking:
            return await self._await(session, task)
        return task.result() if task.done() else None

    async def _await(self, session: Session, task: asyncio.Task[Captured | None]) -> Captured | None:
        """Until there are deltas to collect behind a full; what it came to, if it has come that far."""
        self._awaited = task
        while not task.done() and not session.is_following:
            await asyncio.wait({task}, timeout=0.1)
        return self._take_awaited()

    def _take_awaited(self) -> Captured | None:
        """What the full that deltas wait for came to, once it has.  Raises what stopped it, once."""
        task = self._awaited
        if task is None or not task.done():
            return None
        self._awaited = None
        return task.result()

    def _begin_full(
        self, session: Session, why: str, *, final: bool | None = None, unless_unchanged: bool = False
    ) -> asyncio.Task[Captured | None]:
        self._journal.why_full = why
        self._full = asyncio.create_task(self._take_full(session, why, final, unless_unchanged), name="full")
        self._full.add_done_callback(_looked_at)
        return self._full

    async def _take_full(
        self, session: Session, why: str, final: bool | None, unless_unchanged: bool
    ) -> Captured | None:
        try:
            async with self._step("full", FULL_BOUND, work=True):
                captured = await in_thread(
                    "full", lambda: session.full(final=final, unless_unchanged=unless_unchanged)
                )
        except Exception as error:
            self._journal.full.failures += 1
            self._journal.failures[rule_for(error).fault] += 1
            self._log.warning("full-failed", why=why, **told(error))
            if isinstance(error, FencedError | ForkedError):
                self._ended_by = error
            if self._ended_by is not None or self._awaited is asyncio.current_task():
                self._hurry(session)
            raise
        if captured is None:
            self._log.info("full-skipped", why=why, reason="nothing changed since the last one")
            return None
        self._journal.captured(captured)
        self._journal.point = session.point
        self.last_full_at = captured.record.captured_at
        self._works()
        self._board.clear(Fault.GAP)
        self._tell(captured, why)
        damage = self._journal.damage
        if damage is not None and damage.revision <= captured.record.last_revision:
            self._journal.damage = None  # unless this one is, too
        await self._prove(captured)
        self._damage()
        return captured

    # telling, waiting

    def _hurry(self, session: Session) -> None:
        """End the collection that runs, and have the next one begin at once."""
        session.cut()
        self._wake.set()

    def _works(self) -> None:
        self._backoff.reset()
        settle(self._board, *_OURS)

    def _tell(self, captured: Captured, why: str | None = None) -> None:
        record = captured.record
        values = {} if why is None else {"why": why}
        self._log.info(
            "stored",
            key=record.key,
            last=record.last_revision,
            size=record.payload_size,
            stored=record.stored_size,
            seconds=captured.seconds,
            **values,
        )
        for notice in record.warnings:
            self._log.warning("notice", key=record.key, notice=notice.code, message=notice.message)

    async def _pause(self, error: BaseException) -> None:
        """Say what is wrong, and wait before the next attempt."""
        fault = rule_for(error).fault
        pause = self._backoff.pause(error)
        if self._finishing is not None:
            pause = min(pause, 0.5)
        self._journal.failures[fault] += 1
        self._board.fault(fault, str(error))
        if fault not in self._told_at_end:  # then it is tried too often to tell each failure
            self._log.warning("capture-failed", fault=fault, again_in=pause, **told(error))
        if self._finishing is not None:
            self._told_at_end.add(fault)
        self._wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), pause)

    def _resolve_waiters(
        self,
        session: Session,
        error: RootcellarError | None,
        done: Deltas | None = None,
        full: Captured | None = None,
    ) -> None:
        waiting, self._waiters = self._waiters, []
        is_blocked = done is not None and done.need is not None and done.need.need in _BLOCKING
        asked_at = session.point_asked_at if is_blocked else session.asked_at
        for waiter in waiting:
            if waiter.future.done():
                continue
            waiter.full = full or waiter.full
            if error is not None:
                waiter.future.set_exception(error)
            elif done is not None and asked_at >= waiter.since:
                waiter.future.set_result(Capture(done.written, waiter.full, done.need))
            else:  # it asked behind the tick of this collection, or when the full had begun
                self._waiters.append(waiter)
        if self._waiters:
            self._hurry(session)

    def _refuse_waiters(self, error: RootcellarError) -> None:
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self._waiters.clear()


_HINT = "`rootcellar status` shows what the agents do; ask the one that leads"
_DAMAGED = "a full is taken in its place; find out who writes to this prefix, or whether the store loses data"


def settle(board: Board, *faults: Fault) -> None:
    """Clear these, and what captures found wrong with the configuration; a reload that failed stays told."""
    is_reload = board.facts.faults.get(Fault.CONFIG, "").startswith(UNREAD)
    board.clear(*faults, *(() if is_reload else (Fault.CONFIG,)))


def _looked_at(task: asyncio.Task[Captured | None]) -> None:
    if not task.cancelled():
        task.exception()
