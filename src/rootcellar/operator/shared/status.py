"""The status of an extension object: merge patches that say what is being done and what came of it.

Gardener waits for these exact states, and operators search for these exact words (reference: its
extensions/pkg/controller/status.go).  Only fields of the patch are written; what others keep beside stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rootcellar.operator.shared.extension import Condition, LastOperation
from rootcellar.operator.shared.gardener import TIMESTAMP, OperationType, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rootcellar.kube.kinds import Meta

_SKEW = timedelta(minutes=5)

_VERBS = {
    OperationType.CREATE: ("Reconciling", "reconciled", "reconciling"),
    OperationType.RECONCILE: ("Reconciling", "reconciled", "reconciling"),
    OperationType.RESTORE: ("Restoring", "restored", "restoring"),
    OperationType.MIGRATE: ("Migrating", "migrated", "migrating"),
    OperationType.DELETE: ("Deleting", "deleted", "deleting"),
}


def moment(meta: Meta, now: datetime) -> datetime:
    """Now to the second, for `lastUpdateTime`; not before the moment of the order, or whoever gave it would
    wait forever for an answer to it.  Clocks that are further apart than minutes are not believed.
    """
    now = now.astimezone(UTC).replace(microsecond=0)
    try:
        asked = datetime.fromisoformat(meta.annotations.get(TIMESTAMP, ""))
        ahead = asked.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        return now
    return ahead if now < ahead <= now + _SKEW else now


def processing(
    operation: OperationType, noun: str, at: datetime, *, progress: int = 1, doing: str = ""
) -> dict[str, Any]:
    """An operation has begun, or is `progress` percent on its way; `doing` says more than its name."""
    text = doing or f"{_VERBS[operation][0]} the {noun}"
    return {"lastOperation": _operation(operation, State.PROCESSING, progress, text, at)}


def pending(operation: OperationType, until: str, at: datetime) -> dict[str, Any]:
    """An operation waits; `until` says for what."""
    return {"lastOperation": _operation(operation, State.PENDING, 0, until, at)}


def succeeded(operation: OperationType, noun: str, generation: int, at: datetime) -> dict[str, Any]:
    """It is done, for this generation."""
    text = f"Successfully {_VERBS[operation][1]} {noun}"
    return {
        "lastOperation": _operation(operation, State.SUCCEEDED, 100, text, at),
        "lastError": None,
        "observedGeneration": generation,
    }


def failed(
    operation: OperationType,
    noun: str,
    generation: int,
    at: datetime,
    *,
    error: Exception,
    codes: Sequence[str] = (),
    step: str = "",
) -> dict[str, Any]:
    """It was tried and failed at `step`; it is tried again.  The hint of an error is part of its text."""
    text = f"Error {_VERBS[operation][2]} {noun}: {sentence(error)}"
    return {
        "lastOperation": _operation(operation, State.ERROR, 50, text, at),
        "lastError": {
            "description": text,
            "taskID": step or None,
            "codes": list(codes) or None,
            "lastUpdateTime": _text(at),
        },
        "observedGeneration": generation,
    }


def sentence(error: Exception) -> str:
    """An error with its hint."""
    hint = getattr(error, "hint", None)
    return f"{error}{f' ({hint})' if hint else ''}"


def _operation(
    operation: OperationType, state: State, progress: int, text: str, at: datetime
) -> dict[str, Any]:
    found = LastOperation(
        description=text, last_update_time=at, progress=progress, state=state, type=operation
    )
    return dict(msgspec.to_builtins(found))


class Finding(NamedTuple):
    """What a condition says now, without its times."""

    type: str
    status: str
    reason: str
    message: str
    codes: tuple[str, ...] = ()


def conditions(
    seen: Sequence[Condition], findings: Iterable[Finding], at: datetime, *, gone: Iterable[str] = ()
) -> dict[str, Any]:
    """The patch of `conditions`; empty where nothing flipped.

    A condition is written when its status, reason or codes change.  A message alone, which may have a time or
    a figure in it, is not worth a write, as every write wakes whoever watches.  Conditions of others stay;
    `gone` names those of ours that say nothing any more.
    """
    found = {each.type: each for each in findings}
    left = set(gone) - found.keys()
    after = [
        _after(each, found.pop(each.type), at) if each.type in found else each
        for each in seen
        if each.type not in left
    ]
    after += [_after(None, finding, at) for finding in found.values()]
    if after == list(seen):
        return {}
    return {"conditions": msgspec.to_builtins(after)}


def _after(seen: Condition | None, finding: Finding, at: datetime) -> Condition:
    same_status = seen is not None and seen.status == finding.status
    if seen is not None and same_status and (seen.reason, seen.codes) == (finding.reason, finding.codes):
        return seen
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=finding.message,
        last_transition_time=seen.last_transition_time if seen is not None and same_status else at,
        last_update_time=at,
        codes=finding.codes,
    )


def _text(at: datetime) -> str:
    return str(msgspec.to_builtins(at))
