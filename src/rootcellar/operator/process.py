"""The operator: one process that serves the contracts it was told to, and leads or waits."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rootcellar.errors import ConfigError, KubeNotFoundError
from rootcellar.kube.election import Terms
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.kube.rbac import CLUSTER, OWN
from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.heartbeat import Heartbeat
from rootcellar.operator.peers import PeerWatch, peers, refusal
from rootcellar.operator.preflight import require_kinds, require_rights
from rootcellar.operator.shared import rights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.kube.access import Access
    from rootcellar.kube.client import KubeClient
    from rootcellar.logs import Log
    from rootcellar.operator.peers import Peer

NAMES: Final = tuple(contract.name for contract in CONTRACTS)
_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
_ANCHOR: Final = "kube-system"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What an operator was told.

    `identity` tells processes apart, `namespace` is where their Lease is.  `directory` has the buckets of
    the type `local`, which are mounted at `host_path` beside an etcd.  `grace` is how long the objects of an
    entry are kept behind its deletion; `endpoints` are those that a providerConfig may name.  `takes_over`:
    work although a peer lives.  `beats`: renew the Lease that gardenlet looks at.
    """

    identity: str
    namespace: str
    controllers: tuple[str, ...]
    types: tuple[str, ...]
    classes: tuple[str, ...]
    directory: Path
    host_path: str
    elects: bool = True
    listen: tuple[str, int] | None = None
    workers: int = 5
    ignore_annotation: bool = False
    grace: timedelta = timedelta(0)
    endpoints: tuple[str, ...] = ()
    takes_over: bool = False
    beats: bool = False


def operate(
    access: Access, settings: OperatorSettings, log: Log, *, ready: Callable[[Manager], object]
) -> None:
    """Work until told to stop; `ready` is given the manager before it runs.

    Raises what `look` raises, and FencedError where another process leads now, or a peer has come.
    """
    terms = Terms(settings.namespace, rights.ELECTION, settings.identity) if settings.elects else None
    with ExitStack() as around:
        tokens = around.enter_context(_tokens())
        manager = Manager(access, identity=settings.identity, log=log, terms=terms, listen=settings.listen)
        client = manager.client
        owner = look(client, settings)
        for name in settings.controllers:
            _add(name, manager, settings, owner, tokens, log)
        log.info("started", controllers=",".join(settings.controllers), cluster=owner)
        ready(manager)
        if not settings.takes_over:
            around.enter_context(PeerWatch(lambda: _peers(client, settings), manager.stop, log))
        if settings.beats:
            around.enter_context(Heartbeat(client, settings.namespace, manager.may_write, log))
        manager.run()


def look(client: KubeClient, settings: OperatorSettings) -> str:
    """Whether an operator could work here, without a write: which cluster it is.

    Raises ConfigError where a kind is missing, KubeDeniedError where a right is, FencedError where a peer
    lives, KubeError where the API server does not say.
    """
    contracts = [each for each in CONTRACTS if each.name in settings.controllers]
    places = {CLUSTER: "", OWN: settings.namespace}
    if settings.ignore_annotation:
        places[rights.WATCHED] = ""
    wanted = (*rights.RIGHTS, *(right for each in contracts for right in each.rights))
    require_rights(client, wanted, places)
    require_kinds(client, contracts)
    if not settings.takes_over and (found := _peers(client, settings)):
        raise refusal(found)
    return cluster_id(client)


def _peers(client: KubeClient, settings: OperatorSettings) -> tuple[Peer, ...]:
    return peers(client, settings.types, settings.namespace)


def cluster_id(client: KubeClient) -> str:
    """What tells this cluster from all others for ever: the UID of a namespace that none is without."""
    try:
        return str(client.get(_NAMESPACES, _ANCHOR)["metadata"]["uid"])
    except KubeNotFoundError as error:
        raise ConfigError(f"there is no namespace {_ANCHOR}: is this a Kubernetes cluster?") from error


def _add(name: str, manager: Manager, settings: OperatorSettings, owner: str, tokens: Path, log: Log) -> None:
    match name:
        case "backupbucket":
            add_bucket_controller(
                manager,
                BucketSettings(
                    settings.types,
                    settings.classes,
                    owner,
                    settings.directory,
                    tokens,
                    endpoints=settings.endpoints,
                ),
                log=log,
                ignore_annotation=settings.ignore_annotation,
                workers=settings.workers,
            )
        case "backupentry":
            add_entry_controller(
                manager,
                EntrySettings(
                    settings.types,
                    settings.classes,
                    settings.directory,
                    tokens,
                    settings.host_path,
                    grace=settings.grace,
                ),
                log=log,
                ignore_annotation=settings.ignore_annotation,
                workers=settings.workers,
            )
        case _:
            raise ConfigError(f"there is no controller {name!r}", hint=f"known are {', '.join(NAMES)}")


@contextmanager
def _tokens() -> Iterator[Path]:
    """Where tokens of workload identities lie, for libraries that want a file; nobody else reads them."""
    with tempfile.TemporaryDirectory(prefix="rootcellar-tokens-") as directory:
        yield Path(directory)
