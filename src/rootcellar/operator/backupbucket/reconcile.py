"""The contract BackupBucket: what is done with one bucket, step by step.

reconcile   finalizers on the object and its secret, then the bucket: made or adopted, marked as this owner's,
            hardened; the secret that is generated for some types.
check       the same each half day against drift, but nothing is written where nothing flips.
delete      `deletion`.

Killed after any step: the next reconcile begins anew and finds what is done.  The bucket is marked before it
is hardened and before anything is told, so that from then on it is known who made it; a mark that a killed
creation did not leave makes the bucket an adopted one, which is kept.  One without a mark is adopted only
where it is of our account.  Finalizers come first and go last.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.errors import KubeNotFoundError, NotFoundError, RootcellarError
from rootcellar.kube.steps import Done, Outcome, Requeue, Step, run
from rootcellar.operator.backupbucket import findings
from rootcellar.operator.backupbucket.findings import CREDENTIALS, PLANNED
from rootcellar.operator.backupbucket.run import COLLECT, DRY_RUN, FINALIZER, ROTATE, Run
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS, DEFINITION
from rootcellar.operator.shared.gardener import Ask, ConditionStatus, OperationType, State
from rootcellar.operator.shared.operation import ORDERS, is_ours
from rootcellar.operator.shared.secrets import SECRETS, Contents
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Subject
from rootcellar.stores.admin.values import UNKNOWN, Claim
from rootcellar.stores.admin.values import Outcome as Came

if TYPE_CHECKING:
    from rootcellar.kube.kinds import Key
    from rootcellar.operator.backupbucket.deletion import Deletion
    from rootcellar.operator.backupbucket.leftovers import Leftovers
    from rootcellar.operator.backupbucket.run import BucketSettings
    from rootcellar.operator.shared.subject import Ground
    from rootcellar.stores.admin.values import BucketState


@dataclass(slots=True)
class BucketReconciler:
    """`reconcile` is for a Controller.  With `ignore_annotation` every call is an order but those that come
    when a check is due.
    """

    ground: Ground
    settings: BucketSettings
    deletion: Deletion
    leftovers: Leftovers
    ignore_annotation: bool = False
    _due: dict[Key, float] = field(default_factory=dict)
    _made: set[str] = field(default_factory=set)
    """UIDs of those whose bucket this process has made and not marked yet: what fails in between must not
    have it taken for one that was there before.
    """

    def reconcile(self, key: Key) -> Outcome:
        """Raises what went wrong, after it was told in the status where that is to be."""
        try:
            subject = Subject(
                self.ground, BACKUP_BUCKETS, DEFINITION.name, key, finalizer=FINALIZER, noun=_noun
            )
        except KubeNotFoundError:
            self._due.pop(key, None)
            self.leftovers.metrics.forget(key.name)
            return Done()
        bucket = subject.object
        is_served = is_ours(bucket.spec, self.settings.types, self.settings.classes)
        if not is_served or subject.asked == Ask.WAIT_FOR_STATE:
            return Done()
        if bucket.metadata.deletion_timestamp:  # buckets are never moved: nothing else goes before that
            subject.operation = OperationType.DELETE
        each = Run(subject, self.settings)
        if each.says(DRY_RUN):
            return run([Step("plan", self._plan)], each)
        is_check = self._is_well(each)
        if is_check and bucket.status.observed_generation != bucket.metadata.generation:
            return self._again(key)  # what is asked for has changed, and nobody has given the order yet
        left = self._due.get(key, 0.0) - time.monotonic()
        if is_check and left > 0 and not each.says(COLLECT):
            return Requeue(left)  # an order that the turn before has carried out: see `take_order`
        steps = self._steps(subject.operation, is_check=is_check)
        try:
            # Says first that it has begun, so that an order is not lost with the annotation.
            subject.take_order(tell_first=True)
            return run(steps, each)
        except Exception as error:
            self._fail(each, error)
            raise

    def _is_well(self, each: Run) -> bool:
        """Whether there is no order, and nothing to be brought to an end."""
        last = each.bucket.status.last_operation
        if each.subject.operation == OperationType.DELETE or each.subject.asked in ORDERS:
            return False
        if (
            last is None
            or last.state != State.SUCCEEDED
            or (each.bucket.spec.type == "azure" and each.says(ROTATE))
        ):
            return False
        if not self.ignore_annotation:
            return True
        is_same = each.bucket.status.observed_generation == each.bucket.metadata.generation
        return is_same and time.monotonic() >= self._due.get(each.subject.key, float("inf"))

    def _steps(self, operation: OperationType, *, is_check: bool) -> list[Step[Run]]:
        if operation == OperationType.DELETE:
            return [*self.deletion.steps(), Step("forget", self._forget)]
        begin = [Step("begin", _begin)]
        return [
            Step("finalizer", lambda each: each.subject.hold()),
            *([] if is_check else begin),
            Step("credentials", _credentials),
            Step("configuration", _configure),
            Step("bucket", self._create),
            Step("mark", self._mark),
            Step("settings", _harden),
            Step("keys", self._rotate),
            Step("generated secret", _generate),
            Step("left", self.leftovers.look),
            Step("done", self._check_on if is_check else self._succeed),
        ]

    def _forget(self, each: Run) -> None:
        self._made.discard(each.bucket.metadata.uid)
        self.leftovers.metrics.forget(each.name)

    def _fail(self, each: Run, error: Exception) -> None:
        if not each.subject.acts:
            return
        try:
            each.subject.find(findings.unreached(error))
        finally:
            each.subject.fail(error)

    def _create(self, each: Run) -> None:
        """Whose a bucket is that is there without our mark, `create` asks: one that somebody else has made
        with our name, and opened to us, would be given every backup.
        """
        each.state = each.admin.look()
        if each.state is None and each.was_there:
            note = f"the bucket {each.name} was gone, with all that lay in it; it is made anew"
            each.subject.tell("BucketVanished", "CreateBucket", note, warning=True)
            self.ground.log.warning("bucket-vanished", bucket=each.name)
        if each.state is None or not _has_mark(each.state, each.owner):
            if each.admin.create(each.wish(is_ours=True)) == Came.CREATED:
                self._made.add(each.bucket.metadata.uid)
                each.subject.tell("Created", "CreateBucket", f"the bucket {each.name} was made")
            each.state = each.admin.look()
        if each.state is None:
            raise NotFoundError(
                f"{each.admin.url} was made and is not to be seen", hint="this is tried again"
            )
        each.claim = Claim(each.owner, each.bucket.metadata.uid in self._made, self.ground.now())

    def _mark(self, each: Run) -> None:
        if each.claim is None:
            raise RuntimeError("the bucket has not been made yet")
        each.claim = each.admin.claim(each.claim)
        self._made.discard(each.bucket.metadata.uid)

    def _rotate(self, each: Run) -> None:
        """The older key is made anew, the annotation goes, and then the new key is published.

        Killed after the first, the newest key is not the published one, and no other is made; killed after
        the second, the same.  Were the annotation to go last, a kill before it would have the other key made
        anew too, which entries still use.
        """
        if each.account is None:
            return
        published = each.published.secret.data.get("storageKey") if each.published else None
        in_use = published.decode() if published else None
        if each.account.rotate(in_use, self.ground.now(), forced=each.says(ROTATE)):
            each.subject.tell("KeyRotated", "RotateKeys", "the older key of the storage account is made anew")
        if each.says(ROTATE):
            each.subject.unmark(ROTATE)

    def _succeed(self, each: Run) -> Outcome:
        each.subject.succeed()
        each.subject.drop_order()  # `migrate` and `restore`, which mean nothing else for a bucket
        return self._again(each.subject.key)

    def _check_on(self, each: Run) -> Outcome:
        """Who copies generated secrets looks at them when an operation has ended."""
        if each.is_republished:
            each.subject.succeed()
        return self._again(each.subject.key)

    def _again(self, key: Key) -> Outcome:
        """Who returns Done instead ends the checks: the queue forgets a key's time when it hands it out."""
        after = self.settings.again.total_seconds() * random.uniform(0.9, 1.0)  # noqa: S311  not all at once
        self._due[key] = time.monotonic() + after
        return Requeue(after)

    # what would be done

    def _plan(self, each: Run) -> Outcome:
        try:
            each.seen = each.subject.secret()
            each.configure(is_strict=each.subject.operation != OperationType.DELETE)
            each.open()
            text = self._planned(each)
        except RootcellarError as error:
            finding = Finding(PLANNED, ConditionStatus.FALSE, "WouldFail", sentence(error))
        else:
            finding = Finding(PLANNED, ConditionStatus.TRUE, "DryRun", text)
        each.subject.find([finding])
        each.subject.tell(finding.reason, "DryRun", finding.message)
        if each.subject.operation == OperationType.DELETE:  # which goes on when the annotation goes
            return Done()
        return self._again(each.subject.key)

    def _planned(self, each: Run) -> str:
        state = each.admin.look()
        if each.subject.operation == OperationType.DELETE:
            return self.deletion.planned(each, state)
        if state is None:
            return f"The bucket {each.name} would be made in {each.bucket.spec.region}."
        plan = each.admin.harden(each.wish(is_ours=False), state, dry_run=True)
        changes = [str(change) for change in plan.done] + [f"refused: {each}" for each in plan.refused]
        return f"The bucket {each.name} is there; " + ("; ".join(changes) or "nothing would be changed") + "."


