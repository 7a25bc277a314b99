"""The controllers of BackupEntries: what they watch, and who reconciles, or looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rootcellar.kube.controller import Controller, Watch
from rootcellar.kube.filters import (
    all_of,
    annotation_changed,
    any_of,
    created,
    deleting,
    now,
    reference,
    users,
)
from rootcellar.kube.kinds import Head, Key, heads, untyped
from rootcellar.kube.reflector import Reflector
from rootcellar.operator.backupentry.look import EntryWatch
from rootcellar.operator.backupentry.metrics import EntryMetrics
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.backupentry.parting import FORCED, HELD, EntryParting
from rootcellar.operator.backupentry.reconcile import EntryReconciler
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES, BackupEntry
from rootcellar.operator.shared.buckets import Buckets
from rootcellar.operator.shared.gardener import SHOOT_UID
from rootcellar.operator.shared.operation import is_ours, orders
from rootcellar.operator.shared.removal import Removals
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.subject import Ground

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rootcellar.kube.cache import Cache, Change
    from rootcellar.kube.filters import Filter, Mapper
    from rootcellar.kube.manager import Manager
    from rootcellar.logs import Log
    from rootcellar.operator.backupentry.run import EntrySettings

NAME = "rootcellar-backupentry"
LOOKER = f"{NAME}-look"
_SECRET = "secret"  # noqa: S105  an index
_NAMESPACE = "namespace"
_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
_LOOKING = 2
"""Threads that look: of all entries within the hour, and never in the way of who reconciles."""


def add_entry_controller(
    manager: Manager,
    settings: EntrySettings,
    *,
    log: Log,
    ignore_annotation: bool = False,
    workers: int = 5,
) -> Controller:
    """Have `manager` serve BackupEntries; the controller that reconciles them.  With `ignore_annotation`
    changes of specs count instead of the annotation that asks, and so do changes of the secrets that entries
    refer to and of the control planes' namespaces.
    """
    entries = Reflector(
        manager.client, BACKUP_ENTRIES, indexes={_SECRET: _secrets_of, _NAMESPACE: _namespaces_of}
    )
    ground = Ground(manager.client, manager.writer(NAME), manager.events(f"rootcellar.dev/{NAME}"), log)
    metrics = EntryMetrics(manager.metrics.registry)
    parting = EntryParting(
        ground,
        settings,
        others=lambda secret: entries.cache.by(_SECRET, reference(secret)),
        removals=Removals(manager.may_write),
        metrics=metrics,
    )
    buckets = Buckets()
    reconciler = EntryReconciler(ground, settings, parting, buckets, ignore_annotation=ignore_annotation)
    watches = [Watch(entries, asks(settings, ignore_annotation=ignore_annotation))]
    if ignore_annotation:
        secrets, namespaces = manager.reflector(heads(SECRETS)), manager.reflector(heads(_NAMESPACES))
        watches.append(Watch(secrets, keys=users(entries.cache, _SECRET)))
        watches.append(Watch(namespaces, keys=_control_planes(entries.cache)))
    controller = Controller(NAME, reconciler.reconcile, watches, workers=workers)
    manager.add(controller)
    if settings.looks is not None:
        looker = EntryWatch(ground, entries.cache, settings, metrics, buckets, settings.looks)
        looks = Controller(LOOKER, looker.look, [Watch(entries, created)], workers=_LOOKING, first=controller)
        manager.add(looks)
    return controller


def asks(settings: EntrySettings, *, ignore_annotation: bool) -> Filter:
    """The changes of an entry that count: orders, and of one under deletion the annotations that hold it back
    or force it, which are orders by themselves where every change is one.
    """
    ordered = orders(settings.types, settings.classes, ignore_annotation=ignore_annotation)
    if not ignore_annotation:
        return ordered
    ours = now(BACKUP_ENTRIES, lambda entry: is_ours(entry.spec, settings.types, settings.classes))
    return any_of(
        ordered, all_of(deleting, any_of(annotation_changed(FORCED), annotation_changed(HELD)), ours)
    )


def _secrets_of(entry: BackupEntry) -> tuple[str]:
    where = entry.spec.secret_ref
    return (reference(Key(where.namespace, where.name)),)


def _namespaces_of(entry: BackupEntry) -> tuple[str, ...]:
    return parse(entry.metadata.name).namespaces


def _control_planes(cache: Cache[BackupEntry]) -> Mapper:
    """Entries whose control plane is in a namespace: by its name, and the UID that it says."""

    def keys(change: Change) -> Iterable[Key]:
        raw = change.new or change.old
        uid = msgspec.json.decode(raw, type=Head).metadata.annotations.get(SHOOT_UID) if raw else None
        for key in cache.by(_NAMESPACE, change.key.name):
            name = parse(key.name)
            if uid == name.uid or change.key.name == name.own:
                yield key

    return keys
