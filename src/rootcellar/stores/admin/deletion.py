"""Deleting all that lies below a prefix, in batches, until a whole listing finds nothing more to delete.

One loop for all providers; a provider gives pages and removes batches (`Heap`).  What a crash leaves is
always the same: some of it gone, the rest there, and a repeated call goes on with the rest.

A listing under which objects vanish may skip some, on some servers in odd ways.  So the end of a listing is
believed only if nothing was deleted since its beginning; else it is read again.  Each such round deletes
something, or is the last; where they do not come to an end, somebody writes, or the server does not tell the
truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rootcellar.errors import DeniedError, LockedError, StoreError, TransientError, UsageError
from rootcellar.stores.admin.ownership import FOLDER
from rootcellar.stores.admin.values import EXAMPLES, Deletion
from rootcellar.stores.backoff import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.limit import Bandwidth


BATCH = 1000
"""Entries that are removed together; also what one S3 request takes."""

ROUNDS = 20
"""Listings that one call reads at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to delete, by its whole key; `version` where the bucket keeps versions."""

    key: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what is there; `after` is where the next page begins, in the provider's own words, "" for the
    end.
    """

    entries: Sequence[Entry]
    after: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not deleted, and until when, where that is known."""

    error: StoreError
    until: datetime | None = None


class Heap(Protocol):
    """What lies in a bucket, as a deletion sees it: all of it, also what a store hides."""

    def page(self, prefix: str, token: str) -> Page:
        """Some of what begins with `prefix` (letter by letter), from `token` on."""
        ...

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        """Delete these for good; what was refused.  What is not there counts as deleted.  Raises where the
        request as a whole failed.
        """
        ...

    def tidy(self, prefix: str) -> int:
        """Abort every unfinished upload below `prefix`; how many."""
        ...


def folder(prefix: str) -> str:
    """`prefix/`.  Raises UsageError for anything but whole path segments: none at all would be the bucket."""
    segments = prefix.split("/")
    if any(segment in {"", ".", ".."} for segment in segments) or not prefix.isprintable():
        raise UsageError(
            f"{prefix!r} is no prefix to delete", hint="write its parts joined by single slashes"
        )
    if prefix.startswith(FOLDER) or f"{prefix}/" == FOLDER:
        raise UsageError(f"{prefix!r} holds owners' marks", hint="release them by their owners' names")
    return f"{prefix}/"


class Sweep:
    """One deletion under way."""

    def __init__(
        self,
        heap: Heap,
        prefix: str,
        backoff: Backoff,
        *,
        progress: Callable[[Deletion], None] | None = None,
        stop: Callable[[], bool] | None = None,
        rate: Bandwidth | None = None,
    ) -> None:
        self._heap = heap
        self._prefix = prefix
        self._backoff = backoff
        self._progress = progress or _ignored
        self._stop = stop or _never
        self._rate = rate

    def run(self, so_far: Deletion | None = None) -> Deletion:
        """Raises TransientError where the store stays away, DeniedError where it lets us delete nothing."""
        state = so_far or Deletion()
        if state.complete:
            state = Deletion(deleted=state.deleted)
        rounds = 1
        while not self._stop():
            before, token = state, state.token
            page = Attempts(self._backoff).run(lambda: self._heap.page(self._prefix, token))  # noqa: B023 - run here
            for batch in self._batches(page):
                if self._stop():  # this page is asked for again, and what stays of it is counted then
                    done = state.deleted - before.deleted
                    return replace(
                        before, deleted=state.deleted, deleted_in_pass=before.deleted_in_pass + done
                    )
                state = self._batch(state, batch)
                self._progress(state)
            if page.after:
                state = replace(state, token=page.after)
                continue
            if not state.deleted_in_pass:
                return self._finished(state)
            if rounds == ROUNDS:
                raise StoreError(
                    f"{self._prefix or 'the bucket'}: after {rounds} rounds of deleting there is still more",
                    hint="look for a writer there: an agent that still runs, or a copy",
                    operation="delete",
                )
            rounds += 1
            state = Deletion(deleted=state.deleted)
        return state

    def _finished(self, state: Deletion) -> Deletion:
        """Uploads last: one that is completed while we delete is an object by then, and shows."""
        aborted = Attempts(self._backoff).run(lambda: self._heap.tidy(self._prefix))
        return replace(state, deleted=state.deleted + aborted, complete=True, token="")

    def _batches(self, page: Page) -> Iterator[Sequence[Entry]]:
        """What is to go, in pieces that the rate lets through in about a second."""
        entries = page.entries if self._prefix else [e for e in page.entries if not e.key.startswith(FOLDER)]
        size = BATCH if self._rate is None else min(BATCH, max(1, int(self._rate.rate)))
        for start in range(0, len(entries), size):
            yield entries[start : start + size]

    def _batch(self, state: Deletion, batch: Sequence[Entry]) -> Deletion:
        strangers = [entry.key for entry in batch if not entry.key.startswith(self._prefix)]
        if strangers:  # a server that takes a prefix for less than it says must not cost anybody a backup
            raise UsageError(f"{strangers[0]!r} was listed below {self._prefix!r}: nothing is deleted")
        if self._rate is not None:
            self._rate.take(len(batch))
        refused = self._removed(batch)
        locked = [each for each in refused.values() if isinstance(each.error, LockedError)]
        failed = {key: each for key, each in refused.items() if not isinstance(each.error, LockedError)}
        denied = next((each.error for each in failed.values()), None)
        if isinstance(denied, DeniedError) and len(failed) == len(batch) and not state.deleted_in_pass:
            raise denied  # not a matter of single objects: to go on would be the same again and again
        dates = [each.until for each in locked if each.until is not None]
        examples = dict(state.examples)
        for entry, each in failed.items():
            if len(examples) < EXAMPLES:
                examples[entry.key] = each.error
        done = len(batch) - len(refused)
        return replace(
            state,
            deleted=state.deleted + done,
            deleted_in_pass=state.deleted_in_pass + done,
            locked=state.locked + len(locked),
            earliest=min([*dates, *_given(state.earliest)], default=None),
            latest=max([*dates, *_given(state.latest)], default=None),
            failures=state.failures + len(failed),
            examples=examples,
        )

    def _removed(self, batch: Sequence[Entry]) -> dict[Entry, Refusal]:
        """What stays refused after those that may work when tried again were tried again."""
        refused: dict[Entry, Refusal] = {}
        attempts = Attempts(self._backoff)
        left = batch
        while left:
            try:
                answers = self._heap.remove(left)
            except TransientError as error:
                attempts.failed(error)
                continue
            again = [(entry, each.error) for entry, each in answers.items() if _may_work(each)]
            refused |= {entry: each for entry, each in answers.items() if not _may_work(each)}
            if len(again) < len(left):
                attempts.progressed()
            left = [entry for entry, _ in again]
            if again and isinstance(again[0][1], TransientError):
                attempts.failed(again[0][1])
        return refused


def _may_work(refusal: Refusal) -> bool:
    return isinstance(refusal.error, TransientError)


def _given(when: datetime | None) -> list[datetime]:
    return [] if when is None else [when]


def _never() -> bool:
    return False


def _ignored(_: Deletion) -> None:
    """Nobody wants to know."""
