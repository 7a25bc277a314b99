"""Where a member is reached by its peers: moved to what its configuration says, also to TLS while all run.

An etcd listens where its configuration says from its start on, and its peers dial what the member list says.
Two members of which both listen elsewhere than the list says cannot hear each other.  So the list is changed
before etcd starts, by the members that run meanwhile (`initialization`).  Here is done what that leaves: a
member that started without a quorum, one that is alone, and one that still runs with another configuration.

Nothing is remembered from one look to the next but how long it has failed: each compares the configuration
with the list, and with how the peer port answers.  Killed between any two steps, the next start goes on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rootcellar.agent.backoff import Backoff
from rootcellar.agent.members import quorum
from rootcellar.agent.state import Fault
from rootcellar.agent.threads import in_thread
from rootcellar.backup.restore import place
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import EtcdError, EtcdUnavailableError, RootcellarError
from rootcellar.logs import told
from rootcellar.mvcc.meta import StoreMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rootcellar.agent.board import Board
    from rootcellar.agent.clock import Clock
    from rootcellar.agent.etcd_config import EtcdConfig
    from rootcellar.agent.members import MemberControl
    from rootcellar.etcd.answers import Member
    from rootcellar.etcd.client import EtcdClient

LASTING = 15.0
"""Seconds that a move may fail before it is a fault: an etcd that has just started has no leader yet."""
_LOOK = 1.0
_RESTARTING = 10.0
"""Seconds in which a wrapper that was told to stop has let go of its etcd."""
_ASK_SECONDS = 3.0
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  compared with, not listened at
_STUCK = (
    "bring the other members up; where all are up and were moved together, give them back the peer URLs that"
    " they had, and once all are ready change them for one member after the other"
)
_log = logging.getLogger(__name__)


class Mover:
    """Moves the member beside us.  `client` reaches it alone; `controls` speak for the cluster, the first
    that answers does.  `configured` reads the configuration that etcd is to have, None where there is none.
    `data_dir` is that etcd's.

    `restart` has etcd started anew, which is how one that runs comes to listen elsewhere; None where nobody
    here can.
    """

    def __init__(
        self,
        client: EtcdClient,
        controls: Sequence[MemberControl],
        configured: Callable[[], EtcdConfig | None],
        data_dir: Path,
        *,
        board: Board,
        clock: Clock,
        restart: Callable[[], object] | None = None,
    ) -> None:
        self._client = client
        self._controls = controls
        self._configured = configured
        self._data_dir = data_dir
        self._board = board
        self._clock = clock
        self._restart = restart
        self._failing_since: float | None = None
        self._told = ""

    async def run(self) -> None:
        """Until the member is known where its configuration says, and listens there."""
        backoff = Backoff()
        while True:
            try:
                pause = await in_thread("peer-urls", self._look)
            except Exception as error:  # noqa: BLE001  told, and tried again
                pause = backoff.pause(error)
                self._tell(error)
            else:
                self._board.clear(Fault.PEERS)
                self._failing_since, self._told = None, ""
                backoff.reset()
            if pause is None:
                return
            await asyncio.sleep(pause)

    def _tell(self, error: Exception) -> None:
        """A failure once when it begins, and as a fault when it lasts."""
        values = told(error)
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            _log.info("whether its peers reach this member where it is configured: %s", values["error"])
        elif now - self._failing_since >= LASTING and self._told != values["error"]:
            self._told = values["error"]
            sentence = values["error"] + (f" ({values['hint']})" if "hint" in values else "")
            _log.warning("this member is not reached by its peers as it is configured: %s", sentence)
            self._board.fault(Fault.PEERS, sentence)

    def _look(self) -> float | None:
        """One step; seconds until the next, None when nothing is left to do.

        Raises EtcdError, ConfigError.
        """
        shared = self._configured()
        if shared is None or not shared.peer_urls:
            return None
        try:
            status = self._client.status(timeout=_ASK_SECONDS)
        except EtcdUnavailableError:
            status = None  # it does not run yet; or it does, and answers nobody before it has a leader
        own = status.header.member_id if status is not None else 0
        if status is not None and status.is_learner:
            return _LOOK  # an update would make etcd forget that it is one
        control, member = self._listed(own, shared)
        if member is None:
            return _LOOK
        if control.update_peer_urls(member, shared.peer_urls):
            _log.info("member %x is reached at %s now", member.id, ", ".join(shared.peer_urls))
        # A crash here leaves a member that is looked for where it may not listen yet: the next look sees it.
        return self._listens(shared, control, member)

    def _listens(self, shared: EtcdConfig, control: MemberControl, member: Member) -> float | None:
        """Have etcd listen where it is configured to; as `_look`."""
        host = urlsplit(self._client.endpoints[0]).hostname or ""
        if all(listens(url, host) for url in shared.listen_peer_urls):
            return None
        if self._restart is None:
            _log.warning("etcd has to be restarted: it listens for peers elsewhere than it is configured to")
            return None
        self._spare_the_quorum(control, member)
        _log.info("etcd is restarted, to listen for peers at %s", ", ".join(shared.listen_peer_urls))
        self._restart()
        return _RESTARTING

    def _listed(self, own: int, shared: EtcdConfig) -> tuple[MemberControl, Member | None]:
        """Who speaks for the cluster, and the member as it lists it, None where it does not list that one.

        Where nobody does: raises EtcdError if this member is to be moved, as far as anybody knows.
        """
        failures: list[EtcdError] = []
        for control in self._controls:
            try:
                return control, control.member(own)
            except EtcdError as error:
                failures.append(error)
        if not isinstance(failures[0], EtcdUnavailableError):
            raise failures[0]
        known = believed(self._data_dir, shared.member)
        if set(known) <= set(shared.peer_urls):
            return self._controls[0], None
        raise EtcdUnavailableError(
            f"no quorum answers, and as far as the data of this member says its peers look for it at"
            f" {', '.join(known)}, which only a quorum can change to {', '.join(shared.peer_urls)}",
            hint=_STUCK,
        ) from failures[0]

    def _spare_the_quorum(self, control: MemberControl, member: Member) -> None:
        """Raise EtcdUnavailableError where ending this member's etcd would cost the others their quorum."""
        cluster = control.cluster(tries=1)
        voters = sum(not each.is_learner for each in cluster.members)
        if quorum(voters) > 1 and not cluster.can_lose(member):
            raise EtcdUnavailableError(
                "etcd has to be restarted to listen for peers where it is configured to, and without it"
                " there would be no quorum",
                hint="bring the other members up",
            )


