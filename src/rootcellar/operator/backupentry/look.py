"""Looking at entries' backups from time to time: conditions where one flips, metrics always.

A controller of its own beside the one that reconciles: a look is no operation, changes no `lastOperation`,
and may be late or left out.  Killed at any point it has lost one look.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.errors import KubeNotFoundError, RootcellarError
from rootcellar.kube.kinds import Key
from rootcellar.kube.steps import Done, Outcome, Requeue, Step, run
from rootcellar.operator.backupentry import survey
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.backupentry.run import (
    FINALIZER,
    EntrySettings,
    place_of,
    reachable,
    subject_of,
    unreachable,
)
from rootcellar.operator.shared import status
from rootcellar.operator.shared.gardener import State
from rootcellar.operator.shared.operation import is_ours
from rootcellar.operator.shared.subject import SeenSecret

if TYPE_CHECKING:
    from rootcellar.kube.cache import Cache
    from rootcellar.operator.backupentry.metrics import EntryMetrics
    from rootcellar.operator.backupentry.types import BackupEntry
    from rootcellar.operator.shared.buckets import Buckets
    from rootcellar.operator.shared.status import Finding
    from rootcellar.operator.shared.subject import Ground

_NOT_YET: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class EntryWatch:
    """`look` is for a Controller.  `entries` are as its watch has them: the API server is asked for one only
    when there is something to be written of it.
    """

    ground: Ground
    entries: Cache[BackupEntry]
    settings: EntrySettings
    metrics: EntryMetrics
    buckets: Buckets
    every: timedelta

    def look(self, key: Key) -> Outcome:
        """Raises KubeErrors; what a store says is a condition."""
        seen = self.entries.get(key)
        if seen is None or seen.metadata.deletion_timestamp:
            self.metrics.forget(key.name)
            return Done()
        if not is_ours(seen.spec, self.settings.types, self.settings.classes):
            return Done()
        if not _is_settled(seen):
            return Requeue(min(_NOT_YET, self.every).total_seconds())
        run([Step("look", self._look)], seen)
        return Requeue(self.every.total_seconds() * random.uniform(0.9, 1.1))  # noqa: S311  not all at once

    def _look(self, entry: BackupEntry) -> None:
        reference = entry.spec.secret_ref
        try:
            secret = SeenSecret.read(self.ground, Key(reference.namespace, reference.name))
            store = self.buckets.store(place_of(entry, secret, self.settings))
            seen = survey.survey(store, f"{parse(entry.metadata.name).prefix}/", now=self.ground.now())
        except KubeNotFoundError:
            return  # without its secret: whoever took that away knows
        except RootcellarError as error:
            found = [unreachable(error)]
        else:
            self.metrics.saw(entry.metadata.name, seen)
            found = [reachable(), *survey.findings(seen, self.ground.now())]
        if status.conditions(entry.status.conditions, found, self.ground.now()):
            self._tell(Key("", entry.metadata.name), found)

    def _tell(self, key: Key, found: list[Finding]) -> None:
        """Write what flips, in the entry as it is: a listing takes its time, and others write meanwhile."""
        try:
            subject = subject_of(self.ground, key)
        except KubeNotFoundError:
            self.metrics.forget(key.name)
            return
        if _is_settled(subject.object):
            subject.find(found)


def _is_settled(entry: BackupEntry) -> bool:
    """It is ours, and nothing is being done with it: whoever does would have to read again for each look."""
    meta, last = entry.metadata, entry.status.last_operation
    is_held = FINALIZER in meta.finalizers and not meta.deletion_timestamp
    return is_held and last is not None and last.state == State.SUCCEEDED
