"""Which faults strike when: from a seed, so that a run can be repeated.  Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

MEMBERS = 3


class Kind(StrEnum):
    """What can strike."""

    KILL_ETCD = "kill etcd"
    PAUSE_ETCD = "pause etcd"
    DEFRAGMENT = "defragment"
    COMPACT = "compact"
    MOVE_LEADER = "move leader"
    CUT_MEMBER = "cut a member from its peers"
    CUT_PAIR = "cut two members from each other"
    HOLD_MEMBER = "hold a member's peer traffic"
    CUT_ETCD = "cut agent from etcd"
    HOLD_ETCD = "hold agent's etcd traffic"
    KILL_AGENT = "kill agent"
    PAUSE_AGENT = "pause agent"
    PAUSE_AGENT_LONG = "pause agent for long"
    FULL = "ask for a full"
    RELOAD = "reload agent"
    CUT_STORE = "cut agent from store"
    HOLD_STORE = "hold agent's store traffic"
    SLOW_STORE = "slow store"
    DEAF_STORE = "lose the store's answers"
    STORE_500 = "store answers 500"
    STORE_503 = "store answers 503"
    KILL_STORE = "kill store"
    PAUSE_STORE = "pause store"
    DISK_FULL = "fill the store's disk"
    DISK_READ_ONLY = "make the store's disk read-only"
    DISK_GONE = "unmount the store's disk"
    HOLD = "hold a chain"


OF_SERVER = frozenset(
    {
        Kind.CUT_STORE,
        Kind.HOLD_STORE,
        Kind.SLOW_STORE,
        Kind.DEAF_STORE,
        Kind.STORE_500,
        Kind.STORE_503,
        Kind.KILL_STORE,
        Kind.PAUSE_STORE,
    }
)
"""For those the store has to be a server."""
OF_DISK = frozenset({Kind.DISK_FULL, Kind.DISK_READ_ONLY, Kind.DISK_GONE})
"""For those it has to be a directory."""

_LASTING = {
    Kind.KILL_ETCD: (0.2, 6),
    Kind.PAUSE_ETCD: (0.2, 8),
    Kind.CUT_MEMBER: (0.5, 8),
    Kind.CUT_PAIR: (0.5, 8),
    Kind.HOLD_MEMBER: (0.5, 6),
    Kind.CUT_ETCD: (0.2, 8),
    Kind.HOLD_ETCD: (0.5, 8),
    Kind.KILL_AGENT: (0, 4),
    Kind.PAUSE_AGENT: (0.2, 6),
    Kind.PAUSE_AGENT_LONG: (15, 40),
    Kind.CUT_STORE: (0.2, 6),
    Kind.HOLD_STORE: (0.5, 8),
    Kind.SLOW_STORE: (2, 10),
    Kind.DEAF_STORE: (0.5, 3),
    Kind.STORE_500: (0.3, 3),
    Kind.STORE_503: (0.3, 4),
    Kind.KILL_STORE: (0, 2),
    Kind.PAUSE_STORE: (0.2, 5),
    Kind.DISK_FULL: (0.3, 6),
    Kind.DISK_READ_ONLY: (0.3, 6),
    Kind.DISK_GONE: (0.3, 6),
    Kind.HOLD: (10, 60),
}
_WEIGHTS = {
    Kind.PAUSE_AGENT_LONG: 0.3,
    Kind.KILL_STORE: 0.4,
    Kind.RELOAD: 0.4,
    Kind.HOLD: 0.5,
    Kind.DISK_FULL: 2,
    Kind.DISK_READ_ONLY: 2,
    Kind.DISK_GONE: 2,
}


@dataclass(frozen=True)
class Fault:
    """One fault: when (seconds from the beginning), at which member (and which other), for how long."""

    at: float
    kind: Kind
    member: int
    other: int
    lasts: float


def storm(seed, seconds, *, store, every=2.4):
    """Faults over so many seconds, on average one each `every`; none ends after the last second.

    `store` is s3 or file.
    """
    chance = random.Random(seed)
    kinds = [kind for kind in Kind if kind not in (OF_SERVER if store == "file" else OF_DISK)]
    weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
    faults, at = [], every
    while at < seconds - 1:
        (kind,) = chance.choices(kinds, weights)
        member = chance.randrange(MEMBERS)
        other = (member + chance.randrange(1, MEMBERS)) % MEMBERS
        lasts = chance.uniform(*_LASTING.get(kind, (0, 0)))
        faults.append(Fault(at, kind, member, other, min(lasts, seconds - at)))
        at += chance.uniform(0.3, 1.7) * every
    return faults
