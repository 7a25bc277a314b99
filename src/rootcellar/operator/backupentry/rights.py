"""What the controller of BackupEntries touches in Kubernetes."""

from __future__ import annotations

from typing import Final

from rootcellar.kube.rbac import READ, Right
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared.rights import WATCHED
from rootcellar.operator.shared.secrets import ETCD_BACKUP, SOURCE_ETCD_BACKUP

RIGHTS: Final = (
    Right.to(BACKUP_ENTRIES, *READ, why="the objects it is for"),
    Right.to(BACKUP_ENTRIES, "patch", why="their finalizer, and annotations that are done with"),
    Right.to(BACKUP_ENTRIES, "patch", below="status", why="to tell how they are"),
    Right("", "namespaces", ("get",), "whose control plane an entry belongs to"),
    Right("", "namespaces", ("list", "watch"), "to see when a control plane's comes", WATCHED),
    Right("", "secrets", ("get",), "credentials, which spec.secretRef may have in any namespace"),
    Right("", "secrets", ("list", "watch"), "to see when credentials change", WATCHED),
    Right("", "secrets", ("patch",), "the finalizer of credentials, and etcd-backup when they change"),
    Right("", "secrets", ("create",), "etcd-backup in the namespace of each control plane"),
    Right(
        "",
        "secrets",
        ("delete",),
        "etcd-backup, once its entry goes",
        names=(ETCD_BACKUP, SOURCE_ETCD_BACKUP),
    ),
)
