"""What S3 and botocore say, as our errors.  The one table of it.

S3-compatible servers agree on few codes, so the HTTP status decides where the code is unknown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from rootcellar.errors import (
    AlreadyExistsError,
    DeniedError,
    LockedError,
    NotEmptyError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores.meaning import SOMEBODY, UNTRUSTED, Meaning, Translation, flat, meant

T = TypeVar("T")

_CLOCK = "set this machine's clock: S3 allows 15 minutes between it and its own"
_EXPIRED = "get a fresh token; where a file holds the credentials, look at what renews it"
_REGION = "give the bucket's own region (region=...)"
_WHO = "look at the access key: it may be deleted, of another account, or meant for another endpoint"

_CODES: dict[str, Meaning] = {
    "AccessDenied": (DeniedError, "access denied", "the credentials are known, but a policy forbids this"),
    "AllAccessDisabled": (DeniedError, "all access to the bucket is disabled", None),
    "AccountProblem": (DeniedError, "there is a problem with the account", "ask who owns the account"),
    "InvalidAccessKeyId": (DeniedError, "the store does not know the access key", _WHO),
    "SignatureDoesNotMatch": (
        DeniedError,
        "the signature does not match",
        "look at the secret key (a line end in its file?), and for a proxy that rewrites requests",
    ),
    "ExpiredToken": (DeniedError, "the session token has expired", _EXPIRED),
    "TokenRefreshRequired": (DeniedError, "the session token has expired", _EXPIRED),
    "InvalidToken": (DeniedError, "the session token is not valid", _EXPIRED),
    "RequestTimeTooSkewed": (DeniedError, "this machine's clock is too far off", _CLOCK),
    "RequestExpired": (DeniedError, "this machine's clock is too far off", _CLOCK),
    "AuthorizationHeaderMalformed": (DeniedError, "the request was signed for another region", _REGION),
    "PermanentRedirect": (StoreError, "the bucket lives in another region", _REGION),
    "IllegalLocationConstraintException": (StoreError, "the bucket lives in another region", _REGION),
    "NoSuchBucket": (
        NotFoundError,
        "no such bucket",
        "create it, or look at its name, the endpoint and the region",
    ),
    "NoSuchKey": (NotFoundError, "no such object", None),
    "NoSuchVersion": (NotFoundError, "no such version", None),
    "InvalidVersionId": (NotFoundError, "no such version", None),
    "NoSuchUpload": (
        StoreError,
        "the upload was aborted by someone else",
        "look at lifecycle rules that abort uploads, and at other writers cleaning up",
    ),
    "InvalidBucketName": (StoreError, "this can be no bucket's name", None),
    "BucketAlreadyExists": (
        AlreadyExistsError,
        "somebody else has a bucket of this name",
        "names of buckets are shared by all accounts: look whose it is, or take another",
    ),
    "BucketAlreadyOwnedByYou": (AlreadyExistsError, "the account has this bucket already", None),
    "BucketNotEmpty": (NotEmptyError, "the bucket is not empty", "delete what lies in it first"),
    "InvalidBucketState": (StoreError, "another setting of the bucket forbids it", None),
    "TooManyBuckets": (StoreError, "the account may have no more buckets", "have the limit raised"),
    "PreconditionFailed": (AlreadyExistsError, "another object is there", None),
    "FileAlreadyExists": (AlreadyExistsError, "another object is there", None),  # Alibaba's OSS
    "FileImmutable": (LockedError, "the bucket's retention forbids it", None),  # the same
    "ConditionalRequestConflict": (TransientError, "another write to the key was under way", None),
    "OperationAborted": (TransientError, "another change was under way", None),
    "ObjectLocked": (LockedError, "retention or a legal hold forbids it", None),
    "InvalidRetentionPeriod": (LockedError, "retention can only be extended", None),
    "NotImplemented": (UnsupportedError, "the store cannot do that", None),
    "MethodNotAllowed": (UnsupportedError, "the store cannot do that", None),
    "ObjectLockConfigurationNotFoundError": (UnsupportedError, "the bucket has no object lock", None),
    "InvalidObjectState": (
        StoreError,
        "the object is archived",
        "restore it from its archive tier first, and keep backups out of such tiers",
    ),
    "EntityTooLarge": (StoreError, "too large for the store", "raise part-size=..., or split the prefix"),
    "QuotaExceeded": (StoreError, "the bucket's quota is used up", "raise it, or prune old backups"),
    "XMinioStorageFull": (StoreError, "the store is full", "free some, or prune old backups"),
    "SlowDown": (ThrottledError, "the store asks to slow down", None),
    "Throttling": (ThrottledError, "the store asks to slow down", None),
    "ThrottlingException": (ThrottledError, "the store asks to slow down", None),
    "RequestLimitExceeded": (ThrottledError, "the store asks to slow down", None),
    "TooManyRequests": (ThrottledError, "the store asks to slow down", None),
    "BandwidthLimitExceeded": (ThrottledError, "the store asks to slow down", None),
    "ServiceUnavailable": (ThrottledError, "the store is overloaded or starting", None),
    "InternalError": (TransientError, "an error inside the store", None),
    "RequestTimeout": (TransientError, "the store waited too long for our bytes", None),
    "IncompleteBody": (TransientError, "the request was cut short on the way", None),
    "BadDigest": (TransientError, "the bytes were damaged on the way", None),
    "XAmzContentChecksumMismatch": (TransientError, "the bytes were damaged on the way", None),
}

_STATUS: dict[int, Meaning] = {
    401: _CODES["AccessDenied"],
    403: (
        DeniedError,
        "access denied",
        "look at the credentials, the bucket's policy and this machine's clock",
    ),
    404: _CODES["NoSuchKey"],
    405: _CODES["MethodNotAllowed"],
    408: _CODES["RequestTimeout"],
    409: _CODES["OperationAborted"],
    412: _CODES["PreconditionFailed"],
    429: _CODES["SlowDown"],
    501: _CODES["NotImplemented"],
    503: _CODES["ServiceUnavailable"],
    507: _CODES["QuotaExceeded"],
}


class _CutShortError(Exception):
    """An answer that lacks what every such answer has."""


def whole(answer: T, *names: str) -> T:
    """`answer`, if it has these members.  Where a connection breaks between the first line of an answer and
    its body, nothing below us notices: an empty listing would be believed.  To be called inside
    `translated`.
    """
    lacking = [name for name in names if name not in cast("Any", answer)]
    if lacking:
        raise _CutShortError(f"the answer has no {' and no '.join(lacking)}")
    return answer


def with_body(answer: T) -> T:
    """As `whole`, for an answer that may lack all its members: that there is a body at all must do."""
    headers = cast("Any", answer)["ResponseMetadata"]["HTTPHeaders"]
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        raise _CutShortError("the answer has no body")
    return answer


def said_at(answer: Any) -> datetime:
    """The store's clock when it answered; ours where it does not tell."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(date).astimezone(UTC) if date else datetime.now(UTC)


