"""The contracts that this operator serves, by the names under which they are switched on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rootcellar.operator.backupbucket import rights as backupbucket_rights
from rootcellar.operator.backupbucket import types as backupbucket
from rootcellar.operator.backupentry import rights as backupentry_rights
from rootcellar.operator.backupentry import types as backupentry

if TYPE_CHECKING:
    from rootcellar.kube.crd import Definition
    from rootcellar.kube.rbac import Right


@dataclass(frozen=True, slots=True)
class Contract:
    """One controller: the kind it is for, and what it touches."""

    name: str
    definition: Definition
    rights: tuple[Right, ...]


CONTRACTS: Final = (
    Contract("backupbucket", backupbucket.DEFINITION, backupbucket_rights.RIGHTS),
    Contract("backupentry", backupentry.DEFINITION, backupentry_rights.RIGHTS),
)