def _noun(operation: OperationType) -> str:
    """As Gardener writes it."""
    return "BackupBucket" if operation == OperationType.DELETE else "backupbucket"


def _begin(each: Run) -> None:
    last = each.bucket.status.last_operation
    if last is None or (last.type, last.state) != (each.subject.operation, State.PROCESSING):
        each.subject.begin()


def _credentials(each: Run) -> None:
    try:
        each.seen = each.subject.hold_secret()
    except KubeNotFoundError:
        each.subject.find([findings.SECRET_MISSING])
        raise
    each.subject.acts = True


def _configure(each: Run) -> None:
    each.configure()
    each.open()


def _has_mark(state: BucketState, owner: str) -> bool:
    return state.claims is not UNKNOWN and any(claim.owner == owner for claim in state.claims)


def _harden(each: Run) -> None:
    if each.state is None or each.claim is None:
        raise RuntimeError("the bucket has not been looked at yet")
    wish = each.wish(is_ours=each.claim.created)
    hardening = each.admin.harden(wish, each.state)
    for change in hardening.done:
        each.subject.tell("SettingChanged", "HardenBucket", str(change))
    told = [
        findings.REACHED,
        findings.settings(hardening),
        findings.retention(each.state, wish, hardening),
        *([findings.CONFIG_UNREAD] if each.config.is_unread else []),
    ]
    each.subject.find(told, gone=[PLANNED, CREDENTIALS, findings.CONFIG])
    if (error := findings.stopping(hardening, each.state)) is not None:
        raise error


def _generate(each: Run) -> None:
    """Types whose backups use keys of their own, and `local`, which has none, get a secret for them."""
    data = {} if each.bucket.spec.type == "local" else each.admin.generated()
    if data is None:
        return
    key, writer = each.generated_key(), each.subject.ground.writer
    wanted = Contents({name: value.encode() for name, value in data.items()}, {}, {})
    there = each.read_generated()
    if there is None:
        writer.create(SECRETS, wanted.manifest(key), key.namespace)
    else:
        writer.patch(SECRETS, key, wanted.patch(there.secret), there.raw, only_this=True)
    each.is_republished = there is None or there.secret.data != wanted.data
    each.subject.write_status({"generatedSecretRef": {"name": key.name, "namespace": key.namespace}})
