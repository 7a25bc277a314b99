"""The contract BackupEntry, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.rights import RIGHTS
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.backupentry.types import DEFINITION
from rootcellar.operator.shared.contract import Contract

if TYPE_CHECKING:
    from rootcellar.kube.manager import Manager
    from rootcellar.operator.shared.contract import Means


def _serve(manager: Manager, means: Means) -> None:
    told = means.settings
    own = EntrySettings(
        told.types,
        told.classes,
        told.directory,
        means.tokens,
        told.host_path,
        grace=told.grace,
        endpoints=told.endpoints,
    )
    add_entry_controller(
        manager, own, log=means.log, ignore_annotation=told.ignore_annotation, workers=told.workers
    )


CONTRACT: Final = Contract("backupentry", DEFINITION, RIGHTS, _serve)
