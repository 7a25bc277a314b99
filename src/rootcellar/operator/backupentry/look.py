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
from rootcellar.operator.shared.gardener import State
from rootcellar.operator.shared.operation import is_ours

if TYPE_CHECKING:
    from rootcellar.kube.cache import Cache
    from rootcellar.kube.kinds import Key
    from rootcellar.operator.backupentry.metrics import EntryMetrics
    from rootcellar.operator.backupentry.types import BackupEntry
    from rootcellar.operator.shared.buckets import Buckets
    from rootcellar.operator.shared.subject import Ground, Subject

_NOT_YET: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class EntryWatch:
    """`look` is for a Controller.  `entries` are as its watch has them: whether there is anything to look at
    costs no request, or thousands that are still being made would be asked for each minute.
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
        not_yet = Requeue(min(_NOT_YET, self.every).total_seconds())
        if not _is_settled(seen):
            return not_yet
        try:
            subject = subject_of(self.ground, key)
        except KubeNotFoundError:
            self.metrics.forget(key.name)
            return Done()
        if subject.object.metadata.deletion_timestamp or not _is_settled(subject.object):
            return not_yet
        run([Step("look", self._look)], subject)
        return Requeue(self.every.total_seconds() * random.uniform(0.9, 1.1))  # noqa: S311  not all at once

    def _look(self, subject: Subject[BackupEntry]) -> None:
        entry = subject.object
        try:
            place = place_of(entry, subject.secret(), self.settings)
            seen = survey.survey(self.buckets.store(place), f"{parse(entry.metadata.name).prefix}/")
        except KubeNotFoundError:
            return  # without its secret: whoever took that away knows
        except RootcellarError as error:
            found = [unreachable(error)]
        else:
            self.metrics.saw(entry.metadata.name, seen)
            found = [reachable(), *survey.findings(seen, self.ground.now())]
        if subject.flips(found):
            subject.refresh()  # a listing takes its time, and others write meanwhile
            subject.find(found)


def _is_settled(entry: BackupEntry) -> bool:
    """It is ours, and nothing is being done with it: whoever does would have to read again for each look."""
    last = entry.status.last_operation
    return FINALIZER in entry.metadata.finalizers and last is not None and last.state == State.SUCCEEDED
