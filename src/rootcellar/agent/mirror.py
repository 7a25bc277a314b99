"""Further stores: each is filled by verbatim copy with what the first one has, and prunes for itself.

The first store alone acknowledges.  A mirror that is away costs captures nothing: its job fails, is told, and
is tried again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.agent.jobs import Job, every
from rootcellar.backup.capture.session import CaptureOptions
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.fence import check_epoch, claim_epoch
from rootcellar.backup.catalogue.memory import Memory, RememberingStore
from rootcellar.backup.copy.copy import copy, plan
from rootcellar.backup.copy.plan import CopyWish
from rootcellar.backup.prune.plan import plan_prune
from rootcellar.backup.prune.prune import ask, prune, survey
from rootcellar.errors import ConfigError, DoubtError, FencedError, StoreError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import datetime

    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.journal import Journal
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.capture.session import RecoveryPoint
    from rootcellar.backup.catalogue.ownership import Epoch
    from rootcellar.backup.copy.copy import Copied
    from rootcellar.backup.prune.values import Live, Rules
    from rootcellar.stores.protocol import Store

PARALLEL = 4
_AGAIN = 60.0
"""Seconds until what could not be copied is tried again, with or without a new capture."""


@dataclass(frozen=True)
class Mirror:
    """A further store, filled at each tick of `cron`, or `every` so many seconds, or behind each capture.

    `standby` is where a chain is written while the first store takes nothing, and
    `options` say how; without one there is none.  `rules` None: what was copied is kept.  One that
    `wants_encryption` gets nothing that is in the clear.
    """

    name: str
    url: str
    open: Callable[[], Store]
    cron: Cron | None = None
    every: float | None = None
    prune: Cron | None = None
    rules: Rules | None = None
    standby: Callable[[], Store] | None = None
    options: CaptureOptions = field(default_factory=CaptureOptions)
    parallel: int = PARALLEL
    wants_encryption: bool = False

    def expected_lag(self, now: datetime) -> float:
        """Seconds that it may be behind by its schedule; 0 where it is filled behind each capture."""
        pause = self.cron.longest_pause(now) if self.cron is not None else None
        return pause.total_seconds() if pause is not None else self.every or 0.0


@dataclass
class Reached:
    """How far a mirror is.

    `point` is the recovery point of the first store that it holds, `mark` what that store held then.
    `failed` counts objects that could not be copied.
    """

    name: str
    url: str = ""
    point: RecoveryPoint | None = None
    mark: Hashable = None
    copied: int = 0
    size: int = 0
    failed: int = 0
    ended_at: datetime | None = None

    def held(self, journal: Journal) -> RecoveryPoint | None:
        """The recovery point that it holds: the first store's own, while nothing is missing."""
        return journal.point if self.mark == mark_of(journal) else self.point

    def lag(self, journal: Journal) -> Lag | None:
        """How far it is behind the first store; None before that has a recovery point."""
        point = journal.point
        if point is None:
            return None
        held = self.held(journal)
        if held is None:
            return Lag(point.revision, None)
        behind = (point.at - held.at).total_seconds()
        return Lag(max(0, point.revision - held.revision), max(0.0, behind))


@dataclass(frozen=True, slots=True)
class Lag:
    """Behind the first store: `revisions`, and `seconds` between the two recovery points (None: it has
    none).
    """

    revisions: int
    seconds: float | None


def mark_of(journal: Journal) -> Hashable:
    """Something that changes when the first store holds more than before."""
    proof = journal.proof.at if journal.proof is not None else None
    held = journal.full.revision, journal.delta.revision
    return journal.timeline, journal.full.count, journal.delta.count, held, proof, journal.uploads.total()


