"""The decision before etcd starts, as a value.  Pure: facts in, a plan out.

The cases are those of etcd-backup-restore.  Where it would delete, this takes aside, and where it would
guess, this waits and says for what.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from rootcellar.agent.validation import Status, Validation
from rootcellar.errors import EtcdUnavailableError, NothingToRestoreError, StoreError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.agent.members import Cluster
    from rootcellar.errors import RootcellarError
    from rootcellar.etcd.answers import Member


class StoreState(Enum):
    """What can be had from the store."""

    NONE = "no store is configured"
    EMPTY = "the store holds no backup"
    HOLDS = "the store holds a backup"
    BROKEN = "the store holds backups, and none that can be restored"
    UNREACHABLE = "the store cannot be read"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """`latest` is the newest revision.  `forks` are revisions that a restore announced and no capture has
    followed yet, by cluster id in hex: below them a database of that cluster is not behind.
    """

    state: StoreState
    latest: int = 0
    told: str = ""
    forks: Mapping[str, int] = field(default_factory=dict)

    def expected(self, cluster_id: int) -> int | None:
        """The revision that a database of this cluster should have reached, None where nothing tells."""
        if self.state is not StoreState.HOLDS:
            return None
        return min(self.latest, self.forks.get(f"{cluster_id:x}", self.latest))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan is made from.

    `founders` are the names in the initial cluster, in order.  `cluster` is None where it does not answer.
    `registered` are the members known to have run once, None where that is not known; `leases_away` says why
    it is not known yet, and is empty where waiting would not help.
    """

    name: str
    peer_urls: tuple[str, ...]
    founders: tuple[str, ...]
    found: Validation
    store: StoreFacts
    cluster: Cluster | None = None
    registered: frozenset[str] | None = None
    leases_away: str = ""


