"""Immutability and legal holds of one blob (version-level WORM).

Such a policy needs a container with version-level immutability; elsewhere Azure refuses with a code of its
own, and what a container's own policy forbids is told by the refused delete.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING

from rootcellar.errors import (
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores.azure.errors import code
from rootcellar.stores.azure.listing import moment
from rootcellar.stores.protocol import Retention
from rootcellar.stores.steps import refuse_loosening

if TYPE_CHECKING:
    from rootcellar.stores.azure.client import Client

_NO_LOCK = {
    "ImmutableStorageWithVersioningNotEnabled",
    "ContainerImmutableStorageWithVersioningNotEnabled",
    "FeatureNotSupported",
    "UnsupportedHttpVerb",
    "InvalidQueryParameterValue",
}


def container_locks(client: Client) -> bool:
    """Whether the container says that it has version-level immutability; no where we may not ask."""
    try:
        answer = client.send("GET", "", "probe", query={"restype": "container"})
    except DeniedError:
        return False
    return answer.headers.get("x-ms-immutable-storage-with-versioning-enabled", "").lower() == "true"


def read(client: Client, key: str, version: str | None, where: str) -> Retention:
    """What Azure says now; a past date is nothing."""
    answer = client.send("HEAD", key, "retention", query=_query(version), needs=("ETag",))
    names = ("x-ms-immutability-policy-until-date", "x-ms-legal-hold")
    if not any(name in answer.headers for name in names) and not container_locks(client):
        raise _unsupported(where)
    text = answer.headers.get("x-ms-immutability-policy-until-date")
    until = moment(text) if text else None
    if until is not None and until <= datetime.now(UTC):
        until = None
    mode = answer.headers.get("x-ms-immutability-policy-mode", "")
    return Retention(
        until,
        compliance=until is not None and mode.lower() == "locked",
        legal_hold=answer.headers.get("x-ms-legal-hold", "").lower() == "true",
    )


def write(client: Client, key: str, version: str | None, where: str, wanted: Retention) -> None:
    """Change what differs.  Azure would refuse a shortening only of a locked policy; we refuse all."""
    current = read(client, key, version, where)
    refuse_loosening(current, wanted, where)
    changed = (wanted.until, wanted.compliance) != (current.until, current.compliance)
    if wanted.until is not None and changed:
        headers = {
            "x-ms-immutability-policy-until-date": format_datetime(wanted.until.astimezone(UTC), usegmt=True),
            "x-ms-immutability-policy-mode": "Locked" if wanted.compliance else "Unlocked",
        }
        _set(client, key, {**_query(version), "comp": "immutabilityPolicies"}, headers, where)
    if wanted.legal_hold != current.legal_hold:
        headers = {"x-ms-legal-hold": "true" if wanted.legal_hold else "false"}
        _set(client, key, {**_query(version), "comp": "legalhold"}, headers, where)


def _set(client: Client, key: str, query: dict[str, str], headers: dict[str, str], where: str) -> None:
    try:
        client.send("PUT", key, "set retention", query=query, headers=headers)
    except (UnsupportedError, NotFoundError, LockedError, TransientError):
        raise
    except StoreError as error:
        if code(error) in _NO_LOCK:
            raise _unsupported(where) from error
        raise


def _query(version: str | None) -> dict[str, str]:
    return {} if version is None else {"versionid": version}


def _unsupported(where: str) -> UnsupportedError:
    return UnsupportedError(
        f"{where}: the container has no version-level immutability",
        hint="copy the backups to a container that was made with it",
        operation="retention",
    )
