"""What conditions say of a bucket.  Pure.

Gardener compares no conditions of these objects, so that all that is known and would not be an error goes
there.  Each is written when it flips, and a reason has the figures that matter, so that they are written too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotFoundError,
    TransientError,
)
from rootcellar.operator.shared.gardener import ConditionStatus
from rootcellar.operator.shared.status import Finding, sentence
from rootcellar.stores.admin.codes import codes
from rootcellar.stores.admin.values import UNKNOWN, Aspect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rootcellar.errors import RootcellarError
    from rootcellar.operator.shared.ledger import Left
    from rootcellar.stores.admin.values import BucketState, BucketWish, Hardening

REACHABLE: Final = "BucketReachable"
SETTINGS: Final = "SettingsInSync"
RETENTION: Final = "RetentionLocked"
CREDENTIALS: Final = "CredentialsFound"
CONFIG: Final = "ConfigRead"
PLANNED: Final = "Planned"
LEFT: Final = "ObjectsLeft"
UNNAMED: Final = "PrefixesUnnamed"
DECIDED: Final = "DeletionDecided"
"""The condition of a bucket that was found to be ours to delete: its marks go before itself."""

_TOLD: Final = 5
"""Names in a message."""

_UNREACHED: Final = (
    (DeniedError, "Denied"),
    (AlreadyExistsError, "SomebodyElses"),
    (NotFoundError, "Missing"),
    (TransientError, "Away"),
)

REACHED: Final = Finding(
    REACHABLE, ConditionStatus.TRUE, "Marked", "The bucket can be read, and has this cluster's mark."
)
SECRET_MISSING: Final = Finding(
    CREDENTIALS, ConditionStatus.FALSE, "SecretMissing", "There is no secret as spec.secretRef says."
)
CONFIG_UNREAD: Final = Finding(
    CONFIG, ConditionStatus.FALSE, "NotRead", "This type has no such providerConfig: nothing of it is done."
)
NOBODY_ELSE: Final = Finding(
    DECIDED, ConditionStatus.TRUE, "NobodyElse", "Nobody else uses the bucket, and it was made here."
)


def unreached(error: Exception) -> list[Finding]:
    """What an error says of whether the bucket can be reached; nothing where it is about something else."""
    for kind, reason in _UNREACHED:
        if isinstance(error, kind):
            return [Finding(REACHABLE, ConditionStatus.FALSE, reason, sentence(error), codes(error))]
    return []


def settings(hardening: Hardening) -> Finding:
    """Whether the bucket is set as it is asked for."""
    if hardening.refused:
        text = "; ".join(sentence(error) for error in hardening.refused)
        return Finding(SETTINGS, ConditionStatus.FALSE, "Refused", text, codes(hardening.refused[0]))
    if hardening.unknown:
        text = f"The store does not say: {', '.join(hardening.unknown)}."
        return Finding(SETTINGS, ConditionStatus.UNKNOWN, "NotTold", text)
    return Finding(SETTINGS, ConditionStatus.TRUE, "InSync", "The bucket's settings are as asked for.")


def retention(state: BucketState, wish: BucketWish, hardening: Hardening) -> Finding:
    """How long the bucket keeps what is put into it, as it is now: not what was asked for."""
    changed = any(change.aspect is Aspect.IMMUTABILITY for change in hardening.done)
    kept = wish.immutability if changed else state.immutability
    if kept is UNKNOWN:
        return Finding(RETENTION, ConditionStatus.UNKNOWN, "NotTold", "The store does not say.")
    if kept is None:
        return Finding(RETENTION, ConditionStatus.FALSE, "NoRetention", "What lies there can be deleted.")
    status = ConditionStatus.TRUE if kept.locked else ConditionStatus.FALSE
    reason = f"{'Locked' if kept.locked else 'Unlocked'}For{kept.days}Days"
    return Finding(RETENTION, status, reason, f"What lies there is kept: {kept}.")


def left(records: Sequence[Left], now: datetime, *, way_out: str) -> Finding:
    """What forced deletions have left.  The reason changes when some of it may go, by `way_out`."""
    ready = [record for record in records if record.may_go(now)]
    reason = f"MayGo{len(ready)}Of{len(records)}" if ready else f"Locked{len(records)}"
    listed = "; ".join(
        f"{record}{', which has passed' if record.may_go(now) else ''}" for record in records[:_TOLD]
    )
    text = f"Left by forced deletions: {listed}{_more(records)}."
    if ready:
        text = f"{text} The annotation {way_out} has deleted what may go."
    return Finding(LEFT, ConditionStatus.TRUE, reason, text)


def unnamed(parts: Sequence[str]) -> Finding:
    """Prefixes that are no entry's."""
    text = f"No BackupEntry of this cluster names {', '.join(parts[:_TOLD])}{_more(parts)}."
    return Finding(UNNAMED, ConditionStatus.TRUE, f"Unnamed{len(parts)}", text)


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""


def stopping(hardening: Hardening, state: BucketState) -> RootcellarError | None:
    """The refusal that makes the reconcile fail.  A bucket that keeps longer than it is asked to, where that
    could be changed but not by us, serves all the same.
    """
    kept = state.immutability
    harmless = kept is not None and kept is not UNKNOWN and not kept.locked
    refused = (each for each in hardening.refused if not (harmless and isinstance(each, LockedError)))
    return next(refused, None)
