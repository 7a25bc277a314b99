"""`server` and `snapshot`: the agent, told what to do in etcd-backup-restore's words."""

from __future__ import annotations

import asyncio
import math
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent import doorway
from rootcellar.agent.clock import SystemClock
from rootcellar.agent.compat import CompatApi, Initialization
from rootcellar.agent.etcd_config import written
from rootcellar.agent.initialization import initialize
from rootcellar.agent.leadership import Rule
from rootcellar.agent.leases import keeping as keeping_leases
from rootcellar.agent.members import MemberControl
from rootcellar.agent.peer_urls import Mover
from rootcellar.agent.process import Agent
from rootcellar.agent.schedule import Cron
from rootcellar.agent.serving import serving
from rootcellar.agent.settings import Settings
from rootcellar.agent.sidecar import AgentSnapshotter, metrics_route, promote, stop_wrapper
from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.capture.session import CaptureOptions
from rootcellar.backup.catalogue import names
from rootcellar.cli.etcdbrctl import before, keeping, leasing, stores
from rootcellar.cli.etcdbrctl.sections import (
    Compression,
    Connection,
    Election,
    Http,
    Restoration,
    Snapshots,
    Snapstore,
    Upkeep,
)
from rootcellar.cli.identity import whoami
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError, EtcdError
from rootcellar.logs import make_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rootcellar.cli.console import Console
    from rootcellar.cli.etcdbrctl.reading import Configuration
    from rootcellar.etcd.answers import Member
    from rootcellar.etcd.client import EtcdClient

_SUFFIXES = {"gzip": names.GZIP, "zlib": names.ZLIB, "lzw": names.GZIP}
_LAST_DELTA = 20.0


def serve(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """The sidecar: initialization, captures while we lead, and the reference's API.  Until SIGTERM."""
    _warn(configuration, console)
    asyncio.run(_serve(configuration, environ))
    return 0


def snapshot(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """Captures of a running etcd on their schedules, and nothing else.  Until SIGTERM.

    Unlike there it begins with a delta where one continues what is in the store, and no failure ends it.
    """
    _warn(configuration, console)
    asyncio.run(Agent(lambda: settings(configuration, environ), make_log(), SystemClock()).run())
    return 0


def settings(configuration: Configuration, environ: Mapping[str, str]) -> Settings:
    """What the agent is told.  Raises ConfigError, UsageError."""
    shots, said = configuration.get(Snapshots), configuration.get(Connection)
    is_server = configuration.command == "server"
    has_store = bool(configuration.get(Snapstore).provider) or not is_server
    period = shots.delta_period / SECOND
    writer = whoami()
    files = (said.ca, said.cert, said.key)
    return Settings(
        writer=writer,
        endpoints=said.endpoints,
        open_client=partial(before.client, configuration),
        state_dir=doorway.default_directory(environ),
        rule=Rule.FOLLOW if is_server else Rule.ALWAYS,
        open_store=partial(stores.opened, configuration, environ) if has_store else None,
        options=CaptureOptions(
            full=FullOptions(suffix=_suffix(configuration)),
            # Below 1 it is the default there; as it stands it would make a delta of each revision.
            limits=DeltaLimits(
                size=shots.delta_memory if shots.delta_memory >= 1 else DeltaLimits().size, age=math.inf
            ),
        ),
        delta_every=period if period >= 1 else None,
        full=Cron(shots.schedule, seed=writer),
        jobs=tuple(keeping.jobs(configuration, writer, has_store=has_store)),
        mirrors=keeping.mirrors(configuration, environ),
        poll=configuration.get(Election).period / SECOND if is_server else 5.0,
        grace=_LAST_DELTA,
        files=tuple(Path(each) for each in files if each),
    )


def _suffix(configuration: Configuration) -> str:
    asked = configuration.get(Compression)
    return _SUFFIXES[asked.policy] if asked.enabled else names.NONE


def _warn(configuration: Configuration, console: Console) -> None:
    if configuration.get(Compression).policy == "lzw":
        console.warn("lzw is read and never written: gzip is written in its place")


async def _serve(configuration: Configuration, environ: Mapping[str, str]) -> None:
    http, said = configuration.get(Http), configuration.get(Connection)
    cert, key = (Path(each) if each else None for each in (http.cert, http.key))
    if (cert is None) != (key is None):
        raise ConfigError("--server-cert and --server-key belong together", hint="give both, or none")
    shared = before.shared_config(environ)
    member = shared.member if shared is not None else environ.get("POD_NAME", "")
    leases = leasing.leases(configuration, environ, member)
    agent = Agent(lambda: settings(configuration, environ), make_log(), SystemClock())
    with before.client(configuration) as local, before.client(configuration, service=True) as service:
        initialization = Initialization(
            lambda mode: initialize(before.home(configuration, environ, service), mode)
        )
        snapshotter = (
            AgentSnapshotter(
                agent,
                local,
                agent.settings.open_store,
                scheme="https" if cert else "http",
                port=http.port,
            )
            if agent.settings.open_store is not None
            else None
        )
        api = CompatApi(
            initialization,
            lambda joins: _config(environ, service, joins=joins),
            snapshotter,
            snapshot_timeout=said.snapshot_timeout / SECOND,
            leader_ca=said.ca or None,
            tls=cert is not None,
        )
        async with (
            keeping_leases(agent, local, leases) if leases is not None else nullcontext(),
            serving([*api.routes(), metrics_route(agent)], "", http.port, cert=cert, key=key),
        ):
            care = asyncio.create_task(_tend(configuration, environ, agent, local, service))
            try:
                await agent.run()
            finally:
                care.cancel()
                with suppress(asyncio.CancelledError):
                    await care


async def _tend(
    configuration: Configuration,
    environ: Mapping[str, str],
    agent: Agent,
    local: EtcdClient,
    service: EtcdClient,
) -> None:
    """Care for the member beside us: its vote, and where its peers reach it."""
    said, control = configuration.get(Connection), MemberControl(service)
    restart = partial(stop_wrapper, said.endpoints[0], said.ca or None)
    mover = Mover(
        local,
        (control, MemberControl(local)),
        lambda: before.shared_config(environ),
        Path(configuration.get(Restoration).data_dir),
        board=agent.board,
        clock=agent.clock,
        restart=restart if configuration.get(Upkeep).wrapper else None,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(promote(local, control, configuration.get(Election).period / SECOND))
        group.create_task(mover.run())


def _config(environ: Mapping[str, str], service: EtcdClient, *, joins: bool) -> str:
    shared = before.shared_config(environ)
    if shared is None:
        raise ConfigError("there is no etcd configuration to serve", hint="name it in ETCD_CONF")
    members: Sequence[Member] | None = None
    if len(shared.initial_cluster) > 1:
        with suppress(EtcdError):
            members = service.member_list()
    return written(shared.tailored(members, joins=joins))
