"""`status`: whether etcd and the store answer, and how far the one is behind the other."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.cli import agency, columns, connecting, fallback, flags, sources
from rootcellar.cli.document import Document, Part
from rootcellar.cli.window import Window, window
from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.cli.context import Context
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store


class MemberStatus(Part, frozen=True, kw_only=True):
    """One endpoint.  `error` is why it did not answer; the rest is then empty or 0."""

    endpoint: str
    error: str | None = None
    version: str = ""
    member_id: str = ""
    is_leader: bool = False
    is_learner: bool = False
    revision: int = 0
    db_size: int = 0
    db_size_in_use: int = 0
    errors: tuple[str, ...] = ()


class StoreStatus(Part, frozen=True, kw_only=True):
    """The store.  `error` is why it did not answer; `below` are prefixes further down with their own
    backups.
    """

    url: str
    error: str | None = None
    objects: int = 0
    cluster_id: str | None = None
    timeline: int | None = None
    window: Window | None = None
    below: tuple[str, ...] = ()


class AgentStore(Part, frozen=True, kw_only=True):
    """One store as its agent sees it; `role` is first, mirror or standby.

    `behind` in revisions and `lag` in seconds are against the first store; `failed` objects could not be
    copied.
    """

    name: str | None
    role: str
    url: str
    revision: int | None
    at: datetime | None
    behind: int | None
    lag: float | None
    failed: int
    active: bool


class AgentStatus(Part, frozen=True, kw_only=True):
    """The agent on this machine that writes to the store.  `age` is that of its recovery point in seconds."""

    state: str
    reason: str
    since: datetime
    leads: bool | None
    faults: dict[str, str]
    epoch: int | None
    revision: int | None
    age: float | None
    stores: tuple[AgentStore, ...] = ()


class Status(Document, frozen=True):
    """`behind` is how many revisions of etcd are in no backup, None where one of both does not answer.

    `others` are the mirrors of the store, and what was written beside them while it was away.
    `agent` is None where none runs on this machine.
    """

    store: StoreStatus
    others: tuple[StoreStatus, ...]
    agent: AgentStatus | None
    etcd: tuple[MemberStatus, ...]
    cluster_id: str | None
    alarms: tuple[str, ...]
    behind: int | None


def run(context: Context) -> int:
    """Ask all, and end with the code of what did not answer."""
    store, failure = _store(sources.readable(context))
    others = tuple(_store(sources.opened(context, name))[0] for name in fallback.others(context))
    members: tuple[MemberStatus, ...] = ()
    cluster: str | None = None
    alarms: tuple[str, ...] = ()
    if context.arguments.get(flags.ENDPOINTS) is not None:
        with connecting.client(context) as client:
            members, cluster, alarms, trouble = _etcd(client)
            failure = failure or trouble
    same = [each for each in (store, *others) if each.cluster_id in (None, cluster)]
    windows = [each.window for each in same if each.window is not None]
    last = max((each.last for each in windows if each.last is not None), default=None)
    live = max((member.revision for member in members), default=0)
    shown = Status(
        store=store,
        others=others,
        agent=_agent(context, store.url),
        etcd=members,
        cluster_id=cluster,
        alarms=alarms,
        behind=live - last if live and last is not None else None,
    )
    if context.console.is_text:
        context.console.lines(_lines(shown, context))
    else:
        context.console.document(shown)
    return 0 if failure is None else failure.exit_code


def _store(store: Store) -> tuple[StoreStatus, RootcellarError | None]:
    try:
        catalogue = read_catalogue(store)
    except RootcellarError as error:
        return StoreStatus(url=store.url, error=error.message), error
    timeline = catalogue.lineage()[0].timeline
    return (
        StoreStatus(
            url=store.url,
            objects=len(catalogue.snapshots),
            cluster_id=catalogue.marker.cluster_id if catalogue.marker else None,
            timeline=timeline,
            window=window(catalogue, timeline),
            below=catalogue.below,
        ),
        None,
    )


def _agent(context: Context, store_url: str) -> AgentStatus | None:
    found = agency.running(context, store_url)
    try:
        told = found.ask("GET", "/status") if found is not None else None
    except (OSError, RootcellarError) as error:
        context.console.warn(f"the agent does not say how it fares: {error}")
        return None
    if told is None:
        return None
    return AgentStatus(
        state=told["state"]["phase"],
        reason=told["state"]["reason"],
        since=datetime.fromisoformat(told["state"]["since"]),
        leads=told["leads"],
        faults=told["faults"],
        epoch=told["epoch"],
        revision=told["recovery"]["last"],
        age=told["recovery"]["age"],
        stores=msgspec.convert(told.get("stores", ()), tuple[AgentStore, ...]),
    )


def _etcd(
    client: EtcdClient,
) -> tuple[tuple[MemberStatus, ...], str | None, tuple[str, ...], RootcellarError | None]:
    """Each member's status, the cluster's id and alarms, and the first thing that went wrong."""
    members, cluster = [], None
    failure: RootcellarError | None = None
    for endpoint in client.endpoints:
        try:
            status = client.member(endpoint).status()
        except RootcellarError as error:
            failure = failure or error
            members.append(MemberStatus(endpoint=endpoint, error=error.message))
            continue
        cluster = f"{status.header.cluster_id:x}"
        members.append(
            MemberStatus(
                endpoint=endpoint,
                version=str(status.version),
                member_id=f"{status.header.member_id:x}",
                is_leader=status.leader == status.header.member_id,
                is_learner=status.is_learner,
                revision=status.header.revision,
                db_size=status.db_size,
                db_size_in_use=status.db_size_in_use,
                errors=status.errors,
            )
        )
    try:
        alarms = tuple(f"{alarm.kind.name} of member {alarm.member_id:x}" for alarm in client.alarms())
    except RootcellarError as error:
        return tuple(members), cluster, (), failure or error
    return tuple(members), cluster, alarms, failure


def _lines(shown: Status, context: Context) -> Iterator[str]:
    style = context.console.out.style
    store = shown.store
    for each in (store, *shown.others):
        yield from _told_store(each, context)
    if shown.agent is not None:
        agent = shown.agent
        yield f"agent   {style(agent.state, 'red' if agent.faults else 'green')}: {agent.reason}"
        if agent.revision is not None and agent.age is not None:
            ago = columns.seconds(agent.age)
            yield f"        everything up to revision {agent.revision} is stored, as of {ago} ago"
        yield from map(_further, agent.stores[1:])
    for member in shown.etcd:
        yield f"etcd    {member.endpoint}"
        if member.error is not None:
            yield f"        {style(member.error, 'red')}"
            continue
        role = "leader" if member.is_leader else "learner" if member.is_learner else "follower"
        sizes = f"{columns.size(member.db_size)}, {columns.size(member.db_size_in_use)} in use"
        yield f"        etcd {member.version}, {role} {member.member_id}, revision {member.revision}, {sizes}"
        yield from (f"        {style(error, 'red')}" for error in member.errors)
    yield from (f"alarm   {style(alarm, 'red')}" for alarm in shown.alarms)
    if shown.cluster_id is not None and store.cluster_id not in (None, shown.cluster_id):
        told = f"the store is of cluster {store.cluster_id}, etcd is cluster {shown.cluster_id}"
        yield f"beware  {style(told, 'yellow')}"
    if shown.behind is not None:
        behind = (
            "nothing is missing" if shown.behind <= 0 else f"{shown.behind:,} revisions are in no backup yet"
        )
        yield f"behind  {behind}"


def _told_store(store: StoreStatus, context: Context) -> Iterator[str]:
    yield f"store   {store.url}"
    found = store.window
    if store.error is not None:
        yield f"        {context.console.out.style(store.error, 'red')}"
    elif found is not None and found.last is not None:
        yield f"        {columns.plural(store.objects, 'snapshot')}, timeline {store.timeline}"
        yield f"        revisions {found.first} to {found.last}, {columns.date(found.last_time)}"
    else:
        many = columns.plural(len(store.below), "prefix", "prefixes")
        below = f" itself; {many} further down: see `rootcellar ls`" if store.below else ""
        yield f"        answers, and holds no backup{below}"


def _further(store: AgentStore) -> str:
    if store.role == "standby":
        told = "is written to" if store.active else "stands by"
        return f"        @{store.name} {told}"
    if store.behind is None:
        return f"        @{store.name} mirrors: how far is not known"
    lag = f", {columns.seconds(store.lag)}" if store.lag else ""
    lacks = f"{columns.plural(store.behind, 'revision')} behind{lag}" if store.behind else "lacks nothing"
    failed = f"; {columns.plural(store.failed, 'object')} could not be copied" if store.failed else ""
    return f"        @{store.name} mirrors: {lacks}{failed}"
