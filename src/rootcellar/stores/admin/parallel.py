"""Removing one by one, several at a time: for stores whose batches are no better, or that have none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rootcellar.errors import NotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rootcellar.stores.admin.deletion import Entry, Refusal

_PARALLEL = 8


def each_removed(
    remove: Callable[[Entry], None],
    explained: Callable[[Entry, StoreError], Refusal],
    entries: Sequence[Entry],
) -> dict[Entry, Refusal]:
    """What `remove` refused, as `explained` says; NotFoundError of `remove` is a success, unless it is about
    the bucket, which then every page says too.
    """

    def attempt(entry: Entry) -> Refusal | None:
        try:
            remove(entry)
        except NotFoundError:
            return None
        except StoreError as error:
            return explained(entry, error)
        return None

    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="rootcellar-delete") as threads:
        outcomes = zip(entries, threads.map(attempt, entries), strict=True)
        return {entry: refusal for entry, refusal in outcomes if refusal is not None}