class Deed(Enum):
    """What is to be done."""

    KEEP = "start on the data that is there"
    RESTORE = "restore from the store"
    START_EMPTY = "start with an empty database"
    JOIN = "join the cluster as a learner"
    REFUSE = "do not start"


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What to do and why.

    Of a JOIN, in this order: `remove` is a member to be removed first, and `add` whether the cluster must be
    asked to take us.  `move`, of a KEEP: us, whom the others know by other peer URLs than are configured.
    `aside`: data is there that goes to quarantine.  `error` is raised for REFUSE.
    """

    deed: Deed
    reason: str
    aside: bool = False
    remove: Member | None = None
    add: bool = False
    move: Member | None = None
    error: RootcellarError | None = None


_HOPELESS = {
    Status.WRONG_VOLUME: "mount the volume of this namespace, or remove the file safe_guard if it is the one",
    Status.CANNOT_OPEN: "end the other process, or run as the owner of the data",
    Status.UNKNOWN: "look at the file system, and start again",
}


def plan_start(facts: Facts) -> StartPlan:
    """Decide.  Pure."""
    found = facts.found
    if found.status in _HOPELESS:
        return _refused(TargetError(found.finding, hint=_HOPELESS[found.status]))
    if len(facts.founders) > 1:
        return _of_several(facts) if facts.cluster is None else _beside(facts, facts.cluster)
    if found.valid:
        return StartPlan(Deed.KEEP, found.finding)
    return _alone(facts)


def _alone(facts: Facts) -> StartPlan:
    """The only member, and its data is not fit."""
    found, store = facts.found, facts.store
    if store.state is StoreState.HOLDS:
        return StartPlan(Deed.RESTORE, found.finding, aside=not found.blank)
    if store.state is StoreState.UNREACHABLE:
        return _refused(
            StoreError(
                f"{found.finding}, and the store cannot be read: {store.told}",
                hint="whether there is a backup is not known; etcd starts when the store can be read",
            )
        )
    if store.state is StoreState.BROKEN:
        return _refused(_nothing_restorable(found, store))
    if found.blank:
        return StartPlan(Deed.START_EMPTY, f"{found.finding}; {store.state.value}")
    return StartPlan(
        Deed.START_EMPTY, f"{found.finding}; {store.state.value}: the data goes to quarantine", aside=True
    )


def _of_several(facts: Facts) -> StartPlan:  # noqa: PLR0911 - a table of cases
    """One of several, and the cluster does not answer."""
    found, store = facts.found, facts.store
    if found.valid:
        return StartPlan(Deed.KEEP, f"{found.finding}; the cluster does not answer yet")
    if not found.blank or (facts.registered is not None and facts.name in facts.registered):
        return _refused(
            EtcdUnavailableError(
                f"{found.finding}, {facts.name} has been a member, and the cluster does not answer",
                hint="it joins again when a quorum is back; where that will never be, restore the cluster",
            )
        )
    if facts.leases_away:
        # An empty log under the id of a member that has voted may cost what it had voted for.
        return _refused(
            EtcdUnavailableError(
                f"{found.finding}, and whether {facts.name} was alive once is not known: {facts.leases_away}",
                hint="its lease tells; etcd starts when the API server or a quorum answers",
            )
        )
    if store.state in (StoreState.NONE, StoreState.EMPTY):
        return StartPlan(Deed.START_EMPTY, f"{found.finding}; a new cluster; {store.state.value}")
    if store.state is StoreState.UNREACHABLE:
        return _refused(
            StoreError(
                f"a new cluster, and the store cannot be read: {store.told}",
                hint="whether there is a backup is not known; etcd starts when the store can be read",
            )
        )
    if store.state is StoreState.BROKEN:
        return _refused(_nothing_restorable(found, store))
    if facts.registered is None or facts.registered:
        return _refused(
            EtcdUnavailableError(
                "the store holds a backup, and other members may be alive that do not answer",
                hint="wait for them; to restore the whole cluster, use `rootcellar restore --member ...`",
            )
        )
    if facts.founders[0] != facts.name:
        return _refused(
            EtcdUnavailableError(
                f"{facts.founders[0]} restores the cluster first; {facts.name} joins it then",
                hint="nothing has to be done",
            )
        )
    return StartPlan(Deed.RESTORE, f"{found.finding}; no member has run yet, and this is the first")


def _beside(facts: Facts, cluster: Cluster) -> StartPlan:  # noqa: PLR0911 - a table of cases
    """One of several, and the cluster answers."""
    found = facts.found
    if found.cluster_id and found.cluster_id != cluster.cluster_id:
        return _refused(
            TargetError(
                f"the data is of cluster {found.cluster_id:x}, and the endpoints are those of"
                f" {cluster.cluster_id:x}",
                hint="give the right service endpoints; if the data is of no use any more, move it away",
            )
        )
    own = cluster.find(facts.name, facts.peer_urls, found.member_id)
    if own is None:
        if found.valid and not found.cluster_id:
            return _refused(
                TargetError(
                    "the cluster does not list this member, and whose the data is cannot be read",
                    hint="move the data away if it is of no use any more",
                )
            )
        why = "was removed from the cluster" if found.valid else "is new to the cluster"
        return StartPlan(Deed.JOIN, f"{facts.name} {why}", aside=not found.blank, add=True)
    if found.valid and found.member_id in (0, own.id):
        known = not facts.peer_urls or set(own.peer_urls) == set(facts.peer_urls)
        return StartPlan(Deed.KEEP, found.finding, move=None if known or own.is_learner else own)
    if not own.name:
        return StartPlan(Deed.JOIN, f"{facts.name} is listed and has never run", aside=not found.blank)
    if own.id in cluster.answering:
        return _refused(
            TargetError(
                f"a member {own.name} ({own.id:x}) answers, and it is not on this data",
                hint="another process runs under its name; end one of them",
            )
        )
    if not cluster.can_lose(own):
        return _refused(
            EtcdUnavailableError(
                f"{found.finding}, and without {own.name} the cluster has no quorum of healthy voters",
                hint="bring the other members back first, or restore the cluster",
            )
        )
    reason = f"{found.finding}; {own.name} leaves and joins again"
    return StartPlan(Deed.JOIN, reason, aside=not found.blank, remove=own, add=True)


def _refused(error: RootcellarError) -> StartPlan:
    return StartPlan(Deed.REFUSE, error.message, error=error)


def _nothing_restorable(found: Validation, store: StoreFacts) -> NothingToRestoreError:
    return NothingToRestoreError(
        f"{found.finding}, and no backup can be restored: {store.told}",
        hint="look with `rootcellar ls`; nothing is started empty beside backups",
    )
