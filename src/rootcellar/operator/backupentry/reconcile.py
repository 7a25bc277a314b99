"""The contract BackupEntry: what is done with one entry, step by step.

reconcile, restore   finalizers on the entry and its secret, then `etcd-backup` in the control plane's
                     namespace.  The bucket is only looked at: an entry may be set up while a store is away.
migrate, delete      `parting`.

Killed after any step: the next turn begins anew and finds what is done.  The finalizers come first, so that
no credentials are handed on that could go without us.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rootcellar.errors import KubeNotFoundError, RootcellarError
from rootcellar.kube.kinds import Key
from rootcellar.kube.steps import Done, Outcome, Step, run
from rootcellar.operator.backupentry.etcd_backup import etcd_backup
from rootcellar.operator.backupentry.names import parse
from rootcellar.operator.backupentry.run import (
    EntrySettings,
    Run,
    namespace_of,
    reachable,
    subject_of,
    unreachable,
)
from rootcellar.operator.shared.gardener import Ask, ConditionStatus, OperationType, State
from rootcellar.operator.shared.operation import is_ours

if TYPE_CHECKING:
    from rootcellar.operator.backupentry.parting import EntryParting
    from rootcellar.operator.backupentry.types import BackupEntry
    from rootcellar.operator.shared.buckets import Buckets
    from rootcellar.operator.shared.status import Finding
    from rootcellar.operator.shared.subject import Ground, Subject


@dataclass(slots=True)
class EntryReconciler:
    """`reconcile` is for a Controller.  With `ignore_annotation` it is also called for what no object says:
    that a secret changed, say.
    """

    ground: Ground
    settings: EntrySettings
    parting: EntryParting
    buckets: Buckets
    ignore_annotation: bool = False

    def reconcile(self, key: Key) -> Outcome:
        """Raises what went wrong, after it was told in the status where that is to be."""
        try:
            subject = subject_of(self.ground, key)
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
            return run(self._steps(subject.operation), Run(subject, parse(key.name)))
        except Exception as error:
            subject.fail(error)
            raise

    def _steps(self, operation: OperationType) -> list[Step[Run]]:
        match operation:
            case OperationType.MIGRATE:
                return self.parting.migrate()
            case OperationType.DELETE:
                return self.parting.delete()
            case _:
                return [
                    Step("finalizer", lambda each: each.subject.hold()),
                    Step("begin", lambda each: each.subject.begin()),
                    Step("credentials", _credentials),
                    Step("etcd-backup", self._deploy_secret),
                    Step("bucket", self._probe),
                    Step("done", _succeed),
                ]

    def _deploy_secret(self, each: Run) -> None:
        namespace = namespace_of(self.ground.client, each.name)
        if namespace is None:
            return
        key = Key(namespace, each.name.secret)
        each.subject.put_secret(
            key,
            lambda there: etcd_backup(
                each.entry, each.credentials.secret, there, host_path=self.settings.host_path
            ),
            is_new=each.entry.status.provider_status is None,  # else it says where we have put one
        )
        each.deployed = key

    def _probe(self, each: Run) -> None:
        found = self._reachability(each)
        each.findings = [found]
        if found.status == ConditionStatus.FALSE:
            each.subject.tell(found.reason, "ProbeBucket", found.message, warning=True)

    def _reachability(self, each: Run) -> Finding:
        """Whether the bucket can be read with these credentials: a condition, and no error, because an etcd
        may be set up while its store is away, and before a workload identity has its first token.
        """
        try:
            self.buckets.probe(each.place(self.settings), f"{each.name.prefix}/")
        except RootcellarError as error:
            return unreachable(error)
        return reachable()


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


def _credentials(each: Run) -> None:
    each.seen = each.subject.hold_secret()
    each.subject.acts = True


def _succeed(each: Run) -> None:
    told = _told(each.deployed) if each.deployed else None
    each.subject.succeed(each.findings, providerStatus=told)
    each.subject.drop_order()


def _told(key: Key) -> dict[str, Any]:
    """Where the secret is, for whoever looks at the entry."""
    where = {"namespace": key.namespace, "name": key.name}
    return {"apiVersion": "rootcellar.dev/v1alpha1", "kind": "BackupEntryStatus", "etcdBackup": where}
