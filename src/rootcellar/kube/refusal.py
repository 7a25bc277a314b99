"""What an API server says no with, as our errors.

It is a `Status` of `meta/v1`: a sentence, and a `reason` that tells apart what shares an HTTP status.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rootcellar.errors import (
    KubeConflictError,
    KubeDeniedError,
    KubeError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    KubeUnavailableError,
)

_KINDS: dict[int, tuple[type[KubeError], str | None]] = {
    401: (KubeDeniedError, "the token is refused: has it ended, or is it of another cluster?"),
    403: (KubeDeniedError, "grant it by a Role and a RoleBinding; docs/privileges.md has what is needed"),
    404: (KubeNotFoundError, None),
    409: (KubeConflictError, None),
    410: (KubeGoneError, None),
}


class _Status(Struct, frozen=True):
    message: str = ""
    reason: str = ""


def refusal(verb: str, path: str, status: int, body: bytes) -> KubeError:
    """The error for an answer that is no success."""
    try:
        said = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:  # a load balancer's page, say
        said = _Status(body[:200].decode("utf-8", "replace"))
    text = " ".join(said.message.split()).rstrip(".") or said.reason or "no reason given"
    kind, hint = _kind(status, said)
    return kind(f"{verb} {path}: {text} ({status})", hint=hint, operation=verb)


def _kind(status: int, said: _Status) -> tuple[type[KubeError], str | None]:
    if status == 409 and said.reason == "AlreadyExists":
        return KubeExistsError, None
    if status < 500 and said.message.startswith("admission webhook "):  # with any status: its own choice
        return KubeError, "whoever runs that webhook knows why; `kubectl get validatingwebhookconfigurations`"
    if status == 429 or status >= 500:
        return KubeUnavailableError, None
    return _KINDS.get(status, (KubeError, None))
