"""One place where gRPC's errors become ours, with a hint that says what to do.

etcd's own errors are told apart by their text, as its own client does: one gRPC code covers many of them.
What went wrong in TLS is visible only in the text of the connection error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grpc

from rootcellar.errors import CompactedError, EtcdDeniedError, EtcdError, EtcdUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.etcd.calls import Call

_UNAVAILABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
_LEARNER = "not supported for learner"
# A server that is being killed resets its streams, and gRPC tells that as a call that was cancelled.
_NOT_NOW = ("no leader", "raft proposal dropped", "context deadline exceeded", "RST_STREAM", _LEARNER)
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
# What gRPC says before anything of a call has left this machine.
_NEVER_SENT = ("failed to connect to all addresses", "errors resolving")

_LATE = "etcd did not answer in time: it may be overloaded, stopped, cut off or without a leader"
_CONNECTION_HINTS = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate is not signed by the given CA: check the CA file",
    ),
    (
        "Hostname Verification Check",
        "the server's certificate does not name this host: use a name that it has",
    ),
    ("BAD_CERTIFICATE", "the server wants a client certificate of its own CA: give cert and key"),
    ("CERTIFICATE_REQUIRED", "the server wants a client certificate of its own CA: give cert and key"),
    ("TSI_DATA_CORRUPTED", "the server wants a client certificate of its own CA: give cert and key"),
    ("Handshake read failed", "the endpoint does not seem to speak TLS: try http://"),
    ("Connection refused", "is etcd running there, and is this its client port?"),
    ("errors resolving", "the host name cannot be resolved"),
    ("SETTINGS frame", "something accepts connections there but does not answer as etcd does"),
    ("no leader", "the cluster has no leader: see which of its members are up"),
    (_LEARNER, "ask a voting member"),
    ("unhealthy cluster", "etcd changes its members only after all have been connected for 5 s: try again"),
    ("Deadline Exceeded", _LATE),
    ("context deadline exceeded", _LATE),
    ("RST_STREAM", _LATE),
)
_ETCD_HINTS = (
    ("database space exceeded", "compact, defragment, then disarm the NOSPACE alarm"),
    ("request is too large", "etcd's --max-request-bytes is lower than what this write needs"),
    ("too many operations", "etcd's --max-txn-ops is lower than what this write needs"),
)


def details(error: grpc.RpcError) -> str:
    """What the server, or gRPC itself, says went wrong."""
    return error.details() or ""


def is_stale_token(text: str, *, had_none: bool = False) -> bool:
    """Whether a new token mends it: tokens expire, and every change of users or roles outdates them.

    `had_none`: authentication was off when we asked, and may have been switched on since.
    """
    return any(part in text for part in _STALE_TOKEN) or (had_none and "user name is empty" in text)


def was_never_sent(error: EtcdUnavailableError) -> bool:
    """Whether the call surely did not reach a server, so that even a write may go to another."""
    return any(part in error.message for part in _NEVER_SENT)


def is_electing(error: EtcdUnavailableError) -> bool:
    """Whether a living server said it, so that waiting for an election may help."""
    return "etcdserver:" in error.message and _LEARNER not in error.message


def translate(call: Call[Any, Any], endpoint: str, error: grpc.RpcError) -> EtcdError:
    """Our error for a failed call."""
    return describe(call, endpoint, error.code(), details(error))


def describe(call: Call[Any, Any], endpoint: str, status: grpc.StatusCode, text: str) -> EtcdError:
    """Our error for a status and its text, of a failed call or of a cancelled watch."""
    method = call.name.partition("/")[2]
    message = f"{endpoint}: {_plain(text) or status.name.lower().replace('_', ' ')}"
    if "has been compacted" in text:
        return CompactedError(message, hint="take a new full", operation=method)
    if denied := _denied(call, status, text):
        return EtcdDeniedError(message, hint=denied, operation=method)
    # A learner answers little, and another endpoint will answer the rest.
    # "context deadline exceeded" is what a server without a leader says, in 3.4 with an unknown status.
    if status in _UNAVAILABLE or any(part in text for part in _NOT_NOW):
        return EtcdUnavailableError(message, hint=_connection_hint(endpoint, text), operation=method)
    return EtcdError(message, hint=_first(_ETCD_HINTS, text), operation=method)


def unavailable(failures: Sequence[EtcdUnavailableError]) -> EtcdUnavailableError:
    """One error for the failures at several endpoints."""
    if len(failures) == 1:
        return failures[0]
    hints = list(dict.fromkeys(failure.hint for failure in failures if failure.hint))
    return EtcdUnavailableError(
        "; ".join(dict.fromkeys(failure.message for failure in failures)),
        hint="; ".join(hints) or None,
        operation=failures[-1].operation,
    )


def _denied(call: Call[Any, Any], status: grpc.StatusCode, text: str) -> str | None:
    """The hint, when privilege or identity is the matter."""
    if "user name is empty" in text:
        return (
            f"authentication is on: give a user and password, or a client certificate; it needs {call.needs}"
        )
    if "invalid user ID or password" in text:
        return "check the user and password"
    if is_stale_token(text) or status is grpc.StatusCode.UNAUTHENTICATED:
        return "etcd keeps refusing its own fresh tokens: look at its --auth-token and its clocks"
    if status is grpc.StatusCode.PERMISSION_DENIED or "permission denied" in text:
        return f"the user needs {call.needs}"
    return None


def _connection_hint(endpoint: str, text: str) -> str | None:
    if "failed to connect" in text and "Socket closed" in text and endpoint.startswith("http://"):
        return "the endpoint may want TLS: try https:// with a CA file"
    return _first(_CONNECTION_HINTS, text)


def _first(hints: Sequence[tuple[str, str]], text: str) -> str | None:
    return next((hint for part, hint in hints if part in text), None)


def _plain(text: str) -> str:
    """The telling part of gRPC's nested prose."""
    text = re.sub(r"; last error: \w+: (?:ipv[46]:\S+: )?", ": ", text)
    return re.sub(r" \(TSI_PROTOCOL_FAILURE\): SSL_ERROR_SSL: error:\S+ routines:OPENSSL_internal", "", text)
