"""Gardener's error codes for what went wrong with a store.  Pure.

What a store said in so many words (a code of S3, Azure or Google, an HTTP status, the class of our own error)
decides; text is read only where there is nothing else.  Source of the codes: Gardener's
`core.gardener.cloud/v1beta1` ErrorCode.  A bucket that is missing gets none: to call it a configuration
problem, as matching text for "not found" does, makes Gardener stop trying.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    RootcellarError,
    ThrottledError,
    TransientError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

UNAUTHENTICATED: Final = "ERR_INFRA_UNAUTHENTICATED"
UNAUTHORIZED: Final = "ERR_INFRA_UNAUTHORIZED"
QUOTA: Final = "ERR_INFRA_QUOTA_EXCEEDED"
RATE: Final = "ERR_INFRA_RATE_LIMITS_EXCEEDED"
DEPENDENCIES: Final = "ERR_INFRA_DEPENDENCIES"
RETRYABLE_DEPENDENCIES: Final = "ERR_RETRYABLE_INFRA_DEPENDENCIES"
DEPLETED: Final = "ERR_INFRA_RESOURCES_DEPLETED"
CONFIGURATION: Final = "ERR_CONFIGURATION_PROBLEM"

_SAID: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "AuthFailure",
            "AuthenticationFailed",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidAuthenticationInfo",
            "InvalidAuthenticationToken",
            "InvalidAuthenticationTokenTenant",
            "ExpiredAuthenticationToken",
            "InvalidSecretAccessKey",
            "InvalidSubscriptionId",
            "InvalidToken",
            "NoAuthenticationInformation",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "SubscriptionNotFound",
            "TokenRefreshRequired",
            "authError",
            "required",
        ),
        UNAUTHENTICATED,
    ),
    **dict.fromkeys(
        (
            "AccessDenied",
            "AccountIsDisabled",
            "AccountProblem",
            "AllAccessDisabled",
            "AuthorizationFailed",
            "AuthorizationFailure",
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
            "UnauthorizedOperation",
            "accountDisabled",
            "forbidden",
            "insufficientPermissions",
        ),
        UNAUTHORIZED,
    ),
    **dict.fromkeys(
        ("LimitExceeded", "QuotaExceeded", "TooManyBuckets", "quotaExceeded", "StorageAccountCountExceeded"),
        QUOTA,
    ),
    **dict.fromkeys(
        (
            "BandwidthLimitExceeded",
            "RequestLimitExceeded",
            "SlowDown",
            "Throttling",
            "ThrottlingException",
            "TooManyRequests",
            "rateLimitExceeded",
            "userRateLimitExceeded",
        ),
        RATE,
    ),
    "XMinioStorageFull": DEPLETED,
}

_STATUS: Final[Mapping[int, str]] = {
    401: UNAUTHENTICATED,
    403: UNAUTHORIZED,
    429: RATE,
    503: RETRYABLE_DEPENDENCIES,  # overloaded or starting, and not our doing
    498: RATE,
    507: DEPLETED,
}

_KINDS: Final[tuple[tuple[type[RootcellarError], str | None], ...]] = (
    (NotFoundError, None),
    (DeniedError, UNAUTHORIZED),
    (ThrottledError, RATE),
    (TransientError, RETRYABLE_DEPENDENCIES),
    (LockedError, DEPENDENCIES),
    (NotEmptyError, DEPENDENCIES),
    (AlreadyExistsError, CONFIGURATION),
    (UnsupportedError, CONFIGURATION),
    (ConfigError, CONFIGURATION),
    (UsageError, CONFIGURATION),
)

_TEXT: Final = (
    (re.compile("invalid_client|cannot fetch token|no (credentials|token)", re.IGNORECASE), UNAUTHENTICATED),
    (re.compile("no active subscriptions|access denied|unauthorized", re.IGNORECASE), UNAUTHORIZED),
    (re.compile("(?<!request)limit ?exceeded|quota", re.IGNORECASE), QUOTA),
    (re.compile("too many requests|throttl", re.IGNORECASE), RATE),
    (re.compile("billing|dependency violation", re.IGNORECASE), DEPENDENCIES),
)
"""What is looked for where an error has neither a code nor a kind of its own."""

_SIGNING_IN = {"sign in", "log in"}


def codes(error: BaseException) -> tuple[str, ...]:
    """The codes for `lastError.codes`: none for what is no error of ours, or has no better word."""
    if not isinstance(error, RootcellarError):
        return ()
    found = _code(error)
    return () if found is None else (found,)


def _code(error: RootcellarError) -> str | None:
    word, status = _said(error)
    if word in _SAID:
        return _SAID[word]
    if isinstance(error, DeniedError) and error.operation in _SIGNING_IN:
        return UNAUTHENTICATED
    if isinstance(error, TransientError | DeniedError) and status in _STATUS:
        return _STATUS[status]
    kinds = [code for kind, code in _KINDS if isinstance(error, kind)]
    if kinds:
        return kinds[0]
    words = (code for pattern, code in _TEXT if pattern.search(error.message))
    return _STATUS.get(status) or next(words, None)


def _said(error: RootcellarError) -> tuple[str, int]:
    """The store's own code and HTTP status behind an error, "" and 0 where there is none.  The causes are
    botocore's ClientError, and ours of Azure, Google and Swift; none is imported, for each comes with its
    library.
    """
    cause: Any = error.__cause__
    response = getattr(cause, "response", None)
    if isinstance(response, dict):
        word = str(response.get("Error", {}).get("Code") or "")
        return word, int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    word = getattr(cause, "code", None) or getattr(cause, "reason", None) or ""
    status = getattr(cause, "status", 0)
    return str(word), status if isinstance(status, int) else 0
