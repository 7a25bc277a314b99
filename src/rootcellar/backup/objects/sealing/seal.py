"""Sealed snapshots: their bytes encrypted under their name, and opened for whoever holds a key.

A file key is drawn for each object and wrapped for each recipient in its header.  A recipient that comes
later gets a grant: a document of the catalogue with the same file key in a header of its own, so no object is
written twice.  What is opened must carry the name it is read under: an old backup that somebody put in the
place of a newer one is told.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.records import Grant
from rootcellar.backup.objects.codecs import damage
from rootcellar.backup.objects.sealing import header as headers
from rootcellar.backup.objects.sealing import stream
from rootcellar.errors import DamagedObjectError, FormatError, NoKeyError, NotFoundError, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.objects.sealing.header import Header
    from rootcellar.backup.objects.sealing.keyring import Keyring, Recipient
    from rootcellar.stores.protocol import Store

_HEAD: Final = 4096
_READERS: Final = 16


class Unlocked:
    """File keys by object, for those objects that are encrypted.  Shows how many, never which."""

    def __init__(self, file_keys: Mapping[str, bytes] | None = None) -> None:
        self._file_keys = dict(file_keys or {})

    def file_key(self, key: str) -> bytes:
        """Raises NoKeyError."""
        try:
            return self._file_keys[key]
        except KeyError:
            raise NoKeyError(f"{key} is encrypted", hint=_NAME_ONE) from None

    def __repr__(self) -> str:
        return f"<{len(self._file_keys)} unlocked>"


NOTHING: Final = Unlocked()
_NAME_ONE: Final = "name the file that holds an identity with --identity, or `identities` of the store"


def bound_name(name: SnapshotName) -> str:
    """What an object is bound to: its name, but for the promise that nothing follows, which a copy drops."""
    return keys.stem(name).removesuffix(".final")


def encrypt(chunks: Iterable[bytes], name: SnapshotName, recipients: Sequence[Recipient]) -> Iterator[bytes]:
    """The bytes to store under this name, from compressed ones."""
    file_key = headers.new_file_key()
    yield headers.write(file_key, recipients, bound_name(name))
    yield from stream.encrypt(chunks, file_key)


def decrypt(chunks: Iterable[bytes], key: str, file_key: bytes) -> Iterator[bytes]:
    """The compressed bytes of the object that lies under `key`.  Raises DamagedObjectError."""
    source = stream.pieces(chunks)
    held = b""
    for piece in source:
        held += piece
        try:
            found = headers.split(held)
            if found is not None:
                _verify(found[0], _name(key), file_key)
        except FormatError as error:
            raise damage(key, error.message) from error
        if found is not None:
            yield from stream.decrypt(_chained(found[1], source), file_key, name=key)
            return
    raise damage(key, "the header of the encryption is cut short")


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def unlock(store: Store, wanted: Iterable[str], keyring: Keyring) -> Unlocked:
    """Open the headers of those objects of `wanted` (keys) that are encrypted, several at a time.

    What this costs is one small read for each, so it comes before everything that costs more.  Raises
    NoKeyError for the first that no identity opens, DamagedObjectError, StoreErrors.
    """
    encrypted = [key for key in wanted if (name := names.read(key)) is not None and name.is_encrypted]
    if not encrypted:
        return NOTHING
    with ThreadPoolExecutor(_READERS, thread_name_prefix="unlock") as pool:
        found = pool.map(lambda key: _file_key(store, key, keyring), encrypted)
        return Unlocked(dict(zip(encrypted, found, strict=True)))


def _file_key(store: Store, key: str, keyring: Keyring) -> bytes:
    name = _name(key)
    try:
        own = read_header(store, key)
        for candidate in _headers(store, name, own, keyring):
            for identity in keyring.identities:
                file_key = headers.unwrap(candidate, identity)
                if file_key is not None:
                    _verify(candidate, name, file_key)
                    _verify(own, name, file_key)
                    return file_key
    except FormatError as error:
        if isinstance(error, DamagedObjectError):
            raise
        raise damage(key, error.message) from error
    if set(keyring.key_ids) & set(own.key_ids):
        raise damage(key, "the header of the encryption is not what was written")
    raise _no_key(store, name, own, keyring)


def _headers(store: Store, name: SnapshotName, own: Header, keyring: Keyring) -> Iterator[Header]:
    """The object's own header, then those that were granted to a key at hand."""
    yield own
    for key_id in keyring.key_ids:
        with suppress(NotFoundError, RecordError, FormatError):
            yield headers.parse(documents.fetch(store, keys.grant(name, key_id), Grant).header.encode())


def _no_key(store: Store, name: SnapshotName, own: Header, keyring: Keyring) -> NoKeyError:
    there = keys.grants(name)
    granted = (info.key.removeprefix(there).removesuffix(".json") for info in store.list(there))
    opening = dict.fromkeys([*own.key_ids, *granted])
    have = f"you have {', '.join(keyring.key_ids)}" if keyring.identities else _NAME_ONE
    whose = "none of your keys opens" if keyring.identities else "no key at hand opens"
    return NoKeyError(
        f"{whose} {name.key}: it needs one of {', '.join(opening) or 'unknown keys'}", hint=have
    )


def read_header(store: Store, key: str) -> Header:
    """The header of an encrypted object.  Raises DamagedObjectError, StoreErrors."""
    head = b""
    try:
        for end in (_HEAD, headers.LIMIT + 1):
            head += b"".join(store.get(key, start=len(head), end=end))
            if (found := headers.split(head)) is not None:
                return found[0]
    except FormatError as error:
        raise damage(key, error.message) from error
    raise damage(key, "the header of the encryption is cut short")


def _verify(found: Header, name: SnapshotName, file_key: bytes) -> None:
    """Raises FormatError for a header that is not this object's."""
    found.verify(file_key)
    if found.stem != bound_name(name):
        raise FormatError(f"it was encrypted as {found.stem}, and lies here under another name")


def _name(key: str) -> SnapshotName:
    name = names.read(key)
    if name is None:
        raise FormatError(f"{key} is no snapshot")
    return name