class translated(Translation):  # noqa: N801 - reads as the with-statement it is
    """What botocore raises."""

    def meaning(self, error: Exception) -> Meaning | None:
        if isinstance(error, boto.ClientError):
            if _is_unsaid(error):
                return TransientError, f"cut short: {flat(error)}", SOMEBODY
            return _answer(error.response)
        if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UNTRUSTED
        for kinds, kind, text, hint in _KINDS:
            if isinstance(error, kinds):
                return kind, f"{text}: {flat(error)}", hint
        return None


def code(error: BaseException | None) -> str:
    """The S3 error code behind a translated error, or ""."""
    response: Any = getattr(error.__cause__ if error else None, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def from_answer(answer: Any, operation: str, where: str) -> StoreError:
    """The error for one key in an answer that as a whole succeeded (`answer` has Code and Message)."""
    fallback: Meaning = (StoreError, str(answer.get("Message") or answer["Code"]), None)
    return meant(_CODES.get(str(answer["Code"]), fallback), where, operation)


_KINDS: tuple[tuple[tuple[type[Exception], ...], type[StoreError], str, str], ...] = (
    (
        (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
        DeniedError,
        "no credentials",
        "set them in the configuration or the environment",
    ),
    (
        (boto.FlexibleChecksumError,),
        StoreError,
        "the bytes are not those that were stored",
        "read it again; if that does not help, the object is damaged",
    ),
    (
        (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, HTTPError, OSError),
        TransientError,
        "no connection",
        "look at the endpoint and the network",
    ),
    (
        (_CutShortError,),
        TransientError,
        "cut short",
        SOMEBODY,
    ),
    (
        (ResponseParserError,),
        TransientError,
        "an answer that is not S3's",
        SOMEBODY,
    ),
    ((boto.BotoCoreError,), StoreError, "no S3", "look at the endpoint: does it speak S3?"),
    ((ValueError,), TransientError, "an answer that cannot be read", SOMEBODY),  # half a number, half a date
)
"""Errors without an answer, the first match counts."""


def _is_unsaid(error: boto.ClientError) -> bool:
    """A status that may mean anything, without the body that says what: the connection broke (nothing below
    us compares an error's length), or somebody else answered.  HEAD never has a body.
    """
    response = cast("Any", error.response)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    said = response.get("Error", {}).get("Code") not in {None, "", str(status)}
    return status in {400, 404} and not said and not error.operation_name.startswith("Head")


def _answer(response: Any) -> Meaning:
    found = str(response.get("Error", {}).get("Code", ""))
    said = str(response.get("Error", {}).get("Message", "")).rstrip(".")
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if found in _CODES:
        cls, message, hint = _CODES[found]
        if found == "RequestTimeTooSkewed" and "ServerTime" in response["Error"]:
            message += f" (the store's says {response['Error']['ServerTime']})"
        return cls, message, hint
    if status in _STATUS:
        cls, message, hint = _STATUS[status]
        return cls, f"{message} ({found})" if found and found != str(status) else message, hint
    if status >= 500:
        return TransientError, f"an error inside the store ({found or status})", None
    if found in {"", str(status)}:
        return StoreError, f"the store answers with status {status}", None
    return StoreError, f"{found}: {said}" if said else found, None
