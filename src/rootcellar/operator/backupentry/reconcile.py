"""The contract BackupEntry: what is done with one entry, step by step.

reconcile, restore   finalizers on the entry and its secret, then `etcd-backup` in the control plane's
                     namespace.  The bucket is only looked at: an entry may be set up while a store is away.
migrate              gives up control: finalizers go, no object and no secret is touched.
delete               `etcd-backup`, then exactly the objects below `<name>/`, then the finalizers.  What is
                     locked keeps the entry until it may go; told to leave it (`FORCED`), a record stays.

Killed after any step: the next reconcile begins anew and finds what is done.  The finalizers come first and
go last, so nothing is deleted without its credentials, and none are left behind.  A deletion of objects goes
on from where it was in this process, from the beginning in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from rootcellar.errors import KubeNotFoundError, LockedError, NotFoundError, RootcellarError
from rootcellar.kube.kinds import Key, untyped
from rootcellar.kube.steps import Done, Outcome, Requeue, Step, run
from rootcellar.operator.backupentry.etcd_backup import etcd_backup, is_theirs
from rootcellar.operator.backupentry.holds import held
from rootcellar.operator.backupentry.names import EntryName, parse
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES, DEFINITION, BackupEntry
from rootcellar.operator.shared import ledger
from rootcellar.operator.shared.gardener import SHOOT_UID, Ask, ConditionStatus, OperationType, State
from rootcellar.operator.shared.operation import is_ours
from rootcellar.operator.shared.place import Asked, Place, located
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Ground, SeenSecret, Subject
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.backoff import Backoff
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rootcellar.operator.backupentry.metrics import EntryMetrics
    from rootcellar.operator.shared.removal import Removals
    from rootcellar.stores.admin.values import Deletion

FINALIZER: Final = "extensions.gardener.cloud/backupentry"
HELD: Final = "rootcellar.dev/hold"
"""The annotation that forbids the deletion of an entry's objects; its value says why."""
FORCED: Final = "backupentry.core.gardener.cloud/force-deletion"
"""Gardener's annotation: `true` has no grace waited for, and what is locked left.  A hold holds still."""
REACHABLE: Final = "BucketReachable"
PENDING: Final = "PendingObjectDeletion"
"""The condition of an entry whose objects cannot go yet."""

GIVES_UP_SOON: Final = Backoff(attempts=2, deadline=20.0)
"""For looks at a store whose answer nobody waits for."""
_LOCKED_AGAIN: Final = timedelta(hours=1)
_LOCKED_AT_MOST: Final = timedelta(hours=12)

_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)


@dataclass(frozen=True, slots=True)
class EntrySettings:
    """What an operator was told.  `grace`: how long the objects of an entry are kept after it was deleted.
    `directory` and `tokens` are `Asked`'s, `host_path` is where `directory` is mounted beside an etcd.
    `looks`: how often each entry's backups are looked at, None for never.
    """

    types: Collection[str]
    classes: Collection[str]
    directory: Path
    tokens: Path
    host_path: str
    grace: timedelta = timedelta(0)
    looks: timedelta | None = timedelta(hours=1)


@dataclass(slots=True)
class _Run:
    """One reconcile of one entry."""

    subject: Subject[BackupEntry]
    name: EntryName
    seen: SeenSecret | None = None

    @property
    def entry(self) -> BackupEntry:
        return self.subject.object

    @property
    def credentials(self) -> SeenSecret:
        if self.seen is None:
            raise RuntimeError("the secret has not been read yet")
        return self.seen


