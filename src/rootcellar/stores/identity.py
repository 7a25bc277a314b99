"""Tokens of a cloud's identity service, which serve until shortly before they end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rootcellar.errors import DeniedError, ThrottledError, TransientError

if TYPE_CHECKING:
    from collections.abc import Collection

    from rootcellar.stores.wire import Request, Wire

_EARLY = 300.0
"""Seconds before its end that a token is replaced, as the clouds' own libraries do."""

SPARE: Final = 10.0
"""Seconds that a request with a token may take to arrive."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its end, in seconds of `time.time`."""

    text: str
    ends: float


def is_good(token: Token) -> bool:
    """Whether it need not be replaced yet."""
    return token.ends - _EARLY >= time.time()


def serves(token: Token) -> bool:
    """Whether it can still be sent, where no other is to be had."""
    return token.ends - SPARE >= time.time()


def exchanged(wire: Wire, request: Request, hint: str, *, not_yet: Collection[int] = ()) -> dict[str, Any]:
    """What an identity service answers.  Raises DeniedError with `hint` when it refuses, TransientError where
    it is away or, with a status of `not_yet`, not ready.
    """
    answer = wire.send(request)
    if answer.status in {408, 429, *not_yet} or answer.status >= 500:
        waits = answer.status == 429 or answer.status in not_yet
        raise (ThrottledError if waits else TransientError)(
            f"{request.where}: the identity service answers with status {answer.status}",
            hint=hint if answer.status in not_yet else None,
            operation=request.operation,
        )
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if answer.failed:
        raise DeniedError(
            f"{request.where}: {_said(found, answer.status)}", hint=hint, operation=request.operation
        )
    if not isinstance(found, dict):
        raise TransientError(f"{request.where}: an answer that cannot be read", operation=request.operation)
    return found


def _said(found: Any, status: int) -> str:
    """The reason in an error of OAuth 2.0 (RFC 6749, 5.2), on one line."""
    if isinstance(found, dict):
        error = found.get("error")
        detail = error.get("message") if isinstance(error, dict) else found.get("error_description") or error
        if detail:
            return "no token: " + " ".join(str(detail).split())[:300]
    return f"no token: status {status}"
