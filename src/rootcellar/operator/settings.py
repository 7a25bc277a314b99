"""What an operator is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rootcellar.operator.shared.rights import ELECTION

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What an operator was told.

    `identity` tells processes apart; `lease` in `namespace` is the Lease that one of them holds.
    `controllers` are names of contracts.  `directory` has the buckets of the type `local`, which are mounted
    at `host_path` beside an etcd.  `grace` is how long the objects of an entry are kept behind its deletion;
    `endpoints` are those that a providerConfig may name.  `takes_over`: work although a peer lives.  `beats`:
    renew the Lease that gardenlet looks at.
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
    lease: str = ELECTION
    beats: bool = False
