"""Steps of a verb that several providers share."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rootcellar.errors import AlreadyExistsError, LockedError, NotFoundError, StoreError
from rootcellar.stores.protocol import Create, ReplaceIf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rootcellar.stores.backoff import Attempts
    from rootcellar.stores.protocol import ObjectInfo, PutCondition, Retention

_BATCH = 1000
_PARALLEL = 8


def replaced(where: str) -> NotFoundError:
    """Of a get: the key holds another object than the one that was begun with, or asked for."""
    return NotFoundError(
        f"{where}: replaced by another object", hint="read it again from the start", operation="get"
    )


def check_size(where: str, held: int, size: int) -> None:
    """StoreError where a store holds another number of bytes than it was given and took."""
    if held != size:
        message = f"{where}: the store holds {held} of {size} bytes"
        raise StoreError(message, hint="do not trust this store", operation="put")


def refuse_loosening(current: Retention, wanted: Retention, where: str) -> None:
    """LockedError where retention would become less: stores refuse that of some kinds, we of all."""
    if current.until is not None and (wanted.until is None or wanted.until < current.until):
        raise LockedError(
            f"{where}: retention until {current.until:%Y-%m-%d %H:%M:%SZ} cannot be shortened",
            operation="set retention",
        )
    if current.compliance and not wanted.compliance:
        raise LockedError(f"{where}: compliance retention cannot be loosened", operation="set retention")


class Sized:
    """Chunks, and how many bytes of them have passed."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            yield chunk


def compare(condition: PutCondition, etag: str | None, where: str) -> None:
    """AlreadyExistsError where an object with this `etag` (None: no object) forbids the put."""
    if isinstance(condition, Create) and etag is not None:
        raise AlreadyExistsError(f"{where}: exists already", operation="put")
    if isinstance(condition, ReplaceIf) and etag != condition.etag:
        raise AlreadyExistsError(f"{where}: replaced or removed by another", operation="put")


def compare_first(
    stat: Callable[[str], ObjectInfo], key: str, condition: PutCondition, attempts: Attempts, where: str
) -> None:
    """Look before a put that the store itself compares too late, or not at all.  Raises AlreadyExistsError.

    Tried again here: the first bytes are taken already, so whoever called cannot repeat this.
    """
    try:
        etag = attempts.run(lambda: stat(key)).etag
    except NotFoundError:
        etag = None
    compare(condition, etag, where)


def each_deleted(delete: Callable[[str], None], keys: Iterable[str]) -> dict[str, StoreError]:
    """Delete one by one, eight at a time; what could not be deleted, with its reason."""

    def attempt(key: str) -> StoreError | None:
        try:
            delete(key)
        except StoreError as error:
            return error
        return None

    failed: dict[str, StoreError] = {}
    rest = iter(keys)
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rootcellar-delete") as threads:
        while batch := list(itertools.islice(rest, _BATCH)):
            outcomes = zip(batch, threads.map(attempt, batch), strict=True)
            failed |= {key: error for key, error in outcomes if error is not None}
    return failed
