"""A chain in the next store, while the first one takes nothing.

The first store is never given up: its session stays open, keeps what it has taken off the watch, and tries
again.  Once it has taken nothing for long enough, a second session is opened beside a mirror, with an epoch,
a timeline and a watch of its own, and begins with a full where nothing there can be continued.  When the
first store takes something again, a last delta is cut here and the session ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rootcellar.agent.board import Board
from rootcellar.agent.captures import STEPS, Captures
from rootcellar.agent.jobs import Job
from rootcellar.agent.journal import Journal
from rootcellar.agent.state import UNREAD, UNSEEN, Fault
from rootcellar.backup.catalogue.intents import carry_intents
from rootcellar.backup.prune.prune import ask, prune
from rootcellar.errors import RootcellarError, StoreError
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rootcellar.agent.clock import Clock
    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.mirror import Mirror
    from rootcellar.agent.settings import Settings
    from rootcellar.backup.capture.session import RecoveryPoint
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.logs import Log
    from rootcellar.stores.protocol import Store

NOT_ETCD = frozenset(
    {
        *(Fault.STORE_UNAVAILABLE, Fault.STORE_DENIED, Fault.STORE),
        *(Fault.STUCK, Fault.CONFIG, Fault.INTERNAL),
    }
)
"""What may be the first store's: where etcd is away, or another writes, the next store is no help."""
_LOOK = 0.5
_AGAIN = 60.0
"""Seconds between two attempts to open a place whose credentials cannot be read."""


def suspected(board: Board) -> set[Fault]:
    """Faults that may be the store's: not those of a reload, of a look at etcd or of a job that takes long,
    behind which no new recovery point has to come.
    """
    faults = board.facts.faults
    found = {each for each in NOT_ETCD & faults.keys() if not faults[each].startswith((UNREAD, UNSEEN))}
    if not any(step.is_told and step.name in STEPS for step in board.steps):
        found.discard(Fault.STUCK)
    return found


class Outage:
    """How long a store has taken nothing: from the first fault on, until a newer recovery point.

    A fault that is gone while the next attempt runs does not end it.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._before: RecoveryPoint | None = None

    def see(self, now: float, faults: Collection[Fault], point: RecoveryPoint | None) -> float | None:
        """Seconds, by a monotonic clock's reading; None while all is well."""
        if self._since is not None and point != self._before:
            self._since = None
        if self._since is None and NOT_ETCD & set(faults):
            self._since, self._before = now, point
        return None if self._since is None else now - self._since


@dataclass(frozen=True)
class Tagged:
    """A log whose every line says which store it is about."""

    log: Log
    store: str

    def info(self, event: str, **values: Any) -> Any:
        return self.log.info(event, **{"store": self.store, **values})

    def warning(self, event: str, **values: Any) -> Any:
        return self.log.warning(event, **{"store": self.store, **values})

    def error(self, event: str, **values: Any) -> Any:
        return self.log.error(event, **{"store": self.store, **values})


class Standby:
    """The chain beside one mirror, for one stay as the leader."""

    def __init__(
        self,
        mirror: Mirror,
        settings: Settings,
        client: EtcdClient,
        *,
        source: EtcdClient | None,
        first: tuple[Board, Journal],
        origins: Sequence[Callable[[], Store]],
        log: Log,
        clock: Clock,
    ) -> None:
        """`first` is what is known of the first store; `origins` may know of restores."""
        assert mirror.standby is not None  # noqa: S101  made for those that have one
        self.name = f"{mirror.name}-standby"
        self._mirror = mirror
        self._open = mirror.standby
        self.url = ""
        self._settings = replace(settings, options=mirror.options)
        self._client = client
        self._source = source
        self._first = first
        self._origins = origins
        self._log = log
        self._clock = clock
        self._outage = Outage()
        self.journal = Journal()
        self.board = Board(clock, Tagged(log, self.name))
        self.captures: Captures | None = None
        self._task: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._fulls_before = 0
        self._not_before = 0.0

    @property
    def is_active(self) -> bool:
        return self.captures is not None

    async def run(self) -> None:
        """Watch the first store until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(_LOOK)
        finally:
            self._end()

    def _look(self) -> None:
        board, journal = self._first
        down = self._outage.see(self._clock.monotonic(), suspected(board), journal.point)
        now = self._clock.monotonic()
        if down is not None and self.captures is None and down >= self._settings.standby_after:
            if now >= self._not_before:
                self._not_before = now + _AGAIN
                self._begin(down)
        elif down is None and self.captures is not None and self._finishing is None:
            self._finishing = asyncio.create_task(self.finish(self._settings.grace))
            self._finishing.add_done_callback(lambda _task: self._back())

    def _begin(self, down: float) -> None:
        self._fulls_before = self._first[1].full.count
        try:
            store = self._open()
        except RootcellarError as error:
            self._log.warning("standby-failed", store=self.name, **told(error))
            return
        self.url = store.url
        self._log.warning("standby-begun", store=self.name, url=store.url, down=down)
        self.captures = Captures(
            self._settings,
            self._client,
            store,
            source=self._source,
            board=self.board,
            journal=self.journal,
            log=Tagged(self._log, self.name),
            clock=self._clock,
            adopt=partial(adopt, self._origins, self._client, store, Tagged(self._log, self.name)),
        )
        self._task = asyncio.create_task(self.captures.run(), name=self.name)

    async def finish(self, grace: float) -> None:
        """Have a last delta cut, and end."""
        captures, task = self.captures, self._task
        if captures is None or task is None:
            return
        await captures.finish()
        await asyncio.wait({task}, timeout=grace)
        self._end()

    def _back(self) -> None:
        """The first store takes backups again: say how it goes on there."""
        self._finishing = None
        how = "full" if self._first[1].full.count > self._fulls_before else "continued"
        self._log.info("standby-ended", store=self.name, how=how)

    def _end(self) -> None:
        task, self._task, self.captures = self._task, None, None
        if task is not None:
            task.cancel()

    def jobs(self) -> list[Job]:
        """Its own pruning, while it is written to."""
        mirror = self._mirror
        if mirror.prune is None or mirror.rules is None:
            return []
        return [Job(f"prune-{self.name}", mirror.prune, self._prune)]

    async def _prune(self, errand: Errand) -> str:
        epoch = self.captures.epoch if self.captures is not None else None
        rules = self._mirror.rules
        if epoch is None or rules is None:
            return "nothing is written there now"
        live = await errand.thread(lambda: ask(errand.client))
        done = await errand.thread(
            lambda: prune(self._open(), rules, writer=errand.writer, epoch=epoch, live=live)
        )
        for key, error in done.failed.items():
            raise StoreError(f"{len(done.failed)} objects cannot be deleted, the first {key}: {error}")
        return f"{len(done.deleted)} objects deleted"


def adopt(origins: Sequence[Callable[[], Store]], client: EtcdClient, target: Store, log: Log) -> bool:
    """Whether another store knows of the restore that made this cluster; then the target knows it, too.

    For a store that takes the cluster for a foreign one.  An origin that does not answer is told and done
    without.  Raises EtcdErrors.
    """
    cluster_id = f"{client.header().cluster_id:x}"
    is_known = False
    for origin in origins:
        try:
            store = origin()
            for intent in carry_intents(store, target, cluster_id):
                log.info("restore-known", origin=store.url, forked_at=intent.forked_at, by=intent.by)
                is_known = True
        except RootcellarError as error:
            log.warning("restores-unknown", **told(error))
    return is_known
