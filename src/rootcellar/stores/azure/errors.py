"""What Azure Blob Storage says, as our errors.  The one table of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

_CONTAINER = "create it, or look at its name and the account's"
_KEY = (
    "look at the storage key (a line end in its file?), and at this machine's clock: 15 minutes are allowed"
)
_ROLE = "the credentials are known, but no role assignment, SAS permission or firewall rule allows this"

_CODES: dict[str, Meaning] = {
    "AuthenticationFailed": (DeniedError, "the signature does not match", _KEY),
    "InvalidAuthenticationInfo": (DeniedError, "the store does not take the token", "get a fresh token"),
    "NoAuthenticationInformation": (DeniedError, "no credentials", "set them in the configuration"),
    "AuthorizationFailure": (
        DeniedError,
        "access denied",
        "look at the storage key, the account's firewall, role assignments and the permissions of a SAS",
    ),
    "AuthorizationPermissionMismatch": (DeniedError, "access denied", _ROLE),
    "InsufficientAccountPermissions": (DeniedError, "access denied", _ROLE),
    "AccountIsDisabled": (DeniedError, "the account is disabled", "ask who owns the account"),
    "KeyBasedAuthenticationNotPermitted": (
        DeniedError,
        "the account takes no storage key",
        "use a workload identity or a managed identity",
    ),
    "ContainerNotFound": (NotFoundError, "no such container", _CONTAINER),
    "ContainerDisabled": (StoreError, "the container is disabled", None),
    "ContainerBeingDeleted": (NotFoundError, "the container is being deleted", _CONTAINER),
    "BlobNotFound": (NotFoundError, "no such object", None),
    "ResourceNotFound": (NotFoundError, "no such object or container", _CONTAINER),
    "CannotVerifyCopySource": (NotFoundError, "no such object", None),
    "BlobAlreadyExists": (AlreadyExistsError, "another object is there", None),
    "ConditionNotMet": (AlreadyExistsError, "another object is there", None),
    "TargetConditionNotMet": (AlreadyExistsError, "another object is there", None),
    "UnauthorizedBlobOverwrite": (AlreadyExistsError, "another object is there", None),
    "BlobImmutableDueToPolicy": (LockedError, "retention forbids it", None),
    "BlobImmutableDueToLegalHold": (LockedError, "a legal hold forbids it", None),
    "ImmutabilityPolicyDeleteOnLockedPolicy": (LockedError, "retention forbids it", None),
    "LeaseIdMissing": (LockedError, "somebody holds a lease on it", "break the lease, or wait for its end"),
    "SnapshotsPresent": (LockedError, "somebody has made snapshots of it", "delete those first"),
    "BlobArchived": (
        StoreError,
        "the object is archived",
        "rehydrate it first, and keep backups out of the archive tier",
    ),
    "InvalidBlobList": (StoreError, "a block is missing", None),
    "InvalidBlockList": (StoreError, "the blocks are gone", "look for another writer of the same key"),
    "InvalidBlobOrBlock": (
        StoreError,
        "unfinished blocks of another writer are in the way",
        "Azure drops them a week after they were sent",
    ),
    "BlockCountExceedsLimit": (StoreError, "too large for the store", "raise part-size=..."),
    "RequestBodyTooLarge": (StoreError, "a part is too large for the store", "lower part-size=..."),
    "Md5Mismatch": (TransientError, "the bytes were damaged on the way", None),
    "InternalError": (TransientError, "an error inside the store", None),
    "OperationTimedOut": (TransientError, "the store took too long", None),
    "ServerBusy": (ThrottledError, "the store asks to slow down", None),
    "TooManyRequests": (ThrottledError, "the store asks to slow down", None),
    "FeatureVersionMismatch": (UnsupportedError, "the store cannot do that", None),
    "APINotImplemented": (UnsupportedError, "the store cannot do that", None),
    "UnsupportedHeader": (UnsupportedError, "the store cannot do that", None),
    "VersioningNotEnabled": (UnsupportedError, "the account keeps no versions", None),
}

_STATUS: dict[int, Meaning] = {
    401: (DeniedError, "access denied", _ROLE),
    403: (DeniedError, "access denied", _ROLE),
    404: _CODES["BlobNotFound"],
    405: _CODES["FeatureVersionMismatch"],
    408: _CODES["OperationTimedOut"],
    412: _CODES["ConditionNotMet"],
    429: _CODES["ServerBusy"],
    501: _CODES["APINotImplemented"],
    503: _CODES["ServerBusy"],
}


class AzureError(Exception):
    """The cause of a store error: what the store said, word for word."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{status} {code}: {text}" if text else f"{status} {code}")
        self.status = status
        self.code = code


def code(error: BaseException | None) -> str:
    """The store's own code behind one of our errors, or ""."""
    cause = error.__cause__ if error else None
    return cause.code if isinstance(cause, AzureError) else ""


def refusal(request: Request, answer: Answer) -> StoreError:
    """The error that a failed answer means, with its cause set."""
    found = answer.headers.get("x-ms-error-code", "")
    said = " ".join(answer.body[:300].decode("utf-8", "replace").split())
    cause = AzureError(answer.status, found, said)
    return meant(_meaning(answer.status, found), request.where, request.operation, cause)


def _meaning(status: int, found: str) -> Meaning:
    if found in _CODES:
        return _CODES[found]
    if not found and status in {400, 404, 409, 412}:  # Azure says why; so this is not Azure, or cut short
        return TransientError, f"an answer that is not the store's (status {status})", SOMEBODY
    if status in _STATUS:
        kind, text, hint = _STATUS[status]
        return kind, f"{text} ({found})" if found else text, hint
    if status >= 500:
        return TransientError, f"an error inside the store ({found or status})", None
    return StoreError, found or f"the store answers with status {status}", None
