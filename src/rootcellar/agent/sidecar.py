"""The agent in the place of etcd-backup-restore's `server`: its API over our captures, and a member's care.

The agent's own API stays on loopback with its token; what is here is served beside it, open as there.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import urllib.request
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.routing import Route

from rootcellar.agent.metrics import CONTENT_TYPE, Metrics
from rootcellar.agent.threads import in_thread
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.errors import EtcdError, RootcellarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from rootcellar.agent.members import MemberControl
    from rootcellar.agent.process import Agent
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

WRAPPER_PORT = 9095
"""Where the wrapper is told to stop; the reference knows no other port either (druid's D6)."""
_log = logging.getLogger(__name__)


class AgentSnapshotter:
    """`compat.Snapshotter` over an agent.  `port` and `scheme` are those of every sidecar of the cluster."""

    def __init__(
        self, agent: Agent, client: EtcdClient, open_store: Callable[[], Store], *, scheme: str, port: int
    ) -> None:
        self._agent = agent
        self._client = client
        self._open_store = open_store
        self._scheme, self._port = scheme, port

    async def full(self, *, final: bool) -> SnapshotName:
        captured = await self._agent.full(final=final)
        if captured is None:  # nothing changed since the one that is there
            newest, _ = await self.latest()
            if newest is None:
                raise RootcellarError("no full was taken, and none is there")
            return newest
        return captured.record.name

    async def delta(self) -> SnapshotName | None:
        done = await self._agent.delta()
        written = [*done.deltas, *([done.full] if done.full is not None else [])]
        return written[-1].record.name if written else None

    async def latest(self) -> tuple[SnapshotName | None, Sequence[SnapshotName]]:
        def look() -> list[SnapshotName]:
            catalogue = read_catalogue(self._open_store())
            return [each.name for each in catalogue.on(catalogue.newest_timeline)]

        there = await in_thread("latest", look)
        full = next((each for each in reversed(there) if each.kind is names.Kind.FULL), None)
        if full is None:
            return None, ()
        return full, [each for each in there if each.kind is names.Kind.DELTA and each.last > full.last]

    def healthy(self) -> bool:
        return self._agent.leads is True

    async def leader(self) -> str | None:
        if self._agent.leads:
            return ""
        try:
            return await in_thread("leader", self._ask_leader)
        except EtcdError as error:
            _log.warning("who leads is not known: %s", error.message)
            return None

    def _ask_leader(self) -> str | None:
        leads = self._client.status().leader
        for member in self._client.member_list():
            if member.id == leads and member.client_urls:
                host = urlsplit(member.client_urls[0]).hostname
                return f"{self._scheme}://{f'[{host}]' if host and ':' in host else host}:{self._port}"
        return None


def metrics_route(agent: Agent) -> Route:
    """The reference's /metrics, which has ours beside its own."""
    metrics = Metrics(agent)

    async def answer(_request: Request) -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    return Route("/metrics", answer)


async def promote(client: EtcdClient, control: MemberControl, period: float) -> None:
    """Make the member beside us a voter whenever it is none, until cancelled."""
    learner = 0
    while True:
        with suppress(EtcdError):
            status = await in_thread("status", client.status)
            own = status.header.member_id
            if status.is_learner and own != learner:
                _log.info("member %x does not vote yet; it is promoted once it has caught up", own)
                learner = own
            if status.is_learner and await in_thread("promote", partial(control.promote, own)):
                _log.info("member %x votes now", own)
        await asyncio.sleep(period)


def stop_wrapper(endpoint: str, ca: str | None = None, port: int = WRAPPER_PORT) -> None:
    """Have the wrapper beside us end its etcd; its container starts again.  A failure is logged.

    It serves with the certificate of its etcd, so it is spoken to by the scheme and the host of our etcd's
    `endpoint`: "localhost" is in none of the certificates that Gardener makes.
    """
    etcd = urlsplit(endpoint)
    host = f"[{etcd.hostname}]" if ":" in (etcd.hostname or "") else etcd.hostname
    url = f"{etcd.scheme}://{host}:{port}/stop"
    request = urllib.request.Request(url, method="POST", data=b"")  # noqa: S310  our own http(s)
    try:
        context = ssl.create_default_context(cafile=ca) if etcd.scheme == "https" else None
        with urllib.request.urlopen(request, timeout=5, context=context):  # noqa: S310  as above
            pass
    except OSError as error:
        _log.warning("the wrapper was not told to restart etcd: %s", error)
