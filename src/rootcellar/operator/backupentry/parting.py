"""How an entry parts: given up here for another cluster to take it over (migrate), or deleted.

Killed after any step: the next turn begins anew and finds what is done.  Finalizers go last, the secret's
before the entry's, so nothing is deleted without credentials, and none are left behind.  A deletion of
objects goes on from where it was in this process, from the beginning in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from rootcellar.errors import KubeNotFoundError, LockedError, NotFoundError, RootcellarError
from rootcellar.kube.kinds import Key
from rootcellar.kube.steps import Done, Outcome, Requeue, Step
from rootcellar.logs import told
from rootcellar.operator.backupentry.etcd_backup import is_theirs
from rootcellar.operator.backupentry.holds import held
from rootcellar.operator.backupentry.run import FINALIZER, EntrySettings, Run, namespace_of
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.operator.shared import ledger
from rootcellar.operator.shared.buckets import GIVES_UP_SOON
from rootcellar.operator.shared.gardener import ConditionStatus, State
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Ground, SeenSecret
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rootcellar.operator.backupentry.metrics import EntryMetrics
    from rootcellar.operator.shared.place import Place
    from rootcellar.operator.shared.removal import Removals
    from rootcellar.stores.admin.values import Deletion

HELD: Final = "rootcellar.dev/hold"
"""The annotation that forbids the deletion of an entry's objects; its value says why."""
FORCED: Final = "backupentry.core.gardener.cloud/force-deletion"
"""Gardener's annotation: `true` has no grace waited for, and what is locked left.  A hold holds still."""
_WAYS_OUT: Final = (
    "when that ends they are deleted by themselves;"
    f" the annotation {FORCED}=true lets the entry go now and leaves them"
)
PENDING: Final = "PendingObjectDeletion"
"""The condition of an entry whose objects cannot go yet."""

