"""What Swift and keystone say, as our errors.  The one table of it.

Swift has no error codes: the status is all, and what it means depends on what was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores.meaning import Meaning, meant

if TYPE_CHECKING:
    from rootcellar.stores.wire import Answer, Request

_SLOW: Meaning = (ThrottledError, "the store asks to slow down", None)
_CONTAINER = "where this is about writing, the container is missing: create it, or look at its name"

_STATUS: dict[int, Meaning] = {
    401: (DeniedError, "access denied", "look at the user, the password and the project"),
    403: (DeniedError, "access denied", "the credentials are known, but have no role that allows this"),
    404: (NotFoundError, "no such object", _CONTAINER),
    405: (UnsupportedError, "the store cannot do that", None),
    408: (TransientError, "the store waited too long for our bytes", None),
    409: (TransientError, "another write to the key was under way", None),
    412: (AlreadyExistsError, "another object is there", None),
    413: (StoreError, "too large for the store, or its quota is used up", "raise it, or prune old backups"),
    422: (TransientError, "the bytes were damaged on the way", None),
    429: _SLOW,
    498: _SLOW,  # what its rate limit says
    499: (TransientError, "the request was cut short on the way", None),
    501: (UnsupportedError, "the store cannot do that", None),
    503: (ThrottledError, "the store is overloaded or starting", None),
    507: (StoreError, "the store is full", "free some, or prune old backups"),
}

LOST_SEGMENT = "a segment of it is missing"


class SwiftError(Exception):
    """The cause of a store error: what the store answered with."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def refusal(request: Request, answer: Answer) -> StoreError:
    """The error that a failed answer means, with its cause set."""
    return meant(_meaning(request, answer), request.where, request.operation, SwiftError(answer.status))


def _meaning(request: Request, answer: Answer) -> Meaning:
    if answer.status == 409 and request.method in {"GET", "HEAD"}:
        return StoreError, LOST_SEGMENT, "the object cannot be read any more: take another chain"
    if answer.status == 400 and b"404 Not Found" in answer.body:
        return TransientError, "the store does not see all segments yet", None
    if answer.status in _STATUS:
        return _STATUS[answer.status]
    if answer.status >= 500:
        return TransientError, f"an error inside the store ({answer.status})", None
    said = " ".join(answer.body[:200].decode("utf-8", "replace").split())
    return StoreError, f"the store answers with status {answer.status}{': ' if said else ''}{said}", None
