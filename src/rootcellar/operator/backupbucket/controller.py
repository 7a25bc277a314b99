"""The controller of BackupBuckets: what it watches, and who reconciles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.filters import reference, users
from rootcellar.kube.kinds import Key
from rootcellar.kube.reflector import Reflector
from rootcellar.operator.backupbucket.reconcile import BucketReconciler, BucketSettings
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS, BackupBucket
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared.operation import orders
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.subject import Ground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.manager import Manager
    from rootcellar.logs import Log

NAME = "rootcellar-backupbucket"
_SECRET = "secret"  # noqa: S105  an index


def add_bucket_controller(
    manager: Manager,
    settings: BucketSettings,
    *,
    log: Log,
    ignore_annotation: bool = False,
    workers: int = 5,
) -> Controller:
    """Have `manager` serve BackupBuckets.  With `ignore_annotation` changes of specs count instead of the
    annotation that asks, and so do changes of the secrets that buckets refer to.
    """
    buckets = Reflector(manager.client, BACKUP_BUCKETS, indexes={_SECRET: _secrets_of})
    reconciler = BucketReconciler(
        Ground(manager.client, manager.writer(NAME), manager.events(f"rootcellar.dev/{NAME}"), log),
        settings,
        entries=lambda bucket: _entries_of(manager.client, bucket),
        others=lambda secret: buckets.cache.by(_SECRET, reference(secret)),
        removals=Removals(manager.may_write),
    )
    watches = [Watch(buckets, orders(settings.types, settings.classes, ignore_annotation=ignore_annotation))]
    if ignore_annotation:
        secrets = Reflector(manager.client, SECRETS)
        watches.append(Watch(secrets, keys=users(buckets.cache, _SECRET)))
    controller = Controller(NAME, reconciler.reconcile, watches, workers=workers)
    manager.add(controller)
    return controller


def _secrets_of(bucket: BackupBucket) -> tuple[str]:
    where = bucket.spec.secret_ref
    return (reference(Key(where.namespace, where.name)),)


def _entries_of(client: KubeClient, bucket: str) -> Iterator[str]:
    """Asked of the API server each time: a cache may not know yet of an entry that was made just now."""
    for entry in client.list(BACKUP_ENTRIES):
        if entry.spec.bucket_name == bucket:
            yield entry.metadata.name
