"""What an object store is to rootcellar: one protocol, its differences as data.

Keys are relative to the store's prefix, use `/`, and never begin with one (`rootcellar.stores.keys` has the
rules for what may be written).  A prefix is whole path segments: a store at `a/etcd-main` never sees
`a/etcd-main2/...`.  Providers stay dumb: they translate calls and errors (`rootcellar.errors`, StoreError and
below) and repeat only what nobody above them can repeat: one part of a put, whose bytes only they hold, and
the rest of a broken stream, whose object only they have pinned.  All other retrying, limiting and metering
are decorators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta

    from rootcellar.errors import StoreError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object (or one version of it) as the store lists it.  `size` is in bytes, `modified` is aware UTC
    by the store's own clock; after a put it may be a second off what a later `stat` says.
    """

    key: str
    size: int
    modified: datetime
    etag: str | None = None
    version: str | None = None
    is_delete_marker: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """Why an object cannot be deleted: until when, whether its owner can lift that, and a legal hold."""

    until: datetime | None = None
    compliance: bool = False
    legal_hold: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this store really does, as found out by `probe` (never merely as documented).

    `conditional_multipart` is apart, because some stores honour a condition on a small put and ignore it on
    one large enough to be uploaded in parts.
    """

    conditional_create: bool
    conditional_replace: bool
    conditional_multipart: bool = False
    versions: bool = False
    object_lock: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Put only if no object has this key; else AlreadyExistsError."""


@dataclass(frozen=True, slots=True)
class ReplaceIf:
    """Put only if the object still has this etag; else (also when it is gone) AlreadyExistsError.

    The error says that our bytes are not there.  Where the answer to our put was lost and another has
    replaced it before we asked again, they may have been there for a moment.
    """

    etag: str


PutCondition = Create | ReplaceIf | None


class Store(Protocol):
    """Contract.  One conformance suite (`tests/stores/conformance.py`) holds every implementation to it.

    * Every call is safe from several threads at once.
    * Errors are StoreError subclasses (and UsageError for a request that no store could carry out); only
      TransientError is worth a retry.  What returns an iterator may raise at the call or at any item.
    * A put becomes visible whole or not at all.  A put whose chunks raise leaves nothing visible, no
      multipart upload behind, and re-raises what the chunks raised.
    * `put` consumes `chunks` once, never holding more than a bounded number of parts in memory.  Because an
      iterator cannot be rewound, a retry decorator retries parts inside a put, never a whole streamed put.
    * Listing is in ascending order of the key's UTF-8 bytes, is paged inside, and holds a few pages in
      memory.
    """

    @property
    def url(self) -> str:
        """The store as a person writes it; never with a credential."""
        ...

    def probe(self) -> Capabilities:
        """Find out, by small writes under `catalogue/probe/` that are removed again, what the store does.
        Where retention forbids the removal, they stay, and probes an hour later use them.
        """
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix` and sorts after `after`.  None for a missing prefix."""
        ...

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        """Raises NotFoundError."""
        ...

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        """Bytes [start, end) in chunks of at most a few MiB; what lies past the end of the object is not
        there. All bytes are of one object, even when the provider had to reconnect.  With `etag`, which
        several ranged reads of one object need, also of that very one: NotFoundError where the key holds
        another by now.  A stream cut short raises TransientError.
        """
        ...

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        """Store the concatenation of `chunks` (of any sizes).  Where the store ignores conditions (see
        `probe`), a conditional put falls back to stat-then-put, which narrows the race but does not close
        it.
        """
        ...

    def delete(self, key: str, *, version: str | None = None) -> None:
        """Deleting what is not there is fine.  Raises LockedError when retention or a hold forbids it.
        Where the bucket keeps versions, a delete without `version` only hides the object.
        """
        ...

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        """Delete in batches; what could not be deleted is returned with its reason."""
        ...

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every version and delete marker, by key, newest first.  Raises UnsupportedError."""
        ...

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        """What forbids deletion now.  Raises UnsupportedError where the store has no object lock."""
        ...

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        """Extend retention, set or lift a legal hold.  Raises UnsupportedError, LockedError when
        shortening.
        """
        ...

    def abort_leftovers(self, older_than: timedelta) -> int:
        """Remove what writers that died left behind under this prefix (unfinished multipart uploads,
        temporary files) and that nobody has touched for `older_than`.  Returns how many.
        """
        ...
