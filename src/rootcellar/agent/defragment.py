"""Giving back the space that etcd holds and does not use, one member at a time.

A member answers nothing while it is defragmented.  So followers come first and the leader last, the next one
only when the one before answers again, and nothing is begun while a voter is silent: with it the cluster
would be down to what a defragmentation takes away.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rootcellar.errors import ConfigError, EtcdError, EtcdUnavailableError
from rootcellar.etcd.answers import AlarmKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rootcellar.etcd.answers import Alarm, Member, Status
    from rootcellar.etcd.client import EtcdClient

_ASK_SECONDS = 5.0
_POLL = 0.2
_ROOM = 0.9


@dataclass(frozen=True, slots=True)
class Seat:
    """One member as it answers: sizes in bytes.  `endpoint` is empty for one that does not.

    `quota` is what the member itself says (3.6 and above), 0 where it does not.  `is_full`: it has raised
    NOSPACE.
    """

    id: int
    name: str
    endpoint: str
    is_leader: bool = False
    is_learner: bool = False
    size: int = 0
    in_use: int = 0
    quota: int = 0
    is_full: bool = False

    @property
    def waste(self) -> int:
        """Bytes that a defragmentation would give back."""
        return max(0, self.size - self.in_use)

    @property
    def answers(self) -> bool:
        return bool(self.endpoint)


@dataclass(frozen=True, slots=True)
class Threshold:
    """From which waste on it is worth the pause: `share` of the file (0 to 1) and `least` bytes, both."""

    share: float = 0.3
    least: int = 64 << 20

    def is_met(self, seat: Seat) -> bool:
        return seat.waste >= self.least and seat.waste >= self.share * seat.size


ALWAYS = Threshold(0, 0)
"""What the reference does: everything, each time."""


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """Whom to defragment, in this order, and who is spared."""

    turns: tuple[Seat, ...]
    spared: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Defragmented:
    """One member done: bytes before and after, seconds."""

    seat: Seat
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DefragResult:
    """What came of it.  `disarmed` are NOSPACE alarms taken back, `armed` those left, with the reason."""

    done: tuple[Defragmented, ...]
    disarmed: tuple[Alarm, ...] = ()
    armed: tuple[tuple[Alarm, str], ...] = ()


def plan_defragmentation(seats: Sequence[Seat], threshold: Threshold) -> DefragPlan:
    """Decide.  Pure.  Raises EtcdUnavailableError while a voter is silent, or there is no leader.

    A full voter always has a turn: what is in use is counted anew only by the next write, and it takes none.
    """
    silent = [seat.name or f"{seat.id:x}" for seat in seats if not seat.answers and not seat.is_learner]
    if silent:
        raise EtcdUnavailableError(
            f"{', '.join(silent)} does not answer: nothing is defragmented",
            hint="a member that is defragmented answers nothing either; bring the other back first",
        )
    if not any(seat.is_leader for seat in seats):
        raise EtcdUnavailableError("the cluster has no leader", hint="wait until one is elected")
    # etcd refuses to defragment a learner.
    able = [seat for seat in seats if seat.answers and not seat.is_learner]
    worth = [seat for seat in able if seat.is_full or threshold.is_met(seat)]
    turns = sorted(worth, key=lambda seat: (seat.is_leader, seat.name, seat.id))
    return DefragPlan(tuple(turns), tuple(seat for seat in seats if seat not in worth))


def look(client: EtcdClient) -> list[Seat]:
    """All members.  Each is asked at the client's own endpoints before those that it advertises.

    Raises EtcdError and below.
    """
    members = client.member_list()
    full = {alarm.member_id for alarm in client.alarms() if alarm.kind is AlarmKind.NOSPACE}
    own = {
        status.header.member_id: (endpoint, status)
        for endpoint, status in _statuses(client, client.endpoints)
    }
    seats = [_seat(client, member, own.get(member.id)) for member in members]
    return [replace(seat, is_full=seat.id in full) for seat in seats]


def _seat(client: EtcdClient, member: Member, known: tuple[str, Status] | None) -> Seat:
    if known is None:
        for endpoint, status in _statuses(client, member.client_urls):
            if status.header.member_id == member.id:
                known = endpoint, status
                break
    if known is None:
        return Seat(member.id, member.name, "", is_learner=member.is_learner)
    endpoint, status = known
    return Seat(
        member.id,
        member.name,
        endpoint,
        is_leader=status.leader == member.id,
        is_learner=member.is_learner,
        size=status.db_size,
        in_use=status.db_size_in_use,
        quota=status.db_size_quota,
    )


def _statuses(client: EtcdClient, endpoints: Iterable[str]) -> Iterable[tuple[str, Status]]:
    for endpoint in endpoints:
        try:
            yield endpoint, client.member(endpoint).status(timeout=_ASK_SECONDS)
        except (EtcdError, ConfigError):  # or it listens in the clear, and there are TLS files
            continue


def defragment(
    client: EtcdClient,
    threshold: Threshold,
    *,
    timeout: float = 480,
    settle: float = 60,
    quota: int = 0,
    pause: Callable[[float], None] = time.sleep,
    told: Callable[[Defragmented], None] = lambda _done: None,
) -> DefragResult:
    """Look, plan, carry out; then take NOSPACE alarms back where there is room again.

    `timeout` is for one member, `settle` for its coming back, both in seconds.  `quota` in bytes is what
    etcd runs with, for members that do not say it.  Everyone is looked at again before each turn.  Raises
    EtcdUnavailableError and EtcdError; the members that come later are then as they were.
    """
    plan = plan_defragmentation(look(client), threshold)
    done = []
    for turn in plan.turns:
        fresh = plan_defragmentation(look(client), ALWAYS)
        seat = next((each for each in fresh.turns if each.id == turn.id), None)
        if seat is None:  # it left the cluster
            continue
        began = time.monotonic()
        client.member(seat.endpoint).defragment(timeout=timeout)
        size = _wait_for(client, seat, settle, pause)
        done.append(Defragmented(seat, size, time.monotonic() - began))
        told(done[-1])
    disarmed, armed = _disarm(client, quota)
    return DefragResult(tuple(done), disarmed, armed)


def _wait_for(client: EtcdClient, seat: Seat, settle: float, pause: Callable[[float], None]) -> int:
    """The member's size once it answers and knows a leader, and the cluster confirms a read."""
    deadline = time.monotonic() + settle
    while True:
        try:
            status = client.member(seat.endpoint).status(timeout=_ASK_SECONDS)
            client.header(timeout=_ASK_SECONDS)
        except EtcdUnavailableError as error:
            failure = error
        else:
            if status.leader:
                return status.db_size
            failure = EtcdUnavailableError(f"{seat.endpoint} knows no leader")
        if time.monotonic() > deadline:
            raise EtcdUnavailableError(
                f"{seat.name} was defragmented and is not back after {settle:.0f} s: {failure.message}",
                hint="the other members were left alone; see what it writes",
            ) from failure
        pause(_POLL)


def _disarm(client: EtcdClient, quota: int) -> tuple[tuple[Alarm, ...], tuple[tuple[Alarm, str], ...]]:
    """Take back NOSPACE, and no other alarm, of members that have room again."""
    raised = [alarm for alarm in client.alarms() if alarm.kind is AlarmKind.NOSPACE]
    if not raised:
        return (), ()
    seats = {seat.id: seat for seat in look(client)}
    disarmed, armed = [], []
    for alarm in raised:
        reason = _why_kept(seats.get(alarm.member_id), quota)
        if reason:
            armed.append((alarm, reason))
        else:
            client.disarm(alarm)
            disarmed.append(alarm)
    return tuple(disarmed), tuple(armed)


def _why_kept(seat: Seat | None, quota: int) -> str:
    if seat is None:
        return ""  # of a member that is gone: there is nothing that could be full
    limit = seat.quota or quota
    if not seat.answers:
        return f"{seat.name} does not answer"
    if not limit:
        return f"{seat.name} does not say its quota: give it"
    if seat.size > _ROOM * limit:
        return f"{seat.name} still has {seat.size} of {limit} bytes: compact first"
    return ""