@dataclass(slots=True)
class EntryReconciler:
    """`reconcile` is for a Controller.  `others` are the keys of entries that refer to a secret.  With
    `ignore_annotation` it is also called for what no object says: that a secret changed, say.
    """

    ground: Ground
    settings: EntrySettings
    others: Callable[[Key], Iterable[Key]]
    removals: Removals
    metrics: EntryMetrics
    ignore_annotation: bool = False
    _leaving: Lock = field(default_factory=Lock)

    def reconcile(self, key: Key) -> Outcome:
        """Raises what went wrong, after it was told in the status where that is to be."""
        try:
            subject = Subject(
                self.ground,
                BACKUP_ENTRIES,
                DEFINITION.name,
                key,
                finalizer=FINALIZER,
                noun=lambda _operation: "BackupEntry",
            )
        except KubeNotFoundError:
            return Done()
        if not is_ours(subject.object.spec, self.settings.types, self.settings.classes):
            return Done()
        if subject.asked == Ask.WAIT_FOR_STATE:
            return Done()
        if _is_given_up(subject):
            if subject.asked == Ask.RECONCILE:
                subject.drop_order()
            return Done()
        if not self.ignore_annotation and _is_done(subject):
            return Done()
        subject.take_order(tell_first=True)
        try:
            return run(self._steps(subject.operation), _Run(subject, parse(key.name)))
        except Exception as error:
            subject.fail(error)
            raise

    def _steps(self, operation: OperationType) -> list[Step[_Run]]:
        match operation:
            case OperationType.MIGRATE:
                return [
                    Step("begin", lambda each: each.subject.begin()),
                    Step("give up", self._give_up),
                ]
            case OperationType.DELETE:
                return [
                    Step("finalizer", _finalized),
                    Step("grace", self._grace),
                    Step("begin", lambda each: each.subject.begin_deletion()),
                    Step("credentials", self._credentials_or_let_go),
                    Step("hold", self._refuse_held),
                    Step("etcd-backup", self._delete_secret),
                    Step("objects", self._delete_objects),
                    Step("let go", self._let_go),
                ]
            case _:
                return [
                    Step("finalizer", lambda each: each.subject.hold()),
                    Step("begin", lambda each: each.subject.begin()),
                    Step("credentials", _credentials),
                    Step("etcd-backup", self._deploy_secret),
                    Step("bucket", self._probe),
                    Step("done", _succeed),
                ]

    # reconcile, restore

    def _deploy_secret(self, each: _Run) -> None:
        namespace = self._namespace(each.name)
        if namespace is None:
            each.subject.write_status({"providerStatus": None})
            return
        key = Key(namespace, each.name.secret)
        each.subject.put_secret(
            key,
            lambda there: etcd_backup(
                each.entry, each.credentials.secret, there, host_path=self.settings.host_path
            ),
        )
        each.subject.write_status({"providerStatus": _told(key)})

    def _namespace(self, name: EntryName) -> str | None:
        """The control plane's.  None where it is not there, is about to go, or is another shoot's (made anew
        under the same technical id, it has its predecessor's namespace): there is nothing to set up then.
        """
        for namespace in name.namespaces:
            try:
                found = self.ground.client.get(_NAMESPACES, namespace)["metadata"]
            except KubeNotFoundError:
                continue
            uid = found.get("annotations", {}).get(SHOOT_UID, name.uid)
            if namespace == name.technical_id and uid != name.uid:
                continue
            return None if found.get("deletionTimestamp") else namespace
        return None

    def _probe(self, each: _Run) -> None:
        """Whether the bucket can be read with these credentials: a condition, and no error, because an etcd
        may be set up while its store is away.
        """
        finding = reachability(self._place(each), each.name)
        if finding.status == ConditionStatus.FALSE:
            each.subject.tell(finding.reason, "ProbeBucket", finding.message, warning=True)
        each.subject.refresh()  # a store may take its time, and others write meanwhile
        each.subject.find([finding])

    def _place(self, each: _Run) -> Place:
        return place_of(each.entry, each.credentials, self.settings)

    # migrate

    def _give_up(self, each: _Run) -> None:
        each.subject.acts = True
        each.subject.succeed()
        with self._leaving:
            each.subject.let_secret_go(self._holders)
            each.subject.let_all_go()
        try:
            each.subject.refresh()
        except KubeNotFoundError:  # it was deleted meanwhile
            return
        each.subject.drop_order()

    # delete

    def _grace(self, each: _Run) -> Outcome | None:
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

    def _credentials_or_let_go(self, each: _Run) -> Outcome | None:
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

    def _delete_secret(self, each: _Run) -> None:
        namespace = self._namespace(each.name)
        if namespace is None:
            return
        try:
            found = SeenSecret.read(self.ground, Key(namespace, each.name.secret))
        except KubeNotFoundError:
            return
        if not is_theirs(found.secret, each.entry.metadata.name):
            self.ground.writer.delete(SECRETS, found.key, found.raw)

    def _refuse_held(self, each: _Run) -> None:
        """Before anything is deleted.  A deletion that is under way has found no hold, and goes on."""
        why = each.entry.metadata.annotations.get(HELD)
        if why is not None:
            raise LockedError(
                f"the entry is held{f': {why}' if why else ''}",
                hint=f"remove the annotation {HELD} and its objects are deleted",
            )
        if self.removals.is_under_way(each.entry.metadata.uid):
            return
        place = self._place(each)
        if holds := held(open_store(place.below(each.name.prefix), credentials=place.credentials)):
            raise LockedError(
                f"{len(holds)} backups of the entry are held, such as for: {holds[0]}",
                hint="`rootcellar hold --release` lifts a hold; then they are deleted",
            )

    def _delete_objects(self, each: _Run) -> Outcome | None:
        """A bucket that is gone has nothing left in it."""
        place = self._place(each)
        admin = open_admin(place.url, credentials=place.credentials)
        uid = each.entry.metadata.uid
        delete = partial(admin.delete_objects, each.name.prefix)
        try:
            outcome = self.removals.go_on(each.subject, f"{each.name.prefix}/", delete)
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
            _strike(place, each.name.prefix)
        return outcome

    def _wait(self, each: _Run, left: Deletion, error: LockedError) -> Outcome:
        """What is locked keeps the entry, and with it the credentials, until it may go."""
        each.subject.fail(error)
        each.subject.find([Finding(PENDING, ConditionStatus.TRUE, "Locked", sentence(error), codes(error))])
        self.ground.log.warning("objects-locked", entry=each.entry.metadata.name, objects=left.locked)
        now = self.ground.now()
        again = _LOCKED_AGAIN if left.earliest is None else left.earliest - now
        return Requeue(max(1.0, min(again, _LOCKED_AT_MOST).total_seconds()))

    def _leave(self, each: _Run, place: Place, left: Deletion) -> None:
        """The entry goes without them; the record comes before its end, so that they are never forgotten."""
        name = each.entry.metadata.name
        record = ledger.Left(
            prefix=each.name.prefix,
            locked=left.locked,
            since=self.ground.now(),
            earliest=left.earliest,
            latest=left.latest,
        )
        ledger.keep(open_store(place.below(ledger.LEFT), credentials=place.credentials), record)
        self.metrics.left.inc(left.locked)
        self.ground.log.warning("objects-left", entry=name, objects=left.locked, until=str(left.latest))
        each.subject.tell("ObjectsLeft", "Delete", str(record), warning=True)

    def _let_go(self, each: _Run) -> None:
        each.subject.succeed()
        with self._leaving:
            each.subject.let_secret_go(self._holders)
            each.subject.let_go()
        self.removals.forget(each.entry.metadata.uid)

    def _holders(self, secret: Key) -> Iterable[Key]:
        """Entries that refer to a secret and are still to be let go of, asked of the API server: two that go
        together would else wait for each other, each in a cache that has not heard of the other's end.  That
        is also what `_leaving` is for.
        """
        for key in self.others(secret):
            try:
                entry = self.ground.client.get(BACKUP_ENTRIES, key.name)
            except KubeNotFoundError:
                continue
            if FINALIZER in entry.metadata.finalizers:
                yield key


