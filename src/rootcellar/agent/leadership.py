"""Who writes the backups: the agent beside etcd's leader.

So that of several agents one writes, without a lock of their own.  It is not what keeps two writers apart
(that is the fence, `catalogue.fence`), but what keeps them from trying.  An agent that is beside no
member, but knows several endpoints, leads always.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rootcellar.errors import EtcdError

if TYPE_CHECKING:
    from rootcellar.etcd.answers import Status
    from rootcellar.etcd.client import EtcdClient

PATIENCE = 3
"""Questions in a row that the local member may leave unanswered before it is taken to lead no more.

An etcd that restarts comes back sooner; one that does not has been followed by another leader."""


class Rule(StrEnum):
    """Who leads."""

    FOLLOW = "follow"
    ALWAYS = "always"

    @classmethod
    def for_endpoints(cls, endpoints: tuple[str, ...]) -> Rule:
        """One endpoint is the member beside us; several are a cluster somewhere."""
        return cls.FOLLOW if len(endpoints) == 1 else cls.ALWAYS


class Role(StrEnum):
    """What the local member is."""

    LEADER = "leader"
    FOLLOWER = "follower"
    LEARNER = "learner"
    LEADERLESS = "leaderless"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at the local member: what it is, what it reports of itself, why it does not answer."""

    role: Role
    status: Status | None = None
    error: EtcdError | None = None


def look(client: EtcdClient, *, timeout: float) -> Sight:
    """Ask the member, or of several the first that answers."""
    try:
        status = client.status(timeout=timeout)
    except EtcdError as error:
        return Sight(Role.SILENT, error=error)
    if status.is_learner:
        role = Role.LEARNER
    elif not status.leader:
        role = Role.LEADERLESS
    else:
        role = Role.LEADER if status.leader == status.header.member_id else Role.FOLLOWER
    return Sight(role, status)


class Standing:
    """Whether this agent leads, as one look follows the other.  None before any was answered."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._unanswered = 0
        self.leads: bool | None = None

    def learn(self, sight: Sight, *, is_alone: bool) -> bool | None:
        """Take a look into account.  `is_alone`: the cluster has one member, so nobody else can lead it."""
        if self._rule is Rule.ALWAYS:
            # Whoever answered: an agent without a cluster has nothing to lead.
            self.leads = True if sight.status is not None else self.leads
            return self.leads
        if sight.role in (Role.SILENT, Role.LEADERLESS):
            self._unanswered += 1
            if self._unanswered >= PATIENCE and not is_alone and self.leads is not None:
                self.leads = False
            return self.leads
        self._unanswered = 0
        self.leads = sight.role is Role.LEADER
        return self.leads
