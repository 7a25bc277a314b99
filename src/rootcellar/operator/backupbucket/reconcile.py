"""The contract BackupBucket: what is done with one bucket, step by step.

reconcile   finalizers on the object and its secret, then the bucket: made or adopted, marked as this owner's,
            hardened; the secret that is generated for some types; and again every half day, against drift.
delete      refused while an entry of this cluster names the bucket, or objects lie in it that nobody asked
            to delete.  What others have marked, or what was adopted, is left and only our mark goes.

Killed after any step: the next reconcile begins anew and finds what is done.  The bucket is marked before it
is hardened and before anything is told, so that from then on it is known who made it; a mark that a killed
creation did not leave makes the bucket an adopted one, which is kept.  Finalizers come first and go last.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.errors import (
    KubeNotFoundError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    RootcellarError,
)
from rootcellar.kube.kinds import Key
from rootcellar.kube.steps import Done, Outcome, Requeue, Step, run
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS, DEFINITION, BackupBucket
from rootcellar.operator.shared.gardener import (
    GARDEN,
    GENERATED_IN,
    Ask,
    ConditionStatus,
    OperationType,
)
from rootcellar.operator.shared.operation import is_ours
from rootcellar.operator.shared.place import Asked, located
from rootcellar.operator.shared.secrets import SECRETS, Contents
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.operator.shared.subject import Ground, SeenSecret, Subject
from rootcellar.stores.admin.opening import open_admin
from rootcellar.stores.admin.provider_config import ProviderConfig, check_endpoint, decode
from rootcellar.stores.admin.values import BucketWish, Claim
from rootcellar.stores.admin.values import Outcome as Came

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from rootcellar.operator.shared.removal import Removals
    from rootcellar.stores.admin.protocol import BucketAdmin
    from rootcellar.stores.admin.values import BucketState, Hardening

FINALIZER: Final = "extensions.gardener.cloud/backupbucket"
EMPTY: Final = "rootcellar.dev/empty-on-deletion"
"""`true` has the objects of a bucket deleted with it."""
DRY_RUN: Final = "rootcellar.dev/dry-run"
"""`true` has it told, in the condition `Planned`, what would be done; nothing is."""
SETTINGS, RETENTION, PLANNED = "SettingsInSync", "RetentionLocked", "Planned"
DECIDED: Final = "DeletionDecided"
"""The condition of a bucket that was found to be ours to delete: its marks go before itself."""

_AGAIN = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """What an operator was told.  `owner` tells this cluster from all others for ever; `endpoints` are those
    that a providerConfig may name.  `directory` and `tokens` are `Asked`'s.
    """

    types: Collection[str]
    classes: Collection[str]
    owner: str
    directory: Path
    tokens: Path
    endpoints: Collection[str] = ()
    again: timedelta = _AGAIN


@dataclass(slots=True)
class _Run:
    """One reconcile of one bucket."""

    subject: Subject[BackupBucket]
    seen: SeenSecret | None = None
    admin: BucketAdmin | None = None
    config: ProviderConfig = field(default_factory=ProviderConfig)
    state: BucketState | None = None
    claim: Claim | None = None

    @property
    def bucket(self) -> BackupBucket:
        return self.subject.object

    @property
    def name(self) -> str:
        return self.subject.key.name

    def managed(self) -> BucketAdmin:
        if self.admin is None:
            raise RuntimeError("the bucket has not been opened yet")
        return self.admin


@dataclass(slots=True)
class BucketReconciler:
    """`reconcile` is for a Controller.  `entries` are the names of this cluster's BackupEntries that name a
    bucket, `others` the keys of BackupBuckets that refer to a secret.
    """

    ground: Ground
    settings: BucketSettings
    entries: Callable[[str], Iterable[str]]
    others: Callable[[Key], Iterable[Key]]
    removals: Removals

    def reconcile(self, key: Key) -> Outcome:
        """Raises what went wrong, after it was told in the status where that is to be."""
        try:
            subject = Subject(
                self.ground, BACKUP_BUCKETS, DEFINITION.name, key, finalizer=FINALIZER, noun=_noun
            )
        except KubeNotFoundError:
            return Done()
        if not is_ours(subject.object.spec, self.settings.types, self.settings.classes):
            return Done()
        if subject.asked == Ask.WAIT_FOR_STATE:
            return Done()
        if subject.object.metadata.annotations.get(DRY_RUN) == "true":
            return run([Step("plan", self._plan)], _Run(subject))
        subject.take_order()
        try:
            return run(self._steps(subject.operation), _Run(subject))
        except Exception as error:
            subject.fail(error)
            raise

    def _steps(self, operation: OperationType) -> list[Step[_Run]]:
        if operation == OperationType.DELETE:
            return [
                Step("finalizer", _finalized),
                Step("begin", lambda each: each.subject.begin_deletion()),
                Step("credentials", self._credentials_or_none),
                Step("entries", self._refuse_entries),
                Step("bucket", self._delete_bucket),
                Step("generated secret", self._delete_generated),
                Step("let go", self._let_go),
            ]
        return [
            Step("finalizer", lambda each: each.subject.hold()),
            Step("begin", lambda each: each.subject.begin()),
            Step("credentials", _credentials),
            Step("configuration", self._configure),
            Step("bucket", self._create),
            Step("mark", self._mark),
            Step("settings", self._harden),
            Step("generated secret", self._generate),
            Step("done", self._succeed),
        ]

    # reconcile

    def _configure(self, each: _Run) -> None:
        spec = each.bucket.spec
        each.config = decode(spec.type, spec.provider_config)
        check_endpoint(each.config, self.settings.endpoints)
        self._open(each)

    def _open(self, each: _Run) -> None:
        spec = each.bucket.spec
        if each.seen is None:
            raise RuntimeError("the secret has not been read yet")
        asked = Asked(each.name, spec.region, each.seen.secret, self.settings.directory, self.settings.tokens)
        place = located(spec.type, asked)
        each.admin = open_admin(place.url, credentials=place.credentials)

    def _create(self, each: _Run) -> None:
        admin = each.managed()
        each.state = admin.look()
        came = Came.ADOPTED
        if each.state is None:
            came = admin.create(self._wish(each, is_ours=True))
            each.state = admin.look()
        if each.state is None:
            raise NotFoundError(f"{admin.url} was made and is not to be seen", hint="this is tried again")
        each.claim = Claim(self._owner(each), came == Came.CREATED, self.ground.now())
        if came == Came.CREATED:
            each.subject.tell("Created", "CreateBucket", f"the bucket {each.name} was made")

    def _mark(self, each: _Run) -> None:
        if each.claim is None:
            raise RuntimeError("the bucket has not been made yet")
        each.claim = each.managed().claim(each.claim)

    def _wish(self, each: _Run, *, is_ours: bool) -> BucketWish:
        """What we made may be changed back; what somebody else set on a bucket that we adopted is not."""
        return BucketWish(
            region=each.bucket.spec.region or None,
            immutability=each.config.immutability,
            weaken=is_ours,
        )

    def _harden(self, each: _Run) -> None:
        if each.state is None or each.claim is None:
            raise RuntimeError("the bucket has not been looked at yet")
        wish = self._wish(each, is_ours=each.claim.created)
        hardening = each.managed().harden(wish, each.state)
        for change in hardening.done:
            each.subject.tell("SettingChanged", "HardenBucket", str(change))
        locked = each.config.immutability
        each.subject.find(
            [
                _settings(hardening),
                Finding(
                    RETENTION,
                    ConditionStatus.TRUE if locked and locked.locked else ConditionStatus.FALSE,
                    "Locked" if locked and locked.locked else "NotLocked",
                    f"Immutability: {locked or 'none'}.",
                ),
            ],
            gone=[PLANNED],
        )
        if hardening.refused:
            raise hardening.refused[0]

    def _generate(self, each: _Run) -> None:
        """Types whose backups use keys of their own, and `local`, which has none, get a secret for them."""
        data = {} if each.bucket.spec.type == "local" else each.managed().generated()
        if data is None:
            return
        key = self._generated_key(each)
        encoded = {name: value.encode() for name, value in data.items()}
        each.subject.put_secret(key, Contents(encoded, {}, {}))
        reference = {"name": key.name, "namespace": key.namespace}
        each.subject.write_status({"generatedSecretRef": reference})

    def _generated_key(self, each: _Run) -> Key:
        """Where it was written, else where it is to be."""
        if (there := each.bucket.status.generated_secret_ref) is not None:
            return Key(there.namespace, there.name)
        namespace = each.bucket.metadata.annotations.get(GENERATED_IN) or GARDEN
        return Key(namespace, f"generated-bucket-{each.name}")

    def _succeed(self, each: _Run) -> Outcome:
        each.subject.succeed()
        again = self.settings.again.total_seconds()
        return Requeue(again * random.uniform(0.9, 1.0))  # noqa: S311  so that not all come at once

    # what would be done

    def _plan(self, each: _Run) -> Outcome:
        try:
            each.seen = each.subject.secret()
            each.config = decode(each.bucket.spec.type, each.bucket.spec.provider_config)
            self._open(each)
            text = self._planned(each)
        except RootcellarError as error:
            finding = Finding(PLANNED, ConditionStatus.FALSE, "WouldFail", sentence(error))
        else:
            finding = Finding(PLANNED, ConditionStatus.TRUE, "DryRun", text)
        each.subject.find([finding])
        each.subject.tell(finding.reason, "DryRun", finding.message)
        return Done()

    def _planned(self, each: _Run) -> str:
        admin = each.managed()
        state = admin.look()
        if each.subject.operation == OperationType.DELETE:
            return self._planned_deletion(each, state)
        if state is None:
            return f"The bucket {each.name} would be made in {each.bucket.spec.region}."
        plan = admin.harden(self._wish(each, is_ours=False), state, dry_run=True)
        changes = [str(change) for change in plan.done] + [f"refused: {each}" for each in plan.refused]
        return f"The bucket {each.name} is there; " + ("; ".join(changes) or "nothing would be changed") + "."

    def _planned_deletion(self, each: _Run, state: BucketState | None) -> str:
        if state is None:
            return f"The bucket {each.name} is gone already."
        if names := sorted(self.entries(each.name)):
            return f"Refused: the bucket is named by the entries {', '.join(names[:5])}."
        if why := self._kept(each, each.managed()):
            return f"The bucket {each.name} would be kept: {why}."
        left = next(iter(each.managed().prefixes()), None)
        if left is not None and not _may_empty(each):
            return f"Refused: {left} and perhaps more lies in the bucket."
        return f"The bucket {each.name} would be deleted{' with all objects in it' if left else ''}."

    # delete

    def _credentials_or_none(self, each: _Run) -> None:
        each.subject.acts = True
        try:
            each.seen = each.subject.secret()
        except KubeNotFoundError:
            text = f"the secret with the credentials is gone: the bucket {each.name} is left as it is"
            each.subject.tell("BucketLeft", "Delete", text, warning=True)
            self.ground.log.warning("bucket-left", bucket=each.name)

    def _refuse_entries(self, each: _Run) -> None:
        names = sorted(self.entries(each.name))
        if names:
            raise LockedError(
                f"the bucket is named by {len(names)} BackupEntries, such as {', '.join(names[:3])}",
                hint="they have to be deleted, or moved to another bucket, first",
            )

    def _delete_bucket(self, each: _Run) -> Outcome | None:
        if each.seen is None:
            return None
        self._open(each)
        admin = each.managed()
        try:
            if why := self._kept(each, admin):
                each.subject.tell("BucketKept", "Delete", f"the bucket {each.name} is kept: {why}")
                admin.release(self._owner(each))
                return None
            if _may_empty(each):
                outcome = self.removals.go_on(each.subject, f"the bucket {each.name}", admin.empty)
                if outcome is not None:
                    return outcome
            elif (left := next(iter(admin.prefixes()), None)) is not None:
                raise NotEmptyError(
                    f"{left} lies in the bucket {each.name}, and perhaps more",
                    hint=f"the annotation {EMPTY}=true has everything in it deleted",
                )
            text = "Nobody else uses the bucket, and it was made here."
            each.subject.find([Finding(DECIDED, ConditionStatus.TRUE, "NobodyElse", text)])
            admin.delete_bucket()
        except NotFoundError:
            if admin.look() is not None:
                raise
        return None

    def _kept(self, each: _Run, admin: BucketAdmin) -> str:
        """Why the bucket is not ours to delete; empty where it is."""
        owner = self._owner(each)
        claims = {claim.owner: claim for claim in admin.claims()}
        if strangers := sorted(claims.keys() - {owner}):
            return f"it is also used by {', '.join(strangers[:3])}"
        if owner in claims:
            return "" if claims[owner].created else "it was there before"
        # Without any mark it is one that was there before, or one whose deletion was interrupted.
        decided = any(each.type == DECIDED for each in each.bucket.status.conditions)
        return "" if decided else "nothing says that it was made here"

    def _delete_generated(self, each: _Run) -> None:
        reference = each.bucket.status.generated_secret_ref
        if reference is None and each.bucket.spec.type != "local":
            return
        try:
            there = SeenSecret.read(self.ground, self._generated_key(each))
        except KubeNotFoundError:
            return
        self.ground.writer.delete(SECRETS, there.key, there.raw)

    def _let_go(self, each: _Run) -> None:
        each.subject.succeed()
        each.subject.let_secret_go(self.others)
        each.subject.let_go()

    def _owner(self, each: _Run) -> str:
        return f"{self.settings.owner}/{each.name}"


def _noun(operation: OperationType) -> str:
    """As Gardener writes it."""
    return "BackupBucket" if operation == OperationType.DELETE else "backupbucket"


def _finalized(each: _Run) -> Outcome | None:
    return None if each.subject.is_finalized else Done()


def _credentials(each: _Run) -> None:
    each.seen = each.subject.hold_secret()
    each.subject.acts = True


def _may_empty(each: _Run) -> bool:
    return each.bucket.metadata.annotations.get(EMPTY) == "true"


def _settings(hardening: Hardening) -> Finding:
    if hardening.refused:
        text = "; ".join(sentence(error) for error in hardening.refused)
        return Finding(SETTINGS, ConditionStatus.FALSE, "Refused", text)
    if hardening.unknown:
        text = f"The store does not say: {', '.join(hardening.unknown)}."
        return Finding(SETTINGS, ConditionStatus.UNKNOWN, "NotTold", text)
    return Finding(SETTINGS, ConditionStatus.TRUE, "InSync", "The bucket's settings are as asked for.")
