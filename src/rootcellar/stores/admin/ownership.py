"""Marks of those who use a bucket: who may delete it, and whose backups lie in it.

A mark is an object of its own for each owner, so that two of them never overwrite each other, and it needs no
tags, which not every store has.  It lies at `_rootcellar/owners/<hash of the owner>`: no backup prefix begins
so (Kubernetes names have no underscore), and etcd-backup-restore sees nothing in it (neither `v1/` nor `v2/`
occurs, and no name of four parts).

A mark is written once and not replaced.  Where the bucket has object lock the mark should be there before a
default retention is: it is small, but it would keep the bucket.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING

from rootcellar.errors import NotFoundError, RecordError
from rootcellar.stores.admin.values import Claim

if TYPE_CHECKING:
    from rootcellar.stores.protocol import Store

FOLDER = "_rootcellar/"
"""What is ours in a bucket, beside backups."""

_OWNERS = "owners/"
_LIMIT = 4096
"""Bytes of a mark: the owner is a name, and nobody else writes here."""


class Marks:
    """The marks in a bucket; `store` is the one at `FOLDER` in it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self, claim: Claim) -> Claim:
        """The owner's mark, which is `claim` if there was none.

        Not a conditional put: an owner is one operator, elected, and what two of them could disagree about is
        only whether the bucket was there before.  A probe of conditions would leave objects in a locked one.
        """
        key = _key(claim.owner)
        try:
            return self._read(key)
        except NotFoundError:
            self._store.put(key, [_encoded(claim)])
            return claim

    def release(self, owner: str) -> None:
        self._store.delete(_key(owner))

    def all(self) -> tuple[Claim, ...]:
        """By owner.  Raises RecordError for a mark that cannot be read: somebody owns the bucket."""
        found = []
        for info in self._store.list(_OWNERS):
            try:
                found.append(self._read(info.key))
            except NotFoundError:
                continue  # released since it was listed
        return tuple(sorted(found, key=lambda claim: claim.owner))

    def _read(self, key: str) -> Claim:
        body = b"".join(self._store.get(key, end=_LIMIT))
        try:
            said = json.loads(body)
            claim = Claim(str(said["owner"]), said["created"] is True, datetime.fromisoformat(said["since"]))
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{self._store.url}/{key}: a mark of an owner that cannot be read",
                hint="look at the object; removing it gives up the bucket for whoever wrote it",
            ) from error
        if _key(claim.owner) != key:
            raise RecordError(f"{self._store.url}/{key}: a mark of {claim.owner}, under another's name")
        return claim


def _key(owner: str) -> str:
    return f"{_OWNERS}{hashlib.sha256(owner.encode()).hexdigest()[:32]}"


def _encoded(claim: Claim) -> bytes:
    said = {"owner": claim.owner, "created": claim.created, "since": claim.since.isoformat()}
    return json.dumps(said, indent=1).encode() + b"\n"
