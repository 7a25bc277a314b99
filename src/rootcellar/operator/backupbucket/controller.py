"""The controller of BackupBuckets: what it watches, and who reconciles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.filters import (
    all_of,
    annotated,
    annotation_changed,
    any_of,
    created,
    deleting,
    now,
    reference,
    users,
)
from rootcellar.kube.kinds import Key, heads
from rootcellar.kube.reflector import Reflector
from rootcellar.operator.backupbucket.deletion import Deletion, stranger
from rootcellar.operator.backupbucket.leftovers import Leftovers, Named
from rootcellar.operator.backupbucket.metrics import BucketMetrics
from rootcellar.operator.backupbucket.reconcile import BucketReconciler
from rootcellar.operator.backupbucket.run import COLLECT, DRY_RUN, EMPTY, KEEP, ROTATE, BucketSettings
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS, BackupBucket
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared.operation import is_ours, orders
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.subject import Ground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.filters import Filter
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
    removals = Removals(manager.may_write)
    reconciler = BucketReconciler(
        Ground(manager.client, manager.writer(NAME), manager.events(f"rootcellar.dev/{NAME}"), log),
        settings,
        Deletion(
            entries=lambda bucket: (each.entry for each in _named(manager.client) if each.bucket == bucket),
            others=lambda secret: buckets.cache.by(_SECRET, reference(secret)),
            removals=removals,
        ),
        Leftovers(
            lambda: _named(manager.client), stranger, removals, BucketMetrics(manager.metrics.registry)
        ),
        ignore_annotation=ignore_annotation,
    )
    watches = [Watch(buckets, asks(settings, ignore_annotation=ignore_annotation))]
    if ignore_annotation:
        watches.append(Watch(manager.reflector(heads(SECRETS)), keys=users(buckets.cache, _SECRET)))
    controller = Controller(NAME, reconciler.reconcile, watches, workers=workers)
    manager.add(controller)
    return controller


def asks(settings: BucketSettings, *, ignore_annotation: bool) -> Filter:
    """The changes of a bucket that count: orders; what is there at the start, which is looked at without a
    write; and our own annotations.  To take a dry run back is an order only where changes of specs are.
    """
    ours = now(BACKUP_BUCKETS, lambda bucket: is_ours(bucket.spec, settings.types, settings.classes))
    planned = all_of(annotation_changed(DRY_RUN), annotated(DRY_RUN, "true"))
    rotated = all_of(
        annotation_changed(ROTATE),
        annotated(ROTATE, "true"),
        now(BACKUP_BUCKETS, lambda bucket: bucket.spec.type == "azure"),
    )
    collected = all_of(annotation_changed(COLLECT), annotated(COLLECT, "true"))
    own = [created, planned, rotated, collected]
    if ignore_annotation:
        own += [
            annotation_changed(DRY_RUN),
            all_of(deleting, any_of(annotation_changed(EMPTY), annotation_changed(KEEP))),
        ]
    return any_of(
        orders(settings.types, settings.classes, ignore_annotation=ignore_annotation),
        all_of(ours, any_of(*own)),
    )


def _secrets_of(bucket: BackupBucket) -> tuple[str]:
    where = bucket.spec.secret_ref
    return (reference(Key(where.namespace, where.name)),)


def _named(client: KubeClient) -> Iterator[Named]:
    """Asked of the API server each time: a cache may not know yet of an entry that was made just now.  What
    stands behind a slash, where a Garden has one, is a prefix.
    """
    for entry in client.list(BACKUP_ENTRIES):
        name = entry.metadata.name
        bucket, _, before = entry.spec.bucket_name.partition("/")
        yield Named(name, bucket, before.partition("/")[0] or parse(name).prefix)