_LOCKED_AGAIN: Final = timedelta(hours=1)
_LOCKED_AT_LEAST: Final = timedelta(seconds=5)
"""A store whose clock is behind ours refuses for a while what may go by its date."""
_LOCKED_AT_MOST: Final = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class EntryParting:
    """The steps.  `others` are the keys of entries that refer to a secret."""

    ground: Ground
    settings: EntrySettings
    others: Callable[[Key], Iterable[Key]]
    removals: Removals
    metrics: EntryMetrics
    _leaving: Lock = field(default_factory=Lock)
    """See `Subject.let_secret_go`."""

    def migrate(self) -> list[Step[Run]]:
        """No object and no secret is touched."""
        return [Step("begin", lambda each: each.subject.begin()), Step("give up", self._give_up)]

    def delete(self) -> list[Step[Run]]:
        """`etcd-backup`, the objects, the finalizers."""
        return [
            Step("finalizer", _finalized),
            Step("grace", self._grace),
            Step("begin", lambda each: each.subject.begin_deletion()),
            Step("credentials", self._credentials_or_let_go),
            Step("counterpart", self._refuse_shared),
            Step("hold", self._refuse_held),
            Step("etcd-backup", self._delete_secret),
            Step("objects", self._delete_objects),
            Step("let go", self._let_go),
        ]

    # migrate

    def _give_up(self, each: Run) -> None:
        each.subject.acts = True
        each.subject.succeed()
        self.metrics.forget(each.entry.metadata.name)
        with self._leaving:
            each.subject.let_secret_go(self.others)
            each.subject.let_all_go()
        try:
            each.subject.refresh()
        except KubeNotFoundError:  # it was deleted meanwhile
            return
        each.subject.drop_order()

    # delete

    def _grace(self, each: Run) -> Outcome | None:
        deleted = each.entry.metadata.deletion_timestamp
        if not self.settings.grace or deleted is None or _is_forced(each):
            return None
        due = datetime.fromisoformat(deleted) + self.settings.grace
        left = (due - self.ground.now()).total_seconds()
        if left <= 0:
            return None
        text = f"Deletion of backup entry is scheduled for {due:%Y-%m-%dT%H:%M:%SZ}"
        last = each.entry.status.last_operation
        if last is None or (last.state, last.description) != (State.PENDING, text):
            each.subject.wait(text)
        return Requeue(left)

    def _credentials_or_let_go(self, each: Run) -> Outcome | None:
        """Without credentials nothing can be deleted, and Gardener expects the entry to go all the same."""
        try:
            each.seen = each.subject.secret()
        except KubeNotFoundError:
            text = f"the secret with the credentials is gone: objects below {each.name.prefix}/ may be left"
            self.ground.log.warning("objects-orphaned", entry=each.entry.metadata.name)
            self.metrics.orphaned.inc()
            each.subject.tell("ObjectsOrphaned", "Delete", text, warning=True)
            each.subject.let_go()
            return Done()
        each.subject.acts = True
        return None

    def _delete_secret(self, each: Run) -> None:
        namespace = namespace_of(self.ground.client, each.name)
        if namespace is None:
            return
        try:
            found = SeenSecret.read(self.ground, Key(namespace, each.name.secret))
        except KubeNotFoundError:
            return
        if not is_theirs(found.secret, each.entry.metadata.name):
            self.ground.writer.delete(SECRETS, found.key, found.raw)

    def _refuse_shared(self, each: Run) -> None:
        """An entry and its `source-` have one prefix.  Gardener never has both in one bucket; somebody who
        has would lose the backups of the one that lives.
        """
        name = each.name.own if each.name.is_source else f"source-{each.name.own}"
        try:
            other = self.ground.client.get(BACKUP_ENTRIES, name)
        except KubeNotFoundError:
            return
        lives = FINALIZER in other.metadata.finalizers and not other.metadata.deletion_timestamp
        if lives and other.spec.bucket_name == each.entry.spec.bucket_name:
            raise LockedError(
                f"the objects of the entry are also those of {name}, which lives",
                hint=f"delete {name} first, or move it to another bucket",
            )

    def _refuse_held(self, each: Run) -> None:
        """Before anything is deleted.  A deletion that is under way has found no hold, and goes on."""
        why = each.entry.metadata.annotations.get(HELD)
        if why is not None:
            raise LockedError(
                f"the entry is held{f': {why}' if why else ''}",
                hint=f"remove the annotation {HELD} and its objects are deleted",
            )
        if self.removals.is_under_way(each.entry.metadata.uid):
            return
        if holds := held(each.store(self.settings)):
            raise LockedError(
                f"{len(holds)} backups of the entry are held, such as for: {holds[0]}",
                hint="`rootcellar hold release` lifts a hold; then they are deleted",
            )

    def _delete_objects(self, each: Run) -> Outcome | None:
        """A bucket that is gone has nothing left in it."""
        place = each.place(self.settings)
        admin = open_admin(place.url, credentials=place.credentials)
        uid = each.entry.metadata.uid
        delete = partial(admin.delete_objects, each.name.prefix)
        try:
            outcome = self.removals.go_on(each.subject, f"{each.name.prefix}/", delete, ways_out=_WAYS_OUT)
        except NotFoundError:
            if admin.look() is not None:
                raise
            return None
        except LockedError as error:
            left = self.removals.left(uid)
            if left is None:
                raise
            if not _is_forced(each):
                return self._wait(each, left, error)
            self._leave(each, place, left)
            return None
        if outcome is None:
            self._strike(each, place)
        return outcome

    def _strike(self, each: Run, place: Place) -> None:
        """Nothing is left: nor is a record of an earlier deletion needed.  One that stays does no harm, and
        credentials may well be for the prefix alone.
        """
        below = place.below(ledger.HOME)
        try:
            store = open_store(below, credentials=place.credentials, backoff=GIVES_UP_SOON)
            ledger.strike(store, each.name.prefix)
        except RootcellarError as error:
            self.ground.log.warning("record-stays", entry=each.entry.metadata.name, **told(error))

    def _wait(self, each: Run, left: Deletion, error: LockedError) -> Outcome:
        """What is locked keeps the entry, and with it the credentials, until it may go."""
        each.subject.fail(error)
        each.subject.find([Finding(PENDING, ConditionStatus.TRUE, "Locked", sentence(error), codes(error))])
        self.ground.log.warning("objects-locked", entry=each.entry.metadata.name, objects=left.locked)
        now = self.ground.now()
        again = _LOCKED_AGAIN if left.earliest is None else left.earliest - now
        return Requeue(min(max(again, _LOCKED_AT_LEAST), _LOCKED_AT_MOST).total_seconds())

    def _leave(self, each: Run, place: Place, left: Deletion) -> None:
        """The entry goes without them; the record comes before its end, so that they are never forgotten."""
        name = each.entry.metadata.name
        record = ledger.Left(
            prefix=each.name.prefix,
            locked=left.locked,
            since=self.ground.now(),
            earliest=left.earliest,
            latest=left.latest,
        )
        ledger.keep(open_store(place.below(ledger.HOME), credentials=place.credentials), record)
        self.metrics.left.inc(left.locked)
        self.ground.log.warning("objects-left", entry=name, objects=left.locked, until=str(left.latest))
        each.subject.tell("ObjectsLeft", "Delete", str(record), warning=True)

    def _let_go(self, each: Run) -> None:
        each.subject.succeed()
        with self._leaving:
            each.subject.let_secret_go(self.others)
            each.subject.let_go()
        self.removals.forget(each.entry.metadata.uid)
        self.metrics.forget(each.entry.metadata.name)


def _is_forced(each: Run) -> bool:
    return each.entry.metadata.annotations.get(FORCED, "").lower() in {"true", "1", "t"}


def _finalized(each: Run) -> Outcome | None:
    return None if each.subject.is_finalized else Done()
