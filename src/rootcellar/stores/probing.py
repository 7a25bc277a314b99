"""What a store really does with conditions and versions, found out by trying: for providers without a probe
of their own.

A probe leaves nothing.  Where retention forbids the removal of its object, or the process was killed, the
object stays, and probes an hour later, when nobody can be about to delete it any more, try on it instead of
making another.
"""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from rootcellar.errors import AlreadyExistsError, NotFoundError, StoreError
from rootcellar.stores.protocol import Capabilities, Create, ReplaceIf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.stores.protocol import ObjectInfo, PutCondition

FOLDER = "catalogue/probe/"
OLD = timedelta(hours=1)
_BODY = b"probe"


class Tried(Protocol):
    """What a probe tries, without any fallback for what the store ignores."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]: ...

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo: ...

    def put_once(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        """Put it in one request."""
        ...

    def put_in_parts(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        """Put it as a large object is put."""
        ...

    def forget(self, key: str, version: str | None) -> None:
        """Delete it for good."""
        ...

    def versioned(self, info: ObjectInfo) -> bool:
        """Whether the store keeps what is replaced or deleted; `info` is what it says of an object."""
        ...

    def locks(self) -> bool:
        """Whether an object can be given a date of retention."""
        ...


def probe(store: Tried) -> Capabilities:
    """Raises StoreError when the store cannot even be written to."""
    made: list[ObjectInfo] = []
    standing = _standing(store)
    try:
        key = standing or f"{FOLDER}{secrets.token_hex(8)}"
        if standing is None:
            made.append(store.put_once(key, _BODY, None))
        create = _is_refused(store.put_once, key, Create(), made)
        first = store.stat(key)
        replace = _is_refused(store.put_once, key, ReplaceIf(_other(first.etag)), made)
        return Capabilities(
            conditional_create=create,
            conditional_replace=replace,
            conditional_multipart=create and _is_refused(store.put_in_parts, key, Create(), made),
            versions=store.versioned(first),
            object_lock=store.locks(),
        )
    finally:
        for info in reversed(made):
            with contextlib.suppress(StoreError):
                store.forget(info.key, info.version)


def _standing(store: Tried) -> str | None:
    """The key of an object that an earlier probe could not delete."""
    old = datetime.now(UTC) - OLD
    return next((info.key for info in islice(store.list(FOLDER), 20) if info.modified < old), None)


def _is_refused(
    put: Callable[[str, bytes, PutCondition], ObjectInfo],
    key: str,
    condition: PutCondition,
    made: list[ObjectInfo],
) -> bool:
    try:
        made.append(put(key, _BODY, condition))
    except (AlreadyExistsError, NotFoundError):
        return True
    return False


def _other(etag: str | None) -> str:
    """An etag of the same form that no object here has."""
    return "1" if etag is not None and etag.isdecimal() else "0x8D00000000000000"
