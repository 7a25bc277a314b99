"""What the controller of BackupBuckets touches in Kubernetes."""

from __future__ import annotations

from typing import Final

from rootcellar.kube.rbac import READ, Right
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared.rights import GENERATED, WATCHED

RIGHTS: Final = (
    Right.to(BACKUP_BUCKETS, *READ, why="the objects it is for"),
    Right.to(BACKUP_BUCKETS, "patch", why="their finalizer, and annotations that are done with"),
    Right.to(BACKUP_BUCKETS, "patch", below="status", why="to tell how they are"),
    Right.to(BACKUP_ENTRIES, "list", why="a bucket that an entry names is not deleted"),
    Right("", "secrets", ("get",), "credentials, which spec.secretRef may have in any namespace"),
    Right("", "secrets", ("list", "watch"), "to see when credentials change", WATCHED),
    Right("", "secrets", ("patch",), "the finalizer that keeps credentials as long as the bucket"),
    Right("", "secrets", ("create", "delete"), "the secrets it generates", GENERATED),
)
