"""The contract BackupEntry: what is done with one entry, step by step.

reconcile, restore   finalizers on the entry and its secret, then `etcd-backup` in the control plane's
                     namespace.  The bucket is only looked at: an entry may be set up while a store is away.
migrate              gives up control: finalizers go, no object and no secret is touched.
delete               `etcd-backup`, then exactly the objects below `<name>/`, then the finalizers.

Killed after any step: the next reconcile begins anew and finds what is done.  The finalizers come first and
go last, so nothing is deleted without its credentials, and none are left behind.  A deletion of objects goes
on from where it was in this process, from the beginning in another.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rootcellar.errors import KubeNotFoundError, LockedError, NotFoundError, RootcellarError
from rootcellar.kube.kinds import Key, untyped
from rootcellar.kube.steps import Done, Outcome, Requeue, Step, run
from rootcellar.operator.backupentry.etcd_backup import etcd_backup, is_theirs
from rootcellar.operator.backupentry.names import EntryName, parse
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES, DEFINITION, BackupEntry
from rootcellar.operator.shared.gardener import SHOOT_UID, Ask, ConditionStatus, OperationType, State
from rootcellar.operator.shared.operation import is_ours
from rootcellar.operator.shared.place import Asked, Place, located
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Ground, SeenSecret, Subject
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rootcellar.operator.shared.removal import Removals

FINALIZER: Final = "extensions.gardener.cloud/backupentry"
HELD: Final = "rootcellar.dev/hold"
"""The annotation that forbids the deletion of an entry's objects; its value says why."""
REACHABLE: Final = "BucketReachable"

_NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)


@dataclass(frozen=True, slots=True)
class EntrySettings:
    """What an operator was told.  `grace`: how long the objects of an entry are kept after it was deleted.
    `directory` and `tokens` are `Asked`'s, `host_path` is where `directory` is mounted beside an etcd.
    """

    types: Collection[str]
    classes: Collection[str]
    directory: Path
    tokens: Path
    host_path: str
    grace: timedelta = timedelta(0)


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
    """`reconcile` is for a Controller.  `others` are the keys of entries that refer to a secret."""

    ground: Ground
    settings: EntrySettings
    others: Callable[[Key], Iterable[Key]]
    removals: Removals

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
        subject.take_order()
        if _is_given_up(subject):
            return Done()
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
                    Step("hold", _refuse_held),
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
            return
        key = Key(namespace, each.name.secret)
        try:
            there = SeenSecret.read(self.ground, key).secret
        except KubeNotFoundError:
            there = None
        wanted = etcd_backup(each.entry, each.credentials.secret, there, host_path=self.settings.host_path)
        each.subject.put_secret(key, wanted)
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
        place = self._place(each)
        try:
            next(iter(open_store(place.below(each.name.prefix), credentials=place.credentials).list()), None)
        except RootcellarError as error:
            why = "BucketMissing" if isinstance(error, NotFoundError) else "NotReadable"
            finding = Finding(REACHABLE, ConditionStatus.FALSE, why, sentence(error), codes(error))
            each.subject.tell(why, "ProbeBucket", sentence(error), warning=True)
        else:
            finding = Finding(
                REACHABLE, ConditionStatus.TRUE, "Readable", "The entry's objects can be listed."
            )
        each.subject.find([finding])

    def _place(self, each: _Run) -> Place:
        spec = each.entry.spec
        return located(
            spec.type,
            Asked(
                spec.bucket_name,
                spec.region,
                each.credentials.secret,
                self.settings.directory,
                self.settings.tokens,
            ),
        )

    # migrate

    def _give_up(self, each: _Run) -> None:
        each.subject.acts = True
        each.subject.succeed()
        each.subject.let_secret_go(self.others)
        each.subject.let_all_go()
        each.subject.refresh()
        each.subject.drop_order()

    # delete

    def _grace(self, each: _Run) -> Outcome | None:
        deleted = each.entry.metadata.deletion_timestamp
        if not self.settings.grace or deleted is None:
            return None
        due = datetime.fromisoformat(deleted) + self.settings.grace
        left = (due - self.ground.now()).total_seconds()
        if left <= 0:
            return None
        each.subject.wait(f"Deletion of backup entry is scheduled for {due:%Y-%m-%dT%H:%M:%SZ}")
        return Requeue(left)

    def _credentials_or_let_go(self, each: _Run) -> Outcome | None:
        """Without credentials nothing can be deleted, and Gardener expects the entry to go all the same."""
        try:
            each.seen = each.subject.secret()
        except KubeNotFoundError:
            text = f"the secret with the credentials is gone: objects below {each.name.prefix}/ may be left"
            self.ground.log.warning("objects-orphaned", entry=each.entry.metadata.name)
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

    def _delete_objects(self, each: _Run) -> Outcome | None:
        """A bucket that is gone has nothing left in it."""
        place = self._place(each)
        admin = open_admin(place.url, credentials=place.credentials)
        delete = partial(admin.delete_objects, each.name.prefix)
        try:
            return self.removals.go_on(each.subject, f"{each.name.prefix}/", delete)
        except NotFoundError:
            self.removals.forget(each.entry.metadata.uid)
            return None

    def _let_go(self, each: _Run) -> None:
        each.subject.succeed()
        each.subject.let_secret_go(self.others)
        each.subject.let_go()


def _is_given_up(subject: Subject[BackupEntry]) -> bool:
    """It was migrated away: only a restore brings it back."""
    last = subject.object.status.last_operation
    return (
        last is not None
        and (last.type, last.state) == (OperationType.MIGRATE, State.SUCCEEDED)
        and subject.operation not in {OperationType.MIGRATE, OperationType.RESTORE}
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


def _refuse_held(each: _Run) -> None:
    why = each.entry.metadata.annotations.get(HELD)
    if why is not None:
        raise LockedError(
            f"the entry is held{f': {why}' if why else ''}",
            hint=f"remove the annotation {HELD} and its objects are deleted",
        )
