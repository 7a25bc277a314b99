"""The contract BackupBucket, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.rights import RIGHTS
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.operator.backupbucket.types import DEFINITION
from rootcellar.operator.shared.contract import Contract

if TYPE_CHECKING:
    from rootcellar.kube.manager import Manager
    from rootcellar.operator.shared.contract import Means


def _serve(manager: Manager, means: Means) -> None:
    told = means.settings
    own = BucketSettings(
        told.types, told.classes, means.owner, told.directory, means.tokens, endpoints=told.endpoints
    )
    add_bucket_controller(
        manager, own, log=means.log, ignore_annotation=told.ignore_annotation, workers=told.workers
    )


CONTRACT: Final = Contract("backupbucket", DEFINITION, RIGHTS, _serve)
