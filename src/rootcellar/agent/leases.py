"""Kubernetes leases of the snapshots and of the member, renewed; and those of other members, read.

Nothing waits for a lease.  The keeper looks at the agent's journal and writes what has changed there, so an
API server that is away costs a log line and a metric, and once it is back the leases say how it is *then*.
The store is never listed for it: the journal knows what was captured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from rootcellar.agent.journal import Renewals
from rootcellar.agent.lease_plan import Beat, Reached, Renewal, renew_delta, renew_full, renew_member
from rootcellar.agent.threads import in_thread
from rootcellar.errors import (
    ConfigError,
    EtcdError,
    KubeConflictError,
    KubeError,
    KubeUnavailableError,
    RootcellarError,
)
from rootcellar.kube.kinds import LEASES, Lease
from rootcellar.logs import told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from rootcellar.agent.process import Agent
    from rootcellar.agent.settings import LeaseSettings
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.kube.client import KubeClient

LOOK = 1.0
"""Seconds between two looks at the journal."""
RETRY = 10.0
"""Seconds after a renewal that failed."""
LAST = 5.0
"""Seconds that the last renewal may take when the agent ends: what it stored last is worth being known."""
_TRIES = 5
_ETCD_SECONDS = 3.0
_log = logging.getLogger(__name__)

Plan = Callable[[Lease], Renewal]


def renew(client: KubeClient, namespace: str, name: str, plan: Plan) -> Renewal:
    """Write what `plan` makes of the lease; made anew where another writer was faster.  Raises KubeError."""
    tries = count(1)
    while True:
        lease = client.get(LEASES, name, namespace)
        renewal = plan(lease)
        if renewal.patch is None:
            return renewal
        version = lease.metadata.resource_version
        try:
            client.merge_patch(LEASES, name, renewal.patch, namespace, resource_version=version)
        except KubeConflictError:
            if next(tries) == _TRIES:
                raise
        else:
            return renewal


@dataclass
class _Snapshots:
    """What the two snapshot leases were last made of, and when they may be tried again (monotonic)."""

    done: dict[str, object] = field(default_factory=dict)
    again_at: dict[str, float] = field(default_factory=dict)


class LeaseKeeper:
    """Renews the leases of one agent.  `etcd` reaches the member beside it."""

    def __init__(self, agent: Agent, etcd: EtcdClient, settings: LeaseSettings) -> None:
        self._agent = agent
        self._etcd = etcd
        self._settings = settings
        self._client: KubeClient | None = None
        self._snapshots = _Snapshots()
        self._told: dict[str, str] = {}
        self._led = False

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._settings.full or self._settings.delta:
                group.create_task(self._keep_snapshots(), name="snapshot-leases")
            if self._settings.member:
                group.create_task(self._keep_member(), name="member-lease")

    async def finish(self) -> None:
        """A last look at the journal of an agent that has ended; no longer than `LAST` seconds."""
        if self._led:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST):
                    self._snapshots.again_at.clear()
                    await self._look()
        if self._client is not None:
            self._client.close()

    async def _keep_snapshots(self) -> None:
        while True:
            captures = self._agent.captures
            # An agent that ends has let go of its captures before the last delta is cut.
            if not self._agent.board.facts.stopping:
                # Until a session was opened the journal is of an earlier stay, or of none.
                self._led = captures is not None and captures.opened.is_set()
            if self._led:
                await self._look()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        journal, settings = self._agent.journal, self._settings
        full, point = journal.full, journal.point
        if settings.full and full.revision:
            reached = Reached(journal.timeline, full.revision)
            at = datetime.fromtimestamp(full.captured_at, UTC)
            await self._once(
                "full", settings.full, (reached, at), partial(renew_full, reached=reached, captured_at=at)
            )
        if settings.delta and point is not None:
            reached = Reached(journal.timeline, journal.delta.revision)
            now = self._agent.clock.now()
            await self._once(
                "delta", settings.delta, (reached, point.at), partial(renew_delta, reached=reached, now=now)
            )

    async def _once(self, role: str, name: str, sight: object, plan: Plan) -> None:
        """Renew for what is seen, unless that was done; after a failure not at once again."""
        snapshots, now = self._snapshots, self._agent.clock.monotonic()
        if snapshots.done.get(role) == sight or now < snapshots.again_at.get(role, now):
            return
        if await self._renew(role, name, plan):
            snapshots.done[role] = sight
        else:
            snapshots.again_at[role] = now + RETRY

    async def _keep_member(self) -> None:
        wait = min(LOOK, self._settings.heartbeat)  # others learn soon that this member has lived
        while True:
            # Of a member that does not answer nothing is written: that is what the lease is for.
            with suppress(RootcellarError):
                beat = await in_thread("beat", self._listen)
                now = self._agent.clock.now()
                plan = partial(renew_member, beat=beat, now=now)
                if await self._renew("member", self._settings.member, plan):
                    wait = self._settings.heartbeat
            await asyncio.sleep(wait)

    def _listen(self) -> Beat:
        status = self._etcd.status(timeout=_ETCD_SECONDS)
        own, tls = status.header.member_id, None
        with suppress(EtcdError):  # without a quorum nobody lists members
            urls = [url for each in self._etcd.member_list() if each.id == own for url in each.peer_urls]
            tls = bool(urls) and all(url.startswith("https:") for url in urls)
        return Beat(own, status.header.cluster_id, status.leader == own, tls)

    async def _renew(self, role: str, name: str, plan: Plan) -> bool:
        """Whether it went well.  What did not is counted, and told once until it is another fault."""
        seen = self._agent.journal.leases.setdefault(role, Renewals())
        try:
            renewal = await in_thread("lease", partial(self._write, name, plan))
        except Exception as error:  # noqa: BLE001  told, and tried again: a lease is in nobody's way
            values = told(error)
            seen.failures[values["code"]] += 1
            if self._told.get(role) != values["code"]:
                self._agent.log.warning("lease-failed", lease=name, **values)
            self._told[role] = values["code"]
            return False
        if renewal.patch is not None:
            seen.count += 1
            seen.last_at = self._agent.clock.now().timestamp()
        if renewal.why and self._told.get(role) != renewal.why:
            self._agent.log.warning("lease-not-lowered", lease=name, reason=renewal.why)
        elif not renewal.why and role in self._told:
            self._agent.log.info("lease-renewed-again", lease=name)
        self._told.pop(role, None)
        if renewal.why:
            self._told[role] = renewal.why
        return True

    def _write(self, name: str, plan: Plan) -> Renewal:
        if self._client is None:
            self._client = self._settings.open_client()
        return renew(self._client, self._settings.namespace, name, plan)


@asynccontextmanager
async def keeping(agent: Agent, etcd: EtcdClient, settings: LeaseSettings) -> AsyncIterator[None]:
    """Renew while the context is entered, and a last time after it."""
    keeper = LeaseKeeper(agent, etcd, settings)
    task = asyncio.create_task(keeper.run(), name="leases")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await keeper.finish()


class KubeMemberLeases:
    """`members.MemberLeases` as the leases in a namespace show it; `names` are the cluster's members."""

    def __init__(self, open_client: Callable[[], KubeClient], namespace: str, names: Iterable[str]) -> None:
        self._open_client = open_client
        self._namespace = namespace
        self._names = tuple(names)

    def registered(self) -> frozenset[str] | None:
        """Who has once renewed the lease.  None where one of them is not there or cannot be read: that says
        nothing, and whoever takes it for "nobody" may restore beside members that are alive.

        Raises KubeUnavailableError where the API server does not answer: later it is known.
        """
        found = set()
        try:
            with self._open_client() as client:
                for name in self._names:
                    if client.get(LEASES, name, self._namespace).spec.holder_identity:
                        found.add(name)
        except KubeUnavailableError:
            raise
        except (KubeError, ConfigError) as error:
            _log.warning("which members were alive once is not known: %s", _sentence(error))
            return None
        return frozenset(found)


def _sentence(error: RootcellarError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
