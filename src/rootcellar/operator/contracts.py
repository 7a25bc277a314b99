"""The contracts that this operator serves: another one is another line."""

from __future__ import annotations

from typing import Final

from rootcellar.operator.backupbucket.contract import CONTRACT as BACKUP_BUCKET
from rootcellar.operator.backupentry.contract import CONTRACT as BACKUP_ENTRY

CONTRACTS: Final = (BACKUP_BUCKET, BACKUP_ENTRY)
NAMES: Final = tuple(contract.name for contract in CONTRACTS)