class Mirroring:
    """The jobs of one mirror, for one stay as the leader."""

    def __init__(self, mirror: Mirror, reached: Reached, journal: Journal) -> None:
        self._mirror = mirror
        self._reached = reached
        self._journal = journal
        self._one = asyncio.Lock()
        self._epoch: Epoch | None = None
        self._memories = Memory(), Memory()
        self._again = every(_AGAIN)

    def jobs(self) -> list[Job]:
        """The copying, and the pruning where there are rules."""
        mirror = self._mirror
        mark = self._held if mirror.every is None else every(mirror.every)
        found = [Job(f"mirror-{mirror.name}", mirror.cron, self._copy, mark=mark)]
        if mirror.rules is not None and mirror.prune is not None:
            found.append(Job(f"prune-{mirror.name}", mirror.prune, self._prune))
        elif mirror.rules is not None and mirror.every is not None:
            found.append(Job(f"prune-{mirror.name}", None, self._prune, mark=every(mirror.every)))
        return found

    def _held(self) -> Hashable:
        """Changes with the first store; and in time while something of it is missing here, which may have
        been away with its disk: an etcd at rest gives no other reason to look again.
        """
        if self._journal.point is None:
            return None
        mark = mark_of(self._journal)
        return (mark, self._again()) if self._reached.failed else mark

    async def _copy(self, errand: Errand) -> str:
        source = errand.store
        assert source is not None  # noqa: S101  the job needs one
        point, mark = self._journal.point, mark_of(self._journal)
        async with self._one:
            done = await errand.thread(lambda: self._fill(source, errand.tick))
        if errand.epoch is not None and done.epoch < errand.epoch.number:
            raise TransientError(
                "the first store does not show what was written to it",
                hint="its disk may not be mounted: nothing of the mirror was changed",
            )
        reached = self._reached
        reached.copied += len(done.copied)
        reached.size += done.size
        reached.failed = len(done.failed) + len(done.left_out)
        reached.ended_at = errand.tick
        for failure in done.failed:
            errand.log.warning("not-copied", store=self._mirror.name, key=failure.key, reason=failure.reason)
        if not reached.failed:
            reached.point, reached.mark = point, mark
        told = f"{len(done.copied)} objects copied, {len(done.present)} were there"
        return f"{told}, {reached.failed} could not be" if reached.failed else told

    def _fill(self, source: Store, now: datetime) -> Copied:
        """Both catalogues are read whole, but each of their documents once for each stay."""
        first, second = self._memories
        return fill(
            RememberingStore(source, first), RememberingStore(self._mirror.open(), second), self._mirror, now
        )

    async def _prune(self, errand: Errand) -> str:
        live = await errand.thread(lambda: ask(errand.client))
        async with self._one:
            return await errand.thread(lambda: self._pruned(errand, live))

    def _pruned(self, errand: Errand, live: Live) -> str:
        """In an epoch of this store's own, taken once for each stay: nobody else writes here by right."""
        rules = self._mirror.rules
        assert rules is not None  # noqa: S101  there is no such job without
        store = self._mirror.open()
        if not any(store.list()):
            return "there is nothing yet"
        if self._epoch is None:
            self._epoch = claim_epoch(store, errand.writer, errand.tick)
        try:
            check_epoch(store, self._epoch)
            done = prune(store, rules, writer=errand.writer, epoch=self._epoch, live=live)
        except FencedError:
            self._epoch = None
            raise
        for key, error in done.failed.items():
            raise StoreError(f"{len(done.failed)} objects cannot be deleted, the first {key}: {error}")
        return f"{len(done.deleted)} objects deleted"


def fill(source: Store, destination: Store, mirror: Mirror, now: datetime) -> Copied:
    """Copy what the mirror, opened as `destination`, lacks and would keep.

    Raises what `copy` does; ConfigError for what is in the clear and must not be there.
    """
    wanted = wish(source, destination, mirror.rules, now)
    if mirror.wants_encryption:
        for move in plan(source, destination, wanted, now).moves:
            if move.is_due and not move.snapshot.name.is_encrypted:
                raise ConfigError(
                    f"store @{mirror.name} wants encryption, and {move.snapshot.key} is not encrypted",
                    hint="give the store that it mirrors `encryption` too, and an empty prefix",
                )
    return copy(source, destination, wanted, parallel=mirror.parallel)


def wish(source: Store, destination: Store, rules: Rules | None, now: datetime) -> CopyWish:
    """Everything, but for what the destination's own retention has deleted or would delete."""
    buried = {tombstone.key for tombstone in read_catalogue(destination).tombstones}
    if rules is not None:
        with suppress(DoubtError):  # then the source is not pruned either
            doomed = plan_prune(survey(source), rules, now).doomed
            buried |= {each.snapshot.name.key for each in doomed if each.snapshot is not None}
    return CopyWish(without=frozenset(buried))
