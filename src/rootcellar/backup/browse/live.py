"""The keys of a live etcd at one revision, read as a backup's are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rootcellar.mvcc.history import EVERYTHING, KeyRange
from rootcellar.mvcc.record import KeyValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.etcd.answers import Page
    from rootcellar.etcd.client import EtcdClient

_PAGE_BYTES = 2 << 20
_FIRST_PAGE_KEYS = 16
_PAGE_KEYS = 5000


class Keyed(Protocol):
    """A live key and its record, which may be read only when it is asked for."""

    @property
    def key(self) -> bytes: ...
    @property
    def record(self) -> KeyValue: ...


class Readable(Protocol):
    """A keyspace at one revision: a backup's (`mvcc.history.Keyspace`) or a live etcd's."""

    @property
    def revision(self) -> int: ...

    def live(self, within: KeyRange = EVERYTHING) -> Iterator[Keyed]:
        """The live keys in key order."""
        ...


@dataclass(frozen=True, slots=True)
class LiveKey:
    """A key as etcd's API told it."""

    key: bytes
    record: KeyValue


class LiveKeyspace:
    """The keys that `client`'s etcd has at `revision` (default: when this was made).

    A compaction of that revision while it is read raises CompactedError.
    """

    def __init__(self, client: EtcdClient, revision: int | None = None) -> None:
        """Raises EtcdError and below."""
        self._client = client
        self.revision = client.header().revision if revision is None else revision

    def live(self, within: KeyRange = EVERYTHING) -> Iterator[LiveKey]:
        """The live keys in key order, in pages of about 2 MiB.  Raises EtcdError and below."""
        key, range_end = within.for_etcd()
        if within.end is not None and within.end <= key:
            return  # an empty range; etcd would refuse it, or take it to mean one key or all
        limit = _FIRST_PAGE_KEYS
        more = True
        while more:
            page = self._client.range(key, range_end, revision=self.revision, limit=limit)
            for kv in page.kvs:
                yield LiveKey(
                    kv.key,
                    KeyValue(kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.value, kv.lease),
                )
            more = page.more
            if page.kvs:
                key = page.kvs[-1].key + b"\0"
                limit = _next_limit(page, limit)


def _next_limit(page: Page, limit: int) -> int:
    """As many keys as fit a page if they are like these; carefully more, as they may not be."""
    average = sum(len(kv.key) + len(kv.value) for kv in page.kvs) // len(page.kvs) + 64
    return max(1, min(_PAGE_BYTES // average, 4 * limit, _PAGE_KEYS))
