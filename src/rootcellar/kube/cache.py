"""The objects of one kind as the API server last told them: bytes, decoded when somebody asks.

Of 10,000 objects a reconciler looks at one at a time.  Their bytes are a quarter of what they are as dicts,
and an event costs the decoding of a few fields (docs/proposals/04).
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from rootcellar.errors import KubeError
from rootcellar.kube.kinds import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from rootcellar.kube.kinds import Kind

T = TypeVar("T")


class Header(Struct, frozen=True, gc=False):
    """What is always known of an object.  `generation` is 0 where the API server counts none; `deleting` is
    true once it is to go and finalizers hold it.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    deleting: bool


class Change(NamedTuple):
    """What has become of an object: `old` is None where it was not there, `new` where it is no more.

    One that was deleted and made anew is two changes, even if nobody was looking in between.
    """

    key: Key
    old: bytes | None
    new: bytes | None


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class _Object(Struct, frozen=True):
    metadata: _Meta


class _Entry(Struct, frozen=True):
    header: Header
    raw: bytes
    marks: tuple[tuple[str, str], ...] = ()
    """Under which values of which indexes it is found."""


_HEADERS = msgspec.json.Decoder(_Object)


def header(raw: bytes) -> Header:
    """Of an object.  Raises KubeError for what is none."""
    meta = _meta(raw)
    if not meta.name:
        raise KubeError("what came is no object: it has no name")
    key = Key(sys.intern(meta.namespace), meta.name)
    is_deleting = meta.deletion_timestamp is not None
    return Header(key, meta.uid, meta.resource_version, meta.generation, is_deleting)


def version(raw: bytes) -> str:
    """The resourceVersion of an object or a bookmark.  Raises KubeError for what is neither."""
    return _meta(raw).resource_version


def _meta(raw: bytes) -> _Meta:
    try:
        return _HEADERS.decode(raw).metadata
    except (msgspec.DecodeError, ValueError) as error:
        raise KubeError(
            f"what came is no object: {error}", hint="is there a proxy before the API server?"
        ) from error


class Cache(Generic[T]):
    """For all threads to read; its reflector writes.

    An index is a function from an object to the values under which `by` finds it.
    """

    def __init__(
        self, kind: Kind[T], indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None
    ) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind.type)
        self._functions = dict(indexes or {})
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}
        self._found: dict[tuple[str, str], set[Key]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> T | None:
        """The object, decoded anew.  Raises KubeError where it has another shape than its kind."""
        raw = self.raw(key)
        return None if raw is None else self._decoded(raw, key)

    def raw(self, key: Key) -> bytes | None:
        """The object as it came."""
        entry = self._entries.get(key)
        return None if entry is None else entry.raw

    def header(self, key: Key) -> Header | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.header

    def keys(self) -> tuple[Key, ...]:
        with self._lock:
            return tuple(self._entries)

    def by(self, index: str, value: str) -> tuple[Key, ...]:
        """The keys of all objects that the index finds under this value, in order.

        Raises LookupError where there is no such index.
        """
        if index not in self._functions:
            raise LookupError(f"{self._kind.plural} have no index {index!r}")
        with self._lock:
            return tuple(sorted(self._found.get((index, value), ())))

    # the reflector's

    def put(self, raw: bytes) -> tuple[Header, tuple[Change, ...]]:
        """Take what the API server sent.  No change where it is the version that is here already.

        Raises KubeError for what is no object.
        """
        new = header(raw)
        old = self._entries.get(new.key)
        if old is None:
            changes: tuple[Change, ...] = (Change(new.key, None, raw),)
        elif old.header.uid != new.uid:
            changes = (Change(new.key, old.raw, None), Change(new.key, None, raw))
        elif old.header.resource_version != new.resource_version:
            changes = (Change(new.key, old.raw, raw),)
        else:
            return old.header, ()
        entry = _Entry(new, raw, self._marks(raw, new.key))
        with self._lock:
            self._unmark(old)
            self._entries[new.key] = entry
            for mark in entry.marks:
                self._found.setdefault(mark, set()).add(new.key)
        return new, changes

    def drop(self, key: Key) -> tuple[Change, ...]:
        """It is no more."""
        with self._lock:
            old = self._entries.pop(key, None)
            self._unmark(old)
        return () if old is None else (Change(key, old.raw, None),)

    def keep_only(self, keys: Collection[Key]) -> tuple[Change, ...]:
        """All others are no more: they were not in a list of all."""
        return tuple(change for key in self.keys() if key not in keys for change in self.drop(key))

    def _unmark(self, entry: _Entry | None) -> None:
        if entry is None:
            return
        for mark in entry.marks:
            found = self._found[mark]
            found.discard(entry.header.key)
            if not found:
                del self._found[mark]

    def _marks(self, raw: bytes, key: Key) -> tuple[tuple[str, str], ...]:
        """One that has not the shape of its kind is found by its key only, and whoever asks for it is told:
        it must not stop the others.
        """
        if not self._functions:
            return ()
        try:
            value = self._decoded(raw, key)
        except KubeError:
            return ()
        return tuple({(name, each) for name, values in self._functions.items() for each in values(value)})

    def _decoded(self, raw: bytes, key: Key) -> T:
        try:
            return self._decoder.decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            raise KubeError(
                f"{self._kind.plural} {key}: not the shape that is expected: {error}",
                hint="was it written under another version of its definition (CRD)?",
            ) from error
