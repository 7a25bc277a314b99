"""`agent`: keep an etcd backed up, for as long as it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rootcellar.agent.clock import SystemClock
from rootcellar.agent.leases import keeping as keep_leases
from rootcellar.agent.process import Agent
from rootcellar.cli import flags, keeping
from rootcellar.cli.document import Document
from rootcellar.logs import make_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.agent.settings import Settings
    from rootcellar.cli.context import Context
    from rootcellar.logs import Log


class AgentCheck(Document, frozen=True):
    """What an agent would do.  Durations in seconds."""

    store: str | None
    endpoints: tuple[str, ...]
    lead: str
    delta_every: float | None
    full: str | None
    jobs: tuple[str, ...]
    mirrors: tuple[str, ...]


def run(context: Context) -> int:
    """Until SIGTERM; or look whether it could, with --check-config."""
    agents: list[Agent] = []

    def load() -> Settings:
        # Everything is read again: the file, the environment's placeholders, files that they name.
        return keeping.settings(context.again(), lambda: agents[0].journal)

    if context.arguments.has(flags.CHECK_CONFIG):
        return _check(context, load())
    log = make_log(context.arguments.need(flags.LOG_FORMAT))
    asyncio.run(_run(load, log, agents))
    return 0


async def _run(load: Callable[[], Settings], log: Log, agents: list[Agent]) -> None:
    agent = Agent(load, log, SystemClock())
    agents.append(agent)
    leases = agent.settings.leases
    if leases is None:
        await agent.run()
        return
    with agent.settings.open_client() as etcd:
        async with keep_leases(agent, etcd, leases):
            await agent.run()


def _check(context: Context, settings: Settings) -> int:
    """Open everything that can be opened without asking anybody."""
    for mirror in settings.mirrors:
        mirror.open()
    with settings.open_client():
        store = settings.open_store() if settings.open_store is not None else None
    shown = AgentCheck(
        store=store.url if store is not None else None,
        endpoints=settings.endpoints,
        lead=settings.rule.value,
        delta_every=settings.delta_every,
        full=settings.full.expression if settings.full is not None else None,
        jobs=tuple(job.name for job in settings.jobs),
        mirrors=tuple(each.name for each in settings.mirrors),
    )
    if not context.console.is_text:
        context.console.document(shown)
        return 0
    where = f"to {shown.store}" if shown.store is not None else "nothing is captured: there is no store"
    every = f"every {shown.delta_every:.0f} s" if shown.delta_every is not None else "when asked for"
    context.console.lines(
        [
            f"etcd at {', '.join(shown.endpoints)}, {where}",
            f"fulls at {shown.full!r}, deltas {every}; jobs: {', '.join(shown.jobs) or 'none'}",
            *(f"mirrored to @{name}" for name in shown.mirrors),
        ]
    )
    return 0
