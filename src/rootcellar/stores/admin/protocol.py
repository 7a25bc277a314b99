"""The management of one bucket: what is done to it as a whole, beside the objects that a store puts into it.

Every provider keeps to one contract, and to one suite of tests (`tests/stores/admin/contract.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rootcellar.stores.admin.values import (
        BucketState,
        BucketWish,
        Claim,
        Deletion,
        Hardening,
        Outcome,
    )
    from rootcellar.stores.limit import Bandwidth
    from rootcellar.stores.protocol import Store


class BucketAdmin(Protocol):
    """Contract, for the one bucket that this is of.

    * Every call may be killed at any moment and repeated: it converges.
    * Requests that may work when tried again are tried again inside; what still fails is raised.  A broken
      network is never taken for a success, nor for the absence of anything.
    * Errors are StoreError subclasses (UsageError for what cannot be meant, ConfigError for credentials);
      `rootcellar.stores.admin.codes` turns them into Gardener's codes.
    """

    @property
    def url(self) -> str:
        """The bucket as a person writes it; never with a credential."""
        ...

    def look(self) -> BucketState | None:
        """What is there; None for no bucket.  Raises DeniedError where we may not even ask that."""
        ...

    def create(self, wish: BucketWish) -> Outcome:
        """Make the bucket, or adopt one of this account.  Only what can be given at creation alone is set:
        `harden` does the rest, after `claim` (an owner's mark must not be locked in).

        Raises AlreadyExistsError where the name is somebody else's.  A bucket that a killed `create` left
        without a mark is adopted by the next one.
        """
        ...

    def harden(self, wish: BucketWish, state: BucketState, *, dry_run: bool = False) -> Hardening:
        """Carry out what `plan.drift` finds between `state`, from `look`, and `wish`; with `dry_run` tell it
        only.  Rules that others have set on the bucket are kept.  Raises what stops a change on its way;
        those before it are done then, and not repeated by the next call.
        """
        ...

    def below(self, prefix: str) -> Store:
        """What lies below a prefix, with retries."""
        ...

    def ours(self) -> Store:
        """What we keep in the bucket beside backups, owners' marks among it: all below `ownership.FOLDER`.
        It goes with the bucket.
        """
        ...

    def claim(self, claim: Claim) -> Claim:
        """Mark the bucket as used by `claim.owner`.  An owner's first mark holds: it is returned, whatever a
        later one says, so that a bucket that we made stays ours when it is adopted again.
        """
        ...

    def release(self, owner: str) -> None:
        """Remove this owner's mark.  None there is fine."""
        ...

    def claims(self) -> tuple[Claim, ...]:
        """Everybody's marks, by owner."""
        ...

    def prefixes(self) -> Iterator[str]:
        """What lies in the bucket, by the first part of its keys, each once: `shoot--a/` for all below that,
        `name` for an object beside them.  Owners' marks are left out.  A few pages are in memory at once.
        Hidden versions count: also what only delete markers cover is there.
        """
        ...

    def delete_objects(
        self,
        prefix: str,
        *,
        go_on: Deletion | None = None,
        progress: Callable[[Deletion], None] | None = None,
        stop: Callable[[], bool] | None = None,
        rate: Bandwidth | None = None,
    ) -> Deletion:
        """Delete everything below `prefix/`, with that slash, for good: versions, delete markers, unfinished
        uploads.  Never `prefix` itself or its longer namesakes.  Raises UsageError for a prefix that is not
        whole path segments, NotFoundError without a bucket, DeniedError where nothing may be deleted.

        `progress` is told after each batch.  `stop` is asked before each: what was done so far is returned,
        not `complete`, and goes on when handed back as `go_on`.  `rate` is in objects per second.
        """
        ...

    def empty(
        self,
        *,
        go_on: Deletion | None = None,
        progress: Callable[[Deletion], None] | None = None,
        stop: Callable[[], bool] | None = None,
        rate: Bandwidth | None = None,
    ) -> Deletion:
        """As `delete_objects`, for the whole bucket but its owners' marks."""
        ...

    def delete_bucket(self) -> None:
        """Delete the bucket, with owners' marks in it.  Gone already is fine.  Raises NotEmptyError where
        anything else lies in it: that is looked for here, because not all servers do.  Killed after the marks
        were removed it leaves an empty bucket without owners; a repeated call removes that.
        """
        ...

    def generated(self) -> Mapping[str, str] | None:
        """Credentials that were made with the bucket, by the names of `credentials.NAMES`, for those who are
        to use it instead of ours.  None where ours are to be used.
        """
        ...
