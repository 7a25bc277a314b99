"""What the administration of every provider's buckets has in common: marks, deletions, the way to harden.

A provider brings the store below a prefix, the heap of what lies in the bucket, and what it can set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from rootcellar.errors import NotEmptyError, NotFoundError
from rootcellar.stores.admin.deletion import Sweep, folder
from rootcellar.stores.admin.ownership import FOLDER, Marks
from rootcellar.stores.admin.plan import drift
from rootcellar.stores.admin.values import Change, Hardening
from rootcellar.stores.backoff import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rootcellar.stores.admin.deletion import Heap
    from rootcellar.stores.admin.values import BucketState, BucketWish, Claim, Deletion
    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.limit import Bandwidth
    from rootcellar.stores.protocol import Store


class Bucket(ABC):
    """The shared half of a BucketAdmin."""

    def __init__(self, url: str, backoff: Backoff) -> None:
        self._url = url
        self._backoff = backoff
        self._ours: Store | None = None  # to open a store may take a while

    @property
    def url(self) -> str:
        return self._url

    @abstractmethod
    def below(self, prefix: str) -> Store: ...

    @abstractmethod
    def _heap(self) -> Heap:
        """What lies in the bucket now."""

    @abstractmethod
    def _first_parts(self) -> Iterator[str]:
        """First parts of all keys, perhaps with repetitions next to each other."""

    @abstractmethod
    def _remove(self) -> None:
        """Delete the empty bucket, once.  Raises NotFoundError, NotEmptyError."""

    @abstractmethod
    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        """Carry out one change, with retries."""

    def harden(self, wish: BucketWish, state: BucketState, *, dry_run: bool = False) -> Hardening:
        plan = drift(state, wish)
        if not dry_run:
            # Each change stands for itself: killed in between, the next look finds what is left to do.
            for change in plan.changes:
                self._change(change, wish, state)
        return Hardening(plan.changes, plan.refused, plan.unknown)

    def ours(self) -> Store:
        if self._ours is None:
            self._ours = self.below(FOLDER.rstrip("/"))
        return self._ours

    def claim(self, claim: Claim) -> Claim:
        return Marks(self.ours()).claim(claim)

    def release(self, owner: str) -> None:
        Marks(self.ours()).release(owner)

    def claims(self) -> tuple[Claim, ...]:
        return Marks(self.ours()).all()

    def prefixes(self) -> Iterator[str]:
        last = None
        for part in self._first_parts():
            if part not in {last, FOLDER}:
                yield part
            last = part

    def delete_objects(
        self,
        prefix: str,
        *,
        go_on: Deletion | None = None,
        progress: Callable[[Deletion], None] | None = None,
        stop: Callable[[], bool] | None = None,
        rate: Bandwidth | None = None,
    ) -> Deletion:
        return self._swept(folder(prefix), go_on, progress, stop, rate)

    def empty(
        self,
        *,
        go_on: Deletion | None = None,
        progress: Callable[[Deletion], None] | None = None,
        stop: Callable[[], bool] | None = None,
        rate: Bandwidth | None = None,
    ) -> Deletion:
        return self._swept("", go_on, progress, stop, rate)

    def _swept(
        self,
        prefix: str,
        go_on: Deletion | None,
        progress: Callable[[Deletion], None] | None,
        stop: Callable[[], bool] | None,
        rate: Bandwidth | None,
    ) -> Deletion:
        sweep = Sweep(self._heap(), prefix, self._backoff, progress=progress, stop=stop, rate=rate)
        return sweep.run(go_on)

    def delete_bucket(self) -> None:
        """First look, then marks, then the bucket: killed before the last step, it is empty and nobody's."""
        try:
            self._refuse_contents()
            marks = Sweep(self._heap(), FOLDER, self._backoff).run()
            if not marks.gone:
                until = f" until {marks.latest:%Y-%m-%d %H:%M:%SZ}" if marks.latest else ""
                raise self._not_empty(f"the marks of its owners are locked{until}")
            Attempts(self._backoff).run(self._remove)
        except NotFoundError:
            if self._is_there():
                raise

    def _refuse_contents(self) -> None:
        heap = self._heap()
        token = ""
        while True:
            asked = token
            page = Attempts(self._backoff).run(lambda: heap.page("", asked))  # noqa: B023 - run here
            found = next((entry.key for entry in page.entries if not entry.key.startswith(FOLDER)), None)
            if found is not None:
                raise self._not_empty(f"{found} lies in it")
            if not page.after:
                return
            token = page.after

    def _not_empty(self, reason: str) -> NotEmptyError:
        return NotEmptyError(
            f"{self._url}: the bucket is not deleted: {reason}",
            hint="delete what lies in it first, if nobody needs it",
            operation="delete bucket",
        )

    @abstractmethod
    def _is_there(self) -> bool:
        """Whether there is such a bucket, ours or not; with retries."""

    def generated(self) -> Mapping[str, str] | None:
        return None
