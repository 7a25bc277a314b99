r"""What the agent is doing, in words that a person understands.  Pure: facts in, a state out.

    starting --> waiting-for-etcd <--> follower <--> leader <--> capturing
                        \\__________________\\___________\\______/
                                  degraded, with a reason            --> stopping

A state is never set, it follows from the facts: so none can be left behind by a forgotten transition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class Phase(StrEnum):
    """The states."""

    STARTING = "starting"
    WAITING = "waiting-for-etcd"
    FOLLOWER = "follower"
    LEADER = "leader"
    CAPTURING = "capturing"
    DEGRADED = "degraded"
    STOPPING = "stopping"


class Fault(StrEnum):
    """What can be wrong; docs/agent.md has a row for each."""

    ETCD_UNAVAILABLE = "etcd-unavailable"
    ETCD_NO_LEADER = "etcd-no-leader"
    ETCD_NOSPACE = "etcd-nospace"
    ETCD_CORRUPT = "etcd-corrupt"
    ETCD_DENIED = "etcd-denied"
    PEERS = "peers"
    ETCD = "etcd"
    STORE_UNAVAILABLE = "store-unavailable"
    STORE_DENIED = "store-denied"
    STORE = "store"
    FENCED = "fenced"
    FOREIGN = "foreign"
    GAP = "gap"
    DAMAGED = "damaged"
    PROOF = "proof"
    STUCK = "stuck"
    CLOCK = "clock"
    CONFIG = "config"
    JOB = "job"
    INTERNAL = "internal"


UNREAD = "the configuration cannot be read again: "
UNSEEN = "looking who leads etcd: "
"""How the reasons begin of faults that no capture has met."""

_BEFORE = (Fault.ETCD_UNAVAILABLE, Fault.ETCD_NO_LEADER)
"""Faults that the state waiting-for-etcd is for."""


@dataclass(frozen=True)
class Facts:
    """What is known.  `leads` is None until etcd has answered; `work` is what is under way."""

    leads: bool | None = None
    stopping: bool = False
    work: frozenset[str] = frozenset()
    faults: Mapping[Fault, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """A phase, why, and since when."""

    phase: Phase
    reason: str
    since: datetime


def derive(facts: Facts) -> tuple[Phase, str]:
    """The phase that these facts mean, and why."""
    waiting = next((facts.faults[fault] for fault in _BEFORE if fault in facts.faults), None)
    if waiting is not None and Fault.PEERS in facts.faults:
        waiting = f"{waiting}; {facts.faults[Fault.PEERS]}"
    if facts.stopping:
        found = Phase.STOPPING, "told to stop"
    elif waiting is not None:
        found = Phase.WAITING, waiting
    elif facts.faults:
        found = Phase.DEGRADED, _told(facts)
    elif facts.leads is None:
        found = Phase.STARTING, "looking for etcd"
    elif facts.work:
        found = Phase.CAPTURING, ", ".join(sorted(facts.work))
    elif facts.leads:
        found = Phase.LEADER, "this agent writes the backups"
    else:
        found = Phase.FOLLOWER, "another member leads etcd, and its agent writes the backups"
    return found


def _told(facts: Facts) -> str:
    return "; ".join(facts.faults[fault] for fault in Fault if fault in facts.faults)


@dataclass(frozen=True, slots=True)
class Transition:
    """From one state to the next."""

    before: State
    after: State


class States:
    """The state as facts come and go."""

    def __init__(self, now: datetime) -> None:
        self.facts = Facts()
        self.state = State(*derive(self.facts), now)

    def learn(self, facts: Facts, now: datetime) -> Transition | None:
        """Take new facts; the transition, if they mean another phase or reason."""
        self.facts = facts
        phase, reason = derive(facts)
        before = self.state
        if (phase, reason) == (before.phase, before.reason):
            return None
        since = before.since if phase is before.phase else now
        self.state = State(phase, reason, since)
        return Transition(before, self.state)
