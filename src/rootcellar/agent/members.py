"""Who belongs to the cluster: looking, adding as a learner, promoting, removing, moving to other peer URLs.

Asked through the service endpoints, so that a member that is not there can be spoken about.  The tries and
their pauses are etcd-backup-restore's.  What it does not have: a member is removed only while it is proven
silent and a quorum of voters stays without it, and a cluster that already lists the learner is not asked
twice.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from rootcellar.errors import ConfigError, EtcdError, EtcdUnavailableError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rootcellar.etcd.answers import Member
    from rootcellar.etcd.client import EtcdClient

T = TypeVar("T")

LIST_TRIES, ADD_TRIES = 4, 6
_ASK_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 120.0
_LEARNER_PAUSE = 5.0
_TOO_MANY_LEARNERS = "too many learner"
_SETTLING = "unhealthy cluster"  # what etcd says to changes until all members were connected for five seconds
_NOT_IN_SYNC = "in sync with leader"
_log = logging.getLogger(__name__)


class MemberLeases(Protocol):
    """What is known of members from outside etcd: the Kubernetes leases that their agents renew."""

    def registered(self) -> frozenset[str] | None:
        """Names of members that have once reported; None where nothing can be known.

        Raises KubeUnavailableError where that may be known later.
        """
        ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with a leader, as its member list and each member's own answer show it.

    `answering` are the ids of the members that answered under their own id.
    """

    cluster_id: int
    members: tuple[Member, ...]
    answering: frozenset[int]

    def find(self, name: str, peer_urls: Collection[str], member_id: int = 0) -> Member | None:
        """The member by name; by its peer URLs where it has not started yet; by an id."""
        for member in self.members:
            if member.name == name:
                return member
        for member in self.members:
            unnamed = not member.name and set(member.peer_urls) & set(peer_urls)
            if unnamed or (member_id and member.id == member_id):
                return member
        return None

    def can_lose(self, member: Member) -> bool:
        """Whether a quorum of the voters answers without this one."""
        if member.is_learner:
            return True
        voters = [each for each in self.members if not each.is_learner]
        others = sum(each.id in self.answering and each.id != member.id for each in voters)
        return others >= quorum(len(voters))


def quorum(voters: int) -> int:
    """How many of so many have to agree."""
    return voters // 2 + 1


class MemberControl:
    """Member calls with their tries.  `pause` is how seconds are waited."""

    def __init__(self, client: EtcdClient, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._pause = pause

    @property
    def endpoints(self) -> str:
        """Through whom the cluster is asked, for a person."""
        return ", ".join(self._client.endpoints)

    def cluster(self, *, tries: int = LIST_TRIES) -> Cluster:
        """The cluster as it is.  Raises EtcdUnavailableError when nobody answers, or there is no leader."""

        def look() -> Cluster:
            members = self._client.member_list()
            status = self._client.status(timeout=_ASK_SECONDS)
            return Cluster(status.header.cluster_id, members, self._answering(members))

        return self._insist(look, tries)

    def member(self, member_id: int) -> Member | None:
        """A member as the cluster lists it.  Raises EtcdUnavailableError where there is no quorum."""
        return next((each for each in self._client.member_list() if each.id == member_id), None)

    def add_learner(self, peer_urls: Sequence[str]) -> Member:
        """Add a member that does not vote yet, or return the one with these URLs that never started.

        Waits while another learner is still catching up.  Raises EtcdError.
        """

        def add() -> Member:
            for member in self._client.member_list():
                if set(member.peer_urls) == set(peer_urls) and not member.name:
                    return member
            return self._client.member_add(peer_urls, learner=True)

        return self._insist(add, ADD_TRIES)

    def promote(self, member_id: int) -> bool:
        """Make a learner a voter; False while it has not caught up.  Raises EtcdError."""
        try:
            self._client.member_promote(member_id)
        except EtcdError as error:
            if _NOT_IN_SYNC in error.message:
                return False
            raise
        return True

    def remove(self, member: Member) -> None:
        """Remove a member that is gone.  Raises TargetError where it answers, or a quorum would be lost."""
        cluster = self.cluster()
        if all(each.id != member.id for each in cluster.members):
            return
        if member.id in cluster.answering:
            raise TargetError(
                f"member {member.name} ({member.id:x}) answers: it is not gone",
                hint="another process runs under its name; end one of them",
            )
        if not cluster.can_lose(member):
            raise TargetError(
                f"removing member {member.name} would leave the cluster without a quorum",
                hint="bring the other members back first, or restore the cluster",
            )
        self._insist(lambda: self._client.member_remove(member.id), ADD_TRIES)

    def update_peer_urls(self, member: Member, peer_urls: Sequence[str], *, tries: int = 1) -> bool:
        """Have a member reached by other peer URLs; False where it is already so.  Raises EtcdError.

        Not for a learner: etcd would list it as a voter.
        """
        if set(member.peer_urls) == set(peer_urls):
            return False
        self._insist(lambda: self._client.member_update(member.id, peer_urls), tries)
        return True

    def _answering(self, members: Sequence[Member]) -> frozenset[int]:
        """Who answers under its own id; a silent one costs a second or two.

        One that still listens in the clear, while its clients change to TLS, is silent to who has TLS files.
        """
        found = set()
        for member in members:
            for url in member.client_urls:
                try:
                    status = self._client.member(url).status(timeout=_ASK_SECONDS / 2)
                except (EtcdError, ConfigError):
                    continue
                if status.header.member_id == member.id:
                    found.add(member.id)
                    break
        return frozenset(found)

    def _insist(self, call: Callable[[], T], tries: int) -> T:
        for pause in _pauses(tries):
            try:
                return call()
            except EtcdError as error:
                crowded = _TOO_MANY_LEARNERS in error.message
                passing = crowded or _SETTLING in error.message
                if not passing and not isinstance(error, EtcdUnavailableError):
                    raise
                seconds = pause + _LEARNER_PAUSE * crowded
                _log.info("not yet: %s; tried again in %.0f s", error.message, seconds)
                self._pause(seconds)
        return call()


def _pauses(tries: int) -> Iterator[float]:
    """Between so many tries: 2, 4, 8 ... up to 120 seconds."""
    for index in range(tries - 1):
        yield min(_FIRST_PAUSE * 2**index, _LONGEST_PAUSE)
