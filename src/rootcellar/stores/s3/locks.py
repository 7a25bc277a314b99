"""Retention and legal holds of one S3 object version.

Raises UnsupportedError where the bucket has no object lock; servers say that in many ways, some with status
500.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rootcellar.errors import DeniedError, LockedError, NotFoundError, StoreError, UnsupportedError
from rootcellar.stores.protocol import Retention
from rootcellar.stores.s3.errors import code, translated, whole, with_body
from rootcellar.stores.steps import refuse_loosening

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_NOTHING_SET = {"NoSuchObjectLockConfiguration", "NoSuchObjectRetention", "NoSuchObjectLegalHold"}
_NO_LOCK = "ObjectLockConfigurationNotFoundError"


def bucket_locks(client: S3Client, bucket: str, where: str) -> bool:
    """Whether the bucket says it has object lock."""
    try:
        with translated("retention", where):
            answer = with_body(client.get_object_lock_configuration(Bucket=bucket))
    except UnsupportedError:
        return False
    except StoreError as error:
        if code(error) in _NOTHING_SET | {_NO_LOCK, "InvalidRequest"}:
            return False
        raise
    return answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled"


def read(client: S3Client, name: dict[str, Any], where: str) -> Retention:
    """What S3 says now; a past date is nothing."""
    until, compliance, hold = None, False, False
    try:
        with translated("retention", where):
            answer = whole(client.get_object_retention(**name), "Retention")
            found = whole(answer["Retention"], "Mode", "RetainUntilDate")
        if found["RetainUntilDate"] > datetime.now(UTC):
            until = found["RetainUntilDate"].astimezone(UTC)
            compliance = found["Mode"] == "COMPLIANCE"
    except StoreError as error:
        _unless_nothing_set(error, client, name["Bucket"], where)
    try:
        with translated("retention", where):
            held = whole(client.get_object_legal_hold(**name), "LegalHold")
            hold = whole(held["LegalHold"], "Status")["Status"] == "ON"
    except StoreError as error:
        _unless_nothing_set(error, client, name["Bucket"], where)
    return Retention(until, compliance=compliance, legal_hold=hold)


def write(client: S3Client, name: dict[str, Any], where: str, wanted: Retention) -> None:
    """Change what differs.  The store would refuse a shortening only of a compliance date; we refuse all."""
    current = read(client, name, where)
    refuse_loosening(current, wanted, where)
    changed = (wanted.until, wanted.compliance) != (current.until, current.compliance)
    with translated("set retention", where):
        if wanted.until is not None and changed:
            mode: Any = "COMPLIANCE" if wanted.compliance else "GOVERNANCE"
            client.put_object_retention(**name, Retention={"Mode": mode, "RetainUntilDate": wanted.until})
        if wanted.legal_hold != current.legal_hold:
            status: Any = "ON" if wanted.legal_hold else "OFF"
            client.put_object_legal_hold(**name, LegalHold={"Status": status})


def explained(error: DeniedError, client: S3Client, name: dict[str, Any], where: str) -> StoreError:
    """S3 says "access denied" for a locked version too: LockedError if it is one, else `error` itself."""
    try:
        current = read(client, name, where)
    except StoreError:
        return error
    if current.until is None and not current.legal_hold:
        return error
    reason = "a legal hold" if current.legal_hold else f"retention until {current.until:%Y-%m-%d %H:%M:%SZ}"
    return LockedError(f"{where}: {reason} forbids it", operation="delete")


def _unless_nothing_set(error: StoreError, client: S3Client, bucket: str, where: str) -> None:
    if code(error) in _NOTHING_SET:
        return
    if isinstance(error, DeniedError | NotFoundError):
        raise error
    if not bucket_locks(client, bucket, where):
        raise UnsupportedError(
            f"{where}: the bucket has no object lock",
            hint="object lock is set when a bucket is made: copy the backups to one that has it",
            operation="retention",
        ) from error
    if code(error) != _NO_LOCK:  # SeaweedFS says this of an object too
        raise error
