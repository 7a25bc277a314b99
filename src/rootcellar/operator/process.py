"""The operator: one process that serves the contracts it was told to, and leads or waits."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rootcellar.errors import ConfigError, KubeNotFoundError
from rootcellar.kube.election import Terms
from rootcellar.kube.kinds import untyped
from rootcellar.kube.manager import Manager
from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.reconcile import BucketSettings
from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.reconcile import EntrySettings
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.shared.rights import ELECTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.kube.access import Access
    from rootcellar.kube.client import KubeClient
    from rootcellar.logs import Log

NAMES: Final = tuple(contract.name for contract in CONTRACTS)
_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
_ANCHOR: Final = "kube-system"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What an operator was told.

    `identity` tells processes apart, `namespace` is where their Lease is.  `directory` has the buckets of
    the type `local`, which are mounted at `host_path` beside an etcd.  `grace` is how long the objects of an
    entry are kept behind its deletion; `endpoints` are those that a providerConfig may name.
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


def operate(
    access: Access, settings: OperatorSettings, log: Log, *, ready: Callable[[Manager], object]
) -> None:
    """Work until told to stop; `ready` is given the manager before it runs.

    Raises KubeError where the API server cannot even be asked who this cluster is, FencedError where another
    process leads now.
    """
    terms = Terms(settings.namespace, ELECTION, settings.identity) if settings.elects else None
    with _tokens() as tokens:
        manager = Manager(access, identity=settings.identity, log=log, terms=terms, listen=settings.listen)
        owner = cluster_id(manager.client)
        for name in settings.controllers:
            _add(name, manager, settings, owner, tokens, log)
        log.info("started", controllers=",".join(settings.controllers), cluster=owner)
        ready(manager)
        manager.run()


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
