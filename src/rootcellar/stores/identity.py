"""Tokens of a cloud's identity service: had once, kept until shortly before they end, for all threads.

How one is had is the provider's (`fetch`).
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rootcellar.errors import DeniedError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.stores.wire import Request, Wire

_EARLY = 300.0
"""Seconds before its end that a token is replaced, as the clouds' own libraries do."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its end, in seconds of `time.time`."""

    text: str
    ends: float


class TokenKeeper:
    """The current token of one identity.  `stamp` tells when what it is had with has changed."""

    def __init__(self, fetch: Callable[[], Token], stamp: Callable[[], object] = lambda: None) -> None:
        self._fetch = fetch
        self._stamp_now = stamp
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._stamp: object = None

    def current(self) -> str:
        """Raises DeniedError, ConfigError or TransientError where none can be had."""
        with self._lock:
            stamp = self._stamp_now()
            token = self._token
            if token is None or stamp != self._stamp or token.ends - _EARLY < time.time():
                token = self._fetch()
                self._token, self._stamp = token, stamp
            return token.text


def exchanged(wire: Wire, request: Request, hint: str) -> dict[str, Any]:
    """What an identity service answers.  Raises DeniedError with `hint` when it refuses."""
    answer = wire.send(request)
    if answer.status == 429 or answer.status >= 500:
        raise TransientError(
            f"{request.where}: the identity service answers with status {answer.status}",
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
