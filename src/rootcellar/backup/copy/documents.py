"""What a copy takes over of the catalogue, document by document; `copy.plan` says which and why.

Documents go as they lie there, byte for byte, so that what a newer rootcellar added stays.  Where an object
loses its `.final`, what names it is sealed anew with the new name.  One that is damaged is left where it
is, and told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.documents import Document
from rootcellar.backup.catalogue.ownership import ForkIntent, Marker, Timeline
from rootcellar.backup.catalogue.records import Grant, Hold, Link, Proof, Record, Release
from rootcellar.errors import AlreadyExistsError, IdentityError, NotFoundError, RecordError
from rootcellar.stores.protocol import Create

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.stores.protocol import Store

D = TypeVar("D", bound=Document)


class Renamed:
    """Which snapshots have another name in the destination: those that lose their `.final`."""

    def __init__(self, pairs: Mapping[str, tuple[SnapshotName, SnapshotName]]) -> None:
        """`pairs`: the source's name and the destination's, by the source's key."""
        self._keys = {key: there.key for key, (_, there) in pairs.items()}
        self._stems = {keys.stem(here): keys.stem(there) for here, there in pairs.values()}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def key(self, key: str) -> str:
        """A snapshot's key in the destination."""
        return self._keys.get(key, key)

    def document_key(self, key: str) -> str:
        """A document's key in the destination, where it is filed under a snapshot."""
        head, _, rest = key.partition("/")
        kind, _, rest = rest.partition("/")
        stem, slash, tail = rest.partition("/")
        bare = stem.removesuffix(".json")
        return f"{head}/{kind}/{self._stems.get(bare, bare)}{stem[len(bare) :]}{slash}{tail}"

    def document(self, document: D) -> D:
        """The document with new names in it; the same one where nothing in it changes."""
        if isinstance(document, Record):
            previous = self._link(document.previous) if document.previous else None
            return msgspec.structs.replace(document, key=self.key(document.key), previous=previous)
        if isinstance(document, Proof):
            return msgspec.structs.replace(document, objects=tuple(map(self._link, document.objects)))
        if isinstance(document, Hold | Grant):
            return msgspec.structs.replace(document, key=self.key(document.key))
        return document

    def _link(self, link: Link) -> Link:
        return Link(self.key(link.key), link.sha256)


class DocumentCopy:
    """Takes documents from one store to another.  `damaged` has those that could not be believed, with
    why.
    """

    def __init__(self, source: Store, destination: Store, renamed: Renamed) -> None:
        self._source = source
        self._destination = destination
        self._renamed = renamed
        self.copied = 0
        self.damaged: dict[str, str] = {}

    def ground(self) -> int:
        """Bind the destination, and give it the history's timelines; how many documents that were.

        The marker comes first: from then on nobody else takes the prefix.  Killed behind it: bound and
        empty, which the next copy goes on with.  Raises IdentityError when another took it in the same
        moment.
        """
        before = self.copied
        self._all(keys.MARKERS, Marker)
        self._all(keys.FORKS, ForkIntent)
        self._all(keys.TIMELINES, Timeline)
        return self.copied - before

    def record(self, here: SnapshotName, there: SnapshotName) -> None:
        """The record of a snapshot whose object is in the destination."""
        self._one(keys.record(here), keys.record(there), Record)

    def about(self, present: Mapping[str, str]) -> None:
        """Proofs, holds, releases and granted keys of the objects in `present`: the sha256, "" if unknown,
        by the source's key.
        """
        self._all(keys.PROOFS, Proof, lambda proof: _is_of(proof, present))
        released = {info.key for info in self._source.list(keys.RELEASES)}
        self._all(
            keys.HOLDS, Hold, lambda hold: hold.key in present and keys.release(hold.nonce) not in released
        )
        held = {info.key for info in self._destination.list(keys.HOLDS)}
        self._all(keys.RELEASES, Release, lambda release: keys.hold(release.hold) in held)
        self._all(keys.GRANTS, Grant, lambda grant: grant.key in present)

    def _all(self, prefix: str, kind: type[D], is_wanted: Callable[[D], bool] = lambda _: True) -> None:
        there = {info.key for info in self._destination.list(prefix)}
        for info in self._source.list(prefix):
            target = self._renamed.document_key(info.key)
            if target not in there:
                self._one(info.key, target, kind, is_wanted)

    def _one(
        self, key: str, target: str, kind: type[D], is_wanted: Callable[[D], bool] = lambda _: True
    ) -> None:
        try:
            raw = b"".join(self._source.get(key))
            document = documents.unseal(raw, kind, key)
            if not is_wanted(document):
                return
            if (renamed := self._renamed.document(document)) != document:
                raw = documents.seal(renamed)
        except NotFoundError:
            return  # pruned since it was listed
        except RecordError as error:
            self.damaged[key] = error.message
            return
        try:
            self._destination.put(target, [raw], condition=Create())
        except AlreadyExistsError as error:
            if kind in (Marker, Timeline) and b"".join(self._destination.get(target)) != raw:
                raise IdentityError(
                    f"{self._destination.url} was bound to another history in the same moment",
                    hint="give every cluster a prefix of its own",
                ) from error
            return  # a copy beside this one, or this very put, whose answer was lost
        self.copied += 1


def _is_of(proof: Proof, present: Mapping[str, str]) -> bool:
    """Whether all that a proof speaks of is in the destination, with those bytes."""
    return all(link.key in present and present[link.key] in ("", link.sha256) for link in proof.objects)
