"""What S3 and its like will call an object, worked out while its bytes pass.

Their etag is the MD5 of an object that was put at once, and of one that came in parts the MD5 of the parts'
MD5s, with their number behind a dash.  With it a proof sees what lies in the store without reading it again.
It holds for parts of the default size; encryption by the store's own keys, and other stores, have etags of
another kind: equal is a proof, different is none.
"""

from __future__ import annotations

import hashlib
import re

from rootcellar.stores.s3.options import PART_SIZE
from rootcellar.stores.s3.parts import part_size

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


def etag_of(chunks: list[bytes]) -> str:
    """Of bytes that are there."""
    etag = Etag()
    for chunk in chunks:
        etag.add(chunk)
    return etag.value


def is_hash(etag: str | None) -> bool:
    """Whether a store's etag has the form of one that can be held against ours."""
    return etag is not None and _FORM.match(etag) is not None


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
