"""The form of everything rootcellar writes under `catalogue/`: small JSON documents that carry their own
hash.

A document is canonical JSON (members sorted by name, no white space) with a member `sha256` over the
canonical JSON of all other members.  `type` says which document it is, `format` which version of its
fields.  The bytes are held to be exactly the canonical ones, so any flipped byte is noticed; members that a
newer rootcellar added are kept in the hash and otherwise ignored.  The hash tells damage, not malice: who
can write here can also hash.

Every document is written once, under a key of its own, and never changed: an immutable bucket, a reader
that takes the oldest version of an object and two verifiers at once all see the same thing.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rootcellar.errors import AlreadyExistsError, RecordError
from rootcellar.stores.protocol import Create

if TYPE_CHECKING:
    from rootcellar.stores.protocol import Store

FORMAT = 1
SIZE_LIMIT = 64 << 20
"""Bytes; a record names every lease, so documents have no natural bound, but none is near this."""


class Document(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """What all documents have."""

    format: int = FORMAT


D = TypeVar("D", bound=Document)

_learning = threading.Lock()
_learnt: set[type[Document]] = set()


def seal(document: Document) -> bytes:
    """The bytes to store."""
    members = msgspec.to_builtins(document)
    return _canonical(members | {"sha256": _digest(members)})


def unseal(raw: bytes, kind: type[D], key: str) -> D:
    """Read a document of the wanted kind back; `key` is for messages.  Raises RecordError."""
    try:
        members = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{key}: is not JSON ({error})", hint=_HINT) from error
    if not isinstance(members, dict) or not isinstance(members.get("sha256"), str):
        raise RecordError(f"{key}: is not a document of the catalogue", hint=_HINT)
    rest = {name: value for name, value in members.items() if name != "sha256"}
    if members["sha256"] != _digest(rest) or raw != _canonical(members):
        raise RecordError(f"{key}: does not have the sha256 it carries", hint=_HINT)
    if isinstance(version := rest.get("format"), int) and version > FORMAT:
        raise RecordError(
            f"{key}: has format {version}, and this rootcellar knows {FORMAT}", hint="use a newer rootcellar"
        )
    _learn(kind)
    try:
        return msgspec.convert(rest, kind)
    except msgspec.ValidationError as error:
        raise RecordError(f"{key}: {error}", hint=_HINT) from error


def put_once(store: Store, key: str, document: Document) -> None:
    """Write a document that is there once and for ever.

    Writing the same bytes again is fine, so a writer that died right after the put can repeat it.  Another
    document under the key raises AlreadyExistsError.
    """
    raw = seal(document)
    try:
        store.put(key, [raw], condition=Create())
    except AlreadyExistsError:
        if b"".join(store.get(key)) != raw:
            raise


def fetch(store: Store, key: str, kind: type[D]) -> D:
    """Read one document.  Raises RecordError, NotFoundError and other StoreErrors."""
    pieces, size = [], 0
    for piece in store.get(key):
        pieces.append(piece)
        size += len(piece)
        if size > SIZE_LIMIT:
            raise RecordError(f"{key}: is longer than {SIZE_LIMIT >> 20} MiB", hint=_HINT)
    return unseal(b"".join(pieces), kind, key)


def _learn(kind: type[Document]) -> None:
    """Have msgspec look at a kind once, in one thread at a time.

    It does so at the first use and without a lock: two threads that meet there crash the process.
    """
    with _learning:
        if kind not in _learnt:
            msgspec.json.Decoder(kind)
            _learnt.add(kind)


_HINT = "it describes backups but is none; verify what it describes, then remove it"


def _canonical(members: dict[str, Any]) -> bytes:
    return msgspec.json.encode(members, order="sorted")


def _digest(members: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(members)).hexdigest()
