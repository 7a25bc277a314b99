"""What was read of a catalogue once, for who reads it again and again.

Documents are written once and never change, so one that was read needs no second look: a repeated reading
costs its listing, and what is new.  Only the piles are kept, those with a document for each snapshot; what is
few, and what says who writes, is always read from the store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import keys
from rootcellar.stores.decorator import StoreDecorator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.stores.protocol import Store

LIMIT = 32 << 20
"""Bytes that one memory keeps: tens of thousands of records."""
PILES = (keys.RECORDS, keys.PROOFS, keys.TOMBSTONES)
_LARGE = 1 << 18


class Memory:
    """Of one store.  Safe from several threads."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._documents: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def recall(self, key: str) -> bytes | None:
        with self._lock:
            found = self._documents.get(key)
            if found is not None:
                self._documents.move_to_end(key)
            return found

    def keep(self, key: str, raw: bytes) -> None:
        """What nobody has asked for the longest makes room."""
        with self._lock:
            self._size += len(raw) - len(self._documents.pop(key, b""))
            self._documents[key] = raw
            while self._size > self._limit:
                self._size -= len(self._documents.popitem(last=False)[1])


class RememberingStore(StoreDecorator):
    """A store whose documents are read once."""

    def __init__(self, inner: Store, memory: Memory) -> None:
        super().__init__(inner)
        self._memory = memory

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        is_whole = not start and end is None and version is None and etag is None
        if not (is_whole and key.startswith(PILES)):
            yield from self.inner.get(key, start=start, end=end, version=version, etag=etag)
            return
        found = self._memory.recall(key)
        if found is not None:
            yield found
            return
        raw = bytearray()
        for chunk in self.inner.get(key):
            if len(raw) <= _LARGE:
                raw += chunk
            yield chunk
        if len(raw) <= _LARGE:
            self._memory.keep(key, bytes(raw))