def place_of(entry: BackupEntry, credentials: SeenSecret, settings: EntrySettings) -> Place:
    """Where an entry's bucket is.  Raises as `located`."""
    spec = entry.spec
    asked = Asked(spec.bucket_name, spec.region, credentials.secret, settings.directory, settings.tokens)
    return located(spec.type, asked)


def reachability(place: Place, name: EntryName) -> Finding:
    """Whether the bucket can be read with these credentials: a condition, and no error, because an etcd may
    be set up while its store is away.
    """
    try:
        store = open_store(place.below(name.prefix), credentials=place.credentials, backoff=GIVES_UP_SOON)
        next(iter(store.list()), None)
    except RootcellarError as error:
        return unreachable(error)
    return Finding(REACHABLE, ConditionStatus.TRUE, "Readable", "The entry's objects can be listed.")


def unreachable(error: RootcellarError) -> Finding:
    """The condition of a bucket that is not."""
    why = "BucketMissing" if isinstance(error, NotFoundError) else "NotReadable"
    return Finding(REACHABLE, ConditionStatus.FALSE, why, sentence(error), codes(error))


def _strike(place: Place, prefix: str) -> None:
    """Nothing is left: nor is a record of an earlier deletion needed."""
    ledger.strike(open_store(place.below(ledger.LEFT), credentials=place.credentials), prefix)


def _is_forced(each: _Run) -> bool:
    return each.entry.metadata.annotations.get(FORCED, "").lower() in {"true", "1", "t"}


def _is_given_up(subject: Subject[BackupEntry]) -> bool:
    """It was migrated away: only a restore brings it back."""
    last = subject.object.status.last_operation
    return (
        last is not None
        and (last.type, last.state) == (OperationType.MIGRATE, State.SUCCEEDED)
        and subject.operation not in {OperationType.MIGRATE, OperationType.RESTORE}
    )


def _is_done(subject: Subject[BackupEntry]) -> bool:
    """Nothing is asked, and the last that was has succeeded: an order that another turn has carried out."""
    last = subject.object.status.last_operation
    return (
        subject.asked is None
        and subject.operation == OperationType.RECONCILE
        and last is not None
        and last.state == State.SUCCEEDED
    )


def _credentials(each: _Run) -> None:
    each.seen = each.subject.hold_secret()
    each.subject.acts = True


def _succeed(each: _Run) -> None:
    each.subject.succeed()
    each.subject.drop_order()


def _told(key: Key) -> dict[str, Any]:
    """Where the secret is, for whoever looks at the entry."""
    where = {"namespace": key.namespace, "name": key.name}
    return {"apiVersion": "rootcellar.dev/v1alpha1", "kind": "BackupEntryStatus", "etcdBackup": where}


def _finalized(each: _Run) -> Outcome | None:
    return None if each.subject.is_finalized else Done()