def believed(data_dir: Path, name: str) -> tuple[str, ...]:
    """Where a member's own database has its peers look for it; nothing where that cannot be read.

    It may be read beside the etcd that writes it: what then does not fit together is taken for nothing.
    """
    try:
        with BoltFile(data_dir / place.MEMBER / "snap" / "db") as file:
            members = StoreMeta.read(file).members
    except (RootcellarError, OSError):
        return ()
    return next((each.peer_urls for each in members if each.name == name), ())


def listens(url: str, host: str) -> bool:
    """Whether somebody listens at a URL's port and speaks its scheme; `host` is asked where it names none.

    Raises EtcdUnavailableError where whoever is there says nothing.
    """
    place = urlsplit(url)
    name = host if place.hostname in _EVERYWHERE else (place.hostname or host)
    try:
        with socket.create_connection((name, place.port or 2380), _ASK_SECONDS) as peer:
            peer.sendall(b"GET /version HTTP/1.0\r\n\r\n")
            answer = peer.recv(5)
    except TimeoutError as error:
        raise EtcdUnavailableError(f"the peer port at {name}:{place.port} says nothing") from error
    except ConnectionResetError:
        answer = b""
    except OSError:
        return False
    # Who wants TLS hangs up on this, and logs a line.
    return (answer == b"HTTP/") == (place.scheme == "http")
