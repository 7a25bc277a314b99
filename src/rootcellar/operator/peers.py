"""Whether somebody else's controllers for the same objects live: extensions of Gardener.

What can be seen of one, in whatever namespace Gardener installed it, are two Leases that it renews: that of
its leader election, `<extension>-leader-election`, and the one by which gardenlet sees that it lives,
`gardener-extension-heartbeat` with the extension's name as holder.  Neither says which of its controllers are
on.  So one whose controllers for backups were switched off looks like one that would fight over each object,
and only a person can tell: by `--take-over`.

Lives: renewed within two minutes by this machine's clock, or in its future; a clock that is ahead by more
overlooks a peer.  A second installation of ours has a Lease of its own and is not looked for: one for the
class `garden` beside one for `shoot` is how Gardener installs extensions.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rootcellar.errors import FencedError, RootcellarError
from rootcellar.kube.kinds import LEASES
from rootcellar.logs import told
from rootcellar.operator.shared.rights import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Lease
    from rootcellar.logs import Log

EXTENSIONS: Final = {
    **{each: f"provider-{each}" for each in ("alicloud", "aws", "azure", "gcp", "local", "openstack")},
    "S3": "backup-s3",
}
"""Extensions by the type that they are for.  That for S3 is metal-stack's (its pkg/s3/types.go), and names
its Leases as Gardener's own do.
"""
_ELECTION: Final = "-leader-election"
_LIVES: Final = timedelta(minutes=2)
_LOOK_SECONDS: Final = 60.0


class Peer(NamedTuple):
    """A living extension, and where it is."""

    extension: str
    namespace: str


def peers(client: KubeClient, types: Iterable[str], own: str) -> tuple[Peer, ...]:
    """Those that live and are for one of `types`, outside our `own` namespace.  Raises KubeError."""
    extensions = {EXTENSIONS[each] for each in types if each in EXTENSIONS}
    if not extensions:
        return ()
    names = [HEARTBEAT, *(f"{each}{_ELECTION}" for each in sorted(extensions))]
    found = [lease for name in names for lease in client.list(LEASES, fields=f"metadata.name={name}")]
    return living(found, extensions, own, datetime.now(UTC))


def living(leases: Iterable[Lease], extensions: Iterable[str], own: str, now: datetime) -> tuple[Peer, ...]:
    """The peers that `leases` tell of, in order.  Pure."""
    wanted = set(extensions)
    found = set()
    for lease in leases:
        name = lease.metadata.name
        extension = lease.spec.holder_identity if name == HEARTBEAT else name.removesuffix(_ELECTION)
        if extension in wanted and lease.metadata.namespace != own and _lives(lease, now):
            found.add(Peer(extension, lease.metadata.namespace))
    return tuple(sorted(found))


def _lives(lease: Lease, now: datetime) -> bool:
    # A Lease without a holder was released.  A time that nobody can read is no proof of an end.
    if not (lease.spec.holder_identity and lease.spec.renew_time):
        return False
    try:
        return now - datetime.fromisoformat(lease.spec.renew_time) < _LIVES
    except (ValueError, TypeError):
        return True


def refusal(found: Iterable[Peer]) -> FencedError:
    """Why we do not work."""
    them = ", ".join(f"{each.extension} in {each.namespace}" for each in found)
    return FencedError(
        f"another controller for the same objects is alive: {them}",
        hint="switch its controllers for backups off (docs/operator.md says how), then say --take-over",
    )


class PeerWatch:
    """Has `stop` called when a peer comes alive, and raises FencedError at its end where one did."""

    def __init__(
        self,
        look: Callable[[], tuple[Peer, ...]],
        stop: Callable[[], object],
        log: Log,
        *,
        every: float = _LOOK_SECONDS,
    ) -> None:
        self._look, self._stop, self._log, self._every = look, stop, log, every
        self._ending = threading.Event()
        self._found: tuple[Peer, ...] = ()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not waited for: it only reads, and a request that hangs shall not keep the process.
        self._ending.set()
        if error is None and self._found:
            raise refusal(self._found)

    def _run(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self._found = self._look()
            except RootcellarError as error:  # whoever is not seen now is seen at the next look
                self._log.warning("peers-unknown", **told(error))
                continue
            if self._found:
                self._log.error("peer-came", **told(refusal(self._found)))
                self._stop()
                return
