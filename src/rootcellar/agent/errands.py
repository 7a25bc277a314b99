"""Jobs that the store's content asks for: fulls, and retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.agent.jobs import Job
from rootcellar.backup.prune.prune import ask, prune
from rootcellar.errors import FencedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import datetime

    from rootcellar.agent.captures import Captures
    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.prune.values import Rules


def full_job(cron: Cron, captures: Callable[[], Captures | None], *, skip_unchanged: bool) -> Job:
    """A full at each tick.  One that was taken since the tick, for whatever reason, is it."""

    async def run(errand: Errand) -> str:
        current = captures()
        if current is None:
            raise FencedError("this agent does not lead")
        await current.opened.wait()
        if errand.is_served(current.last_full_at):
            return "a full was taken since"
        taken = await current.full(unless_unchanged=skip_unchanged, why="schedule")
        return taken.key if taken is not None else "nothing changed since the last full"

    def since() -> datetime | None:
        current = captures()
        return current.last_full_at if current is not None else None

    return Job("full", cron, run, since=since)


def prune_job(cron: Cron | None, rules: Rules, mark: Callable[[], Hashable] = lambda: None) -> Job:
    """What the retention rules do not keep is deleted at each tick, in the epoch of the open session."""

    async def run(errand: Errand) -> str:
        store, epoch = errand.store, errand.epoch
        if store is None or epoch is None:
            raise FencedError("no session is open, so nothing can be pruned under its fence")
        live = await errand.thread(lambda: ask(errand.client))
        done = await errand.thread(lambda: prune(store, rules, writer=errand.writer, epoch=epoch, live=live))
        for key, error in done.failed.items():
            raise StoreError(f"{len(done.failed)} objects cannot be deleted, the first {key}: {error}")
        return f"{len(done.deleted)} objects deleted"

    return Job("prune", cron, run, mark=mark)
