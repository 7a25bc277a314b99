"""Gardener's extension contract: the names that everybody in it uses.

Sources: gardener/gardener, docs/extensions and pkg/apis/{core/v1beta1,extensions/v1alpha1}.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

GROUP: Final = "extensions.gardener.cloud"
VERSION: Final = "v1alpha1"

OPERATION: Final = "gardener.cloud/operation"
"""The annotation that asks for something: one of `Ask`."""
TIMESTAMP: Final = "gardener.cloud/timestamp"
"""When it was asked, RFC 3339 with nanoseconds."""
CONFIRMED: Final = "confirmation.gardener.cloud/deletion"
"""The annotation without which Gardener's webhook refuses a deletion."""
SHOOT_UID: Final = "shoot.gardener.cloud/uid"
"""The annotation of a control plane's namespace."""
CREATED_BY: Final = "backup.gardener.cloud/created-by"
"""The annotation of an `etcd-backup` secret: the name of its BackupEntry."""
GENERATED_IN: Final = "backupbucket.extensions.gardener.cloud/generated-secret-namespace"
"""The annotation of a BackupBucket: where its generated secret is to be; `GARDEN` without it."""
GARDEN: Final = "garden"

PROTECTED: Final = {"gardener.cloud/deletion-protected": "true"}
"""The label of CRDs whose loss would lose a landscape: Gardener's webhook guards them."""

DEFAULT_CLASS: Final = "shoot"
"""What an object without `spec.class` is of; the others are `garden` and `seed`."""


class Ask(StrEnum):
    """Values of the annotation `OPERATION`."""

    RECONCILE = "reconcile"
    MIGRATE = "migrate"
    RESTORE = "restore"
    WAIT_FOR_STATE = "wait-for-state"


class OperationType(StrEnum):
    """`status.lastOperation.type`."""

    CREATE = "Create"
    RECONCILE = "Reconcile"
    DELETE = "Delete"
    MIGRATE = "Migrate"
    RESTORE = "Restore"


class State(StrEnum):
    """`status.lastOperation.state`.  After Error it is tried again, after Failed it is not."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    SUCCEEDED = "Succeeded"
    ERROR = "Error"
    FAILED = "Failed"
    ABORTED = "Aborted"


class ConditionStatus(StrEnum):
    """`status.conditions[].status`."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
    PROGRESSING = "Progressing"
