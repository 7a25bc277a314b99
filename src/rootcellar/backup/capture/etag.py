"""What S3 and its like will call an object, worked out while its bytes pass.

Their etag is the MD5 of an object that was put at once, and of one that came in parts the MD5 of the parts'
MD5s, with their number behind a dash.  With it a proof sees what lies in the store without reading it again.
It holds for parts of the default size; encryption by the store's own keys, and other stores, have etags of
another kind: equal is a proof, different is none.  MD5 takes twice as long as SHA-256, so that nothing is
worked out for stores which have none.
"""

from __future__ import annotations

import hashlib
import re

from rootcellar.stores.s3.options import PART_SIZE
from rootcellar.stores.s3.parts import part_size

_STORES = ("s3:", "oss:", "swift:")
_FORM = re.compile(r"[0-9a-f]{32}(-\d+)?\Z")


class Etag:
    """Add the stored bytes in order; `value` is for all that were added."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._part = _md5()
        self._room = PART_SIZE

    def add(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while len(rest) > self._room:  # more follows: this part is whole
            self._part.update(rest[: self._room])
            rest = rest[self._room :]
            self._parts.append(self._part.digest())
            self._part = _md5()
            self._room = part_size(len(self._parts) + 1, PART_SIZE)
        self._part.update(rest)
        self._room -= len(rest)

    @property
    def value(self) -> str:
        if not self._parts:
            return self._part.hexdigest()
        digests = [*self._parts, self._part.digest()]
        return f"{_md5(b''.join(digests)).hexdigest()}-{len(digests)}"


class NoEtag(Etag):
    """For stores whose etags are no hashes."""

    def add(self, chunk: bytes) -> None:
        pass

    @property
    def value(self) -> str:
        return ""


def etag_for(url: str) -> Etag:
    """What is to be worked out for a store."""
    return Etag() if url.startswith(_STORES) else NoEtag()


def is_comparable(ours: str, theirs: str | None) -> bool:
    """Whether both are hashes of as many parts; then different ones are a reason to read what is there."""
    forms = [_FORM.match(each or "") for each in (ours, theirs)]
    return forms[0] is not None and forms[1] is not None and forms[0][1] == forms[1][1]


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
