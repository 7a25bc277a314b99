"""Retention and holds of one object.

A bucket's own retention policy shows in every object as a date; a date of an object's own needs a bucket with
object retention enabled; a temporary hold, which stands for the legal hold, can be set in every bucket.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rootcellar.errors import DeniedError, StoreError, UnsupportedError
from rootcellar.stores.gcs.errors import status
from rootcellar.stores.protocol import Retention
from rootcellar.stores.steps import refuse_loosening

if TYPE_CHECKING:
    from rootcellar.stores.gcs.client import Client


def told_of_bucket(client: Client) -> dict[str, Any]:
    """What the bucket says of versions and retention; nothing where we may not ask (storage.buckets.get)."""
    try:
        return client.ask("GET", client.bucket, "probe", query={"fields": "versioning,objectRetention"})
    except DeniedError:
        return {}


def read(client: Client, key: str, version: str | None) -> Retention:
    """What the store says now; a past date is nothing."""
    found = client.ask("GET", client.object(key), "retention", key=key, query=_query(version))
    return _retention(found)


def write(client: Client, key: str, version: str | None, where: str, wanted: Retention) -> None:
    """Change what differs.  The store would refuse a shortening only of a locked date; we refuse all."""
    found = client.ask("GET", client.object(key), "set retention", key=key, query=_query(version))
    current = _retention(found)
    refuse_loosening(current, wanted, where)
    query = {**_query(version), "ifMetagenerationMatch": str(found["metageneration"])}
    body: dict[str, Any] = {}
    if wanted.legal_hold != current.legal_hold:
        body["temporaryHold"] = wanted.legal_hold
        if not wanted.legal_hold and found.get("eventBasedHold"):
            body["eventBasedHold"] = False
    if wanted.until is not None and (wanted.until, wanted.compliance) != (current.until, current.compliance):
        mode = "Locked" if wanted.compliance else "Unlocked"
        body["retention"] = {"mode": mode, "retainUntilTime": wanted.until.astimezone(UTC).isoformat()}
        query["overrideUnlockedRetention"] = "true"  # from unlocked to locked, which loosens nothing
    if body:
        _patch(client, key, where, query, body)


def _patch(client: Client, key: str, where: str, query: dict[str, str], body: dict[str, Any]) -> None:
    try:
        client.ask(
            "PATCH",
            client.object(key),
            "set retention",
            key=key,
            query=query,
            headers={"Content-Type": "application/json"},
            body=json.dumps(body).encode(),
        )
    except StoreError as error:
        if "retention" in body and status(error) == 400:
            raise UnsupportedError(
                f"{where}: the bucket has no object retention",
                hint="it is enabled when a bucket is made: copy the backups to one that has it",
                operation="set retention",
            ) from error
        raise


def _retention(found: dict[str, Any]) -> Retention:
    own = found.get("retention") or {}
    dates = [
        _moment(text) for text in (own.get("retainUntilTime"), found.get("retentionExpirationTime")) if text
    ]
    until = max(dates, default=None)
    if until is not None and until <= datetime.now(UTC):
        until = None
    return Retention(
        until,
        compliance=until is not None and own.get("mode") == "Locked",
        legal_hold=bool(found.get("temporaryHold") or found.get("eventBasedHold")),
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _query(version: str | None) -> dict[str, str]:
    return {} if version is None else {"generation": version}
