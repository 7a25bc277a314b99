"""The end of a bucket: whether it may go, and how.

It goes where this cluster made it, nobody else has marked it, no BackupEntry names it, and nothing lies in
it, or somebody asked to have that deleted too.  In every other case it stays, and the status says why, or
it is left behind with an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from rootcellar.errors import (
    ConfigError,
    KubeNotFoundError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    RecordError,
    RootcellarError,
)
from rootcellar.kube.election import fenced
from rootcellar.kube.steps import Done, Outcome, Step
from rootcellar.operator.backupbucket.findings import DECIDED, NOBODY_ELSE
from rootcellar.operator.backupbucket.run import EMPTY, KEEP
from rootcellar.operator.shared import ledger
from rootcellar.operator.shared.secrets import SECRETS
from rootcellar.operator.shared.status import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rootcellar.kube.kinds import Key
    from rootcellar.operator.backupbucket.run import Run
    from rootcellar.operator.shared.ledger import Left
    from rootcellar.operator.shared.removal import Removals
    from rootcellar.stores.admin.values import BucketState, Claim


_WAYS_OUT: Final = f"when that ends they are deleted by themselves; the annotation {KEEP}=true keeps it all"


@dataclass(frozen=True, slots=True)
class Deletion:
    """`entries` are the names of this cluster's BackupEntries that name a bucket, `others` the keys of
    BackupBuckets that refer to a secret.
    """

    entries: Callable[[str], Iterable[str]]
    others: Callable[[Key], Iterable[Key]]
    removals: Removals
    _leaving: Lock = field(default_factory=Lock)
    """See `Subject.let_secret_go`."""

    def steps(self) -> list[Step[Run]]:
        """Killed after any: the next reconcile begins anew and finds what is gone.  Finalizers go last, so
        that nothing is forgotten.
        """
        return [
            Step("finalizer", _finalized),
            Step("begin", lambda each: each.subject.begin_deletion()),
            Step("credentials", _credentials_or_none),
            Step("entries", self._refuse_entries),
            Step("bucket", self._delete_bucket),
            Step("generated secret", _delete_generated),
            Step("let go", self._let_go),
        ]

    def planned(self, each: Run, state: BucketState | None) -> str:
        """What a deletion would do now.  Raises as it would."""
        if state is None:
            return f"The bucket {each.name} is gone already."
        if names := sorted(self.entries(each.name)):
            return f"Refused: the bucket is named by the entries {', '.join(names[:5])}."
        if each.says(KEEP):
            return f"The bucket {each.name} would be kept: the annotation {KEEP} says so."
        if why := stranger(each):
            return f"The bucket {each.name} would be kept: {why}."
        left = next(iter(each.admin.prefixes()), None)
        if left is not None and not each.says(EMPTY):
            return f"Refused: {left} and perhaps more lies in the bucket."
        return f"The bucket {each.name} would be deleted{' with all objects in it' if left else ''}."

    def _refuse_entries(self, each: Run) -> None:
        names = sorted(self.entries(each.name))
        if names:
            raise LockedError(
                f"the bucket is named by {len(names)} BackupEntries, such as {', '.join(names[:3])}",
                hint="they have to be deleted, or moved to another bucket, first",
            )

    def _delete_bucket(self, each: Run) -> Outcome | None:
        if each.says(KEEP):
            _leave(each)
            return None
        if each.seen is None:
            return None
        each.open()
        try:
            return self._end(each)
        except NotFoundError:
            if each.admin.look() is not None:
                raise
            if each.account is not None:  # what was made around the bucket, perhaps before there was one
                each.account.delete_bucket()
        return None

    def _end(self, each: Run) -> Outcome | None:
        claims = _claims(each)
        if why := _kept(each, claims):
            _keep(each, why)
            return None
        # Our mark goes only when nothing else is left.  So what lies in a bucket without one came after we
        # had decided, from somebody who made it anew, and is not ours to delete.
        if each.says(EMPTY) and each.owner in claims:
            outcome = self.removals.go_on(
                each.subject, f"the bucket {each.name}", each.admin.empty, ways_out=_WAYS_OUT
            )
            if outcome is not None:
                return outcome
            self._refuse_entries(each)  # that may have taken a while
            if why := stranger(each):
                _keep(each, why)
                return None
        elif (left := next(iter(each.admin.prefixes()), None)) is not None:
            known = "".join(f" ({record})" for record in _records(each) if f"{record.prefix}/" == left)
            raise NotEmptyError(
                f"{left} lies in the bucket {each.name}{known}, and perhaps more",
                hint=f"the annotation {EMPTY}=true has everything in it deleted, {KEEP}=true keeps it",
            )
        # Killed behind the marks, the next process finds an empty bucket and this condition.
        each.subject.find([NOBODY_ELSE])
        if not self.removals.may_write():
            raise fenced(each.name)
        each.admin.delete_bucket()
        return None

    def _let_go(self, each: Run) -> None:
        self.removals.forget(each.bucket.metadata.uid)
        each.subject.succeed()
        with self._leaving:
            each.subject.let_secret_go(self.others)
            each.subject.let_go()


def _records(each: Run) -> list[Left]:
    try:
        return list(ledger.records(each.admin.ours()))
    except RecordError:
        return []  # it only tells more of what lies there


def _finalized(each: Run) -> Outcome | None:
    return None if each.subject.is_finalized else Done()


def _credentials_or_none(each: Run) -> None:
    each.subject.acts = True
    try:
        each.seen = each.subject.secret()
    except KubeNotFoundError:
        text = f"the secret with the credentials is gone: the bucket {each.name} is left as it is"
        each.subject.tell("BucketLeft", "Delete", text, warning=True)
        each.subject.ground.log.warning("bucket-left", bucket=each.name)
        return
    try:
        each.configure(is_strict=False)
    except ConfigError:
        if each.was_there:
            raise
        each.seen = None  # nothing was ever asked of an endpoint that is not allowed


def _leave(each: Run) -> None:
    """Give the bucket up, with our mark if it can be reached.  This is the way out where it never can be: the
    provider is no more, or the bucket is somebody else's.
    """
    note = f"the bucket {each.name} is kept: the annotation {KEEP} says so"
    if each.seen is not None:
        try:
            each.open()
            each.admin.release(each.owner)
        except RootcellarError as error:
            note = f"{note}; our mark is left in it: {sentence(error)}"
    each.subject.tell("BucketKept", "Delete", note)


def _keep(each: Run, why: str) -> None:
    each.subject.tell("BucketKept", "Delete", f"the bucket {each.name} is kept: {why}")
    each.admin.release(each.owner)


def _claims(each: Run) -> dict[str, Claim]:
    return {claim.owner: claim for claim in each.admin.claims()}


def stranger(each: Run) -> str:
    """Why the bucket, and what lies in it, is not ours to delete; empty where it is."""
    return _kept(each, _claims(each))


def _kept(each: Run, claims: dict[str, Claim]) -> str:
    """Why the bucket is not ours to delete; empty where it is."""
    if strangers := sorted(claims.keys() - {each.owner}):
        return f"it is also used by {', '.join(strangers[:3])}"
    if each.owner in claims:
        return "" if claims[each.owner].created else "it was there before"
    # Without any mark it is one that was there before, or one whose deletion was interrupted.
    decided = any(found.type == DECIDED for found in each.bucket.status.conditions)
    return "" if decided else "nothing says that it was made here"


def _delete_generated(each: Run) -> None:
    """Also where the status does not say that there is one: it may have been written just before a kill."""
    if not each.generates and each.bucket.status.generated_secret_ref is None:
        return
    there = each.read_generated()
    if there is not None:
        each.subject.ground.writer.delete(SECRETS, there.key, there.raw)
