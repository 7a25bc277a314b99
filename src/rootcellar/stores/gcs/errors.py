"""What Google Cloud Storage says, as our errors.  The one table of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores.meaning import SOMEBODY, Meaning, meant

if TYPE_CHECKING:
    from rootcellar.stores.wire import Answer, Request

_ROLE = "the credentials are known, but no IAM role of the bucket allows this"
_SLOW: Meaning = (ThrottledError, "the store asks to slow down", None)

_REASONS: dict[str, Meaning] = {
    "accountDisabled": (DeniedError, "the account is disabled", "ask who owns the project"),
    "authError": (DeniedError, "the store does not take the token", "look at the credentials and this clock"),
    "badRequestException": (StoreError, "the store does not take the request", None),
    "conditionNotMet": (AlreadyExistsError, "another object is there", None),
    "forbidden": (DeniedError, "access denied", _ROLE),
    "insufficientPermissions": (DeniedError, "access denied", _ROLE),
    "objectRetentionNotEnabled": (UnsupportedError, "the bucket has no object retention", None),
    "objectUnderActiveHold": (LockedError, "a hold forbids it", None),
    "quotaExceeded": (ThrottledError, "a quota of the project is used up", "raise it, or ask less often"),
    "rateLimitExceeded": _SLOW,
    "required": (DeniedError, "no credentials", "set them in the configuration or the environment"),
    "retentionPolicyNotMet": (LockedError, "retention forbids it", None),
    "uploadTooLarge": (StoreError, "too large for the store", None),
    "userProjectMissing": (DeniedError, "the bucket wants a project to pay", "use a bucket of your own"),
    "userRateLimitExceeded": _SLOW,
}

_STATUS: dict[int, Meaning] = {
    401: _REASONS["authError"],
    403: _REASONS["forbidden"],
    404: (NotFoundError, "no such object", None),
    405: (UnsupportedError, "the store cannot do that", None),
    408: (TransientError, "the store waited too long for our bytes", None),
    409: (TransientError, "another change was under way", None),
    410: (StoreError, "the upload has ended", "look for whatever cancels uploads; a week is what they last"),
    412: _REASONS["conditionNotMet"],
    429: _SLOW,
    501: (UnsupportedError, "the store cannot do that", None),
    503: (ThrottledError, "the store is overloaded", None),
}

_BUCKET: Meaning = (NotFoundError, "no such bucket", "create it, or look at its name")


class GcsError(Exception):
    """The cause of a store error: what the store said, word for word."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(f"{status} {reason}: {text}".strip(": "))
        self.status = status
        self.reason = reason


def status(error: BaseException | None) -> int:
    """The HTTP status behind one of our errors, or 0."""
    cause = error.__cause__ if error else None
    return cause.status if isinstance(cause, GcsError) else 0


def refusal(request: Request, answer: Answer) -> StoreError:
    """The error that a failed answer means, with its cause set."""
    reason, text = _said(answer.body)
    cause = GcsError(answer.status, reason, text)
    return meant(_meaning(answer, reason, text), request.where, request.operation, cause)


def _meaning(answer: Answer, reason: str, text: str) -> Meaning:
    code = answer.status
    if code in {400, 404, 409, 412} and not answer.body:
        return TransientError, f"an answer that is not the store's (status {code})", SOMEBODY
    if "retention" in text.lower() and code in {403, 412} and reason not in {"forbidden", "conditionNotMet"}:
        return _REASONS["retentionPolicyNotMet"]
    if code == 404 and "bucket" in text.lower() and "object" not in text.lower():
        return _BUCKET
    if reason in _REASONS or code in _STATUS:
        return _REASONS.get(reason) or _STATUS[code]
    if code >= 500:
        return TransientError, f"an error inside the store (status {code})", None
    said = text or reason
    return StoreError, said[:1].lower() + said[1:] if said else f"the store answers with status {code}", None


def _said(body: bytes) -> tuple[str, str]:
    """Reason and message; ("", the text) for what is no JSON, as the answers to downloads."""
    plain = " ".join(body[:300].decode("utf-8", "replace").split()).rstrip(".")
    try:
        error: Any = json.loads(body)["error"]
        reasons = [str(each["reason"]) for each in error.get("errors") or () if each.get("reason")]
        return (reasons[0] if reasons else ""), " ".join(str(error.get("message") or "").split()).rstrip(".")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", plain
