"""What a contract is to the process that serves it: one declaration, which everything else is made from.

The process, its preflight, the chart's CRDs and role rules, and tests read them (`operator.contracts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rootcellar.kube.crd import Definition
    from rootcellar.kube.manager import Manager
    from rootcellar.kube.rbac import Right
    from rootcellar.logs import Log
    from rootcellar.operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Means:
    """What its controllers are made with.  `owner` tells this cluster from all others for ever; `tokens` is a
    directory for tokens of workload identities, which some libraries want as files.
    """

    settings: OperatorSettings
    owner: str
    tokens: Path
    log: Log


@dataclass(frozen=True, slots=True)
class Contract:
    """The `name` under which it is switched on, its kind, what it touches, and how a manager gets its
    controllers.
    """

    name: str
    definition: Definition
    rights: tuple[Right, ...]
    serve: Callable[[Manager, Means], object]
