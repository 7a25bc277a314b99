"""The controller of BackupEntries: what it watches, and who reconciles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.filters import reference, users
from rootcellar.kube.kinds import Key
from rootcellar.kube.reflector import Reflector
from rootcellar.operator.backupentry.reconcile import EntryReconciler, EntrySettings
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES, BackupEntry
from rootcellar.operator.shared.operation import orders
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.subject import Ground

if TYPE_CHECKING:
    from rootcellar.kube.manager import Manager
    from rootcellar.logs import Log

NAME = "rootcellar-backupentry"
_SECRET = "secret"  # noqa: S105  an index


def add_entry_controller(
    manager: Manager,
    settings: EntrySettings,
    *,
    log: Log,
    ignore_annotation: bool = False,
    workers: int = 5,
) -> Controller:
    """Have `manager` serve BackupEntries.  With `ignore_annotation` changes of specs count instead of the
    annotation that asks, and so do changes of the secrets that entries refer to.
    """
    entries = Reflector(manager.client, BACKUP_ENTRIES, indexes={_SECRET: _secrets_of})
    reconciler = EntryReconciler(
        Ground(manager.client, manager.writer(NAME), manager.events(f"rootcellar.dev/{NAME}"), log),
        settings,
        others=lambda secret: entries.cache.by(_SECRET, reference(secret)),
        removals=Removals(manager.may_write),
    )
    watches = [Watch(entries, orders(settings.types, settings.classes, ignore_annotation=ignore_annotation))]
    if ignore_annotation:
        secrets = Reflector(manager.client, SECRETS)
        watches.append(Watch(secrets, keys=users(entries.cache, _SECRET)))
    controller = Controller(NAME, reconciler.reconcile, watches, workers=workers)
    manager.add(controller)
    return controller


def _secrets_of(entry: BackupEntry) -> tuple[str]:
    where = entry.spec.secret_ref
    return (reference(Key(where.namespace, where.name)),)
