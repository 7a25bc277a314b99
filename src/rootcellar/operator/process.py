"""The operator: one process that serves the contracts it was told to, and leads or waits."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rootcellar.errors import ConfigError, KubeNotFoundError, UsageError
from rootcellar.kube.election import Terms
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.rbac import CLUSTER, OWN
from rootcellar.operator.contracts import CONTRACTS, NAMES
from rootcellar.operator.heartbeat import Heartbeat
from rootcellar.operator.peers import PeerWatch, peers, refusal
from rootcellar.operator.preflight import require_kinds, require_rights
from rootcellar.operator.shared import rights
from rootcellar.operator.shared.contract import Means
from rootcellar.operator.shared.place import require_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.kube.access import Access
    from rootcellar.kube.client import KubeClient
    from rootcellar.logs import Log
    from rootcellar.operator.peers import Peer
    from rootcellar.operator.settings import OperatorSettings
    from rootcellar.operator.shared.contract import Contract

_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
_ANCHOR: Final = "kube-system"


def operate(
    access: Access, settings: OperatorSettings, log: Log, *, ready: Callable[[Manager], object]
) -> None:
    """Work until told to stop; `ready` is given the manager before it runs.

    Raises what `look` raises, and FencedError where another process leads now, or a peer has come.
    """
    terms = Terms(settings.namespace, settings.lease, settings.identity) if settings.elects else None
    with ExitStack() as around:
        tokens = around.enter_context(_tokens())
        manager = Manager(access, identity=settings.identity, log=log, terms=terms, listen=settings.listen)
        client = manager.client
        owner = look(client, settings)
        means = Means(settings, owner, tokens, log)
        for contract in chosen(settings):
            contract.serve(manager, means)
        log.info("started", controllers=",".join(settings.controllers), cluster=owner)
        ready(manager)
        if not settings.takes_over:
            around.enter_context(PeerWatch(lambda: _peers(client, settings), manager.stop, log))
        if settings.beats:
            around.enter_context(Heartbeat(client, settings.namespace, manager.may_write, log))
        manager.run()


def look(client: KubeClient, settings: OperatorSettings) -> str:
    """Whether an operator could work here, without a write: which cluster it is.

    Raises UsageError for a controller or a type that there is not, ConfigError where a kind is missing,
    KubeDeniedError where a right is, FencedError where a peer lives, KubeError where the API server does not
    say.
    """
    contracts = chosen(settings)
    require_types(settings.types)
    places = {CLUSTER: "", OWN: settings.namespace}
    if settings.ignore_annotation:
        places[rights.WATCHED] = ""
    own = rights.operator_rights(settings.lease)
    wanted = (*own, *(right for each in contracts for right in each.rights))
    require_rights(client, wanted, places)
    require_kinds(client, contracts)
    if not settings.takes_over and (found := _peers(client, settings)):
        raise refusal(found)
    return cluster_id(client)


def chosen(settings: OperatorSettings) -> tuple[Contract, ...]:
    """The contracts that are to be served.  Raises UsageError for a name that none has."""
    if unknown := sorted(set(settings.controllers) - set(NAMES)):
        raise UsageError(f"there is no controller {unknown[0]!r}", hint=f"known are {', '.join(NAMES)}")
    return tuple(each for each in CONTRACTS if each.name in settings.controllers)


def _peers(client: KubeClient, settings: OperatorSettings) -> tuple[Peer, ...]:
    return peers(client, settings.types, settings.namespace)


def cluster_id(client: KubeClient) -> str:
    """What tells this cluster from all others for ever: the UID of a namespace that none is without."""
    try:
        return str(client.get(_NAMESPACES, _ANCHOR)["metadata"]["uid"])
    except KubeNotFoundError as error:
        raise ConfigError(f"there is no namespace {_ANCHOR}: is this a Kubernetes cluster?") from error


@contextmanager
def _tokens() -> Iterator[Path]:
    """Where tokens of workload identities lie, for libraries that want a file; nobody else reads them."""
    with tempfile.TemporaryDirectory(prefix="rootcellar-tokens-") as directory:
        yield Path(directory)
