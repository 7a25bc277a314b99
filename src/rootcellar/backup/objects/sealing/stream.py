"""The body of an age file: chunks of 64 KiB, each under ChaCha20-Poly1305, numbered, the last one marked.

A nonce is the chunk's number (11 bytes) and whether it is the last (1 byte); the key is of this file alone.
So a chunk that is changed, moved, doubled, left out or another file's does not open, and neither does a file
that ends early.  Every chunk that was passed on is authentic; that nothing is missing is known at the end.
Memory: a few MiB, at any length.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rootcellar.backup.objects.codecs import damage
from rootcellar.backup.objects.sealing.header import hkdf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

CHUNK: Final = 64 << 10
TAG: Final = 16
NONCE: Final = 16
_STORED: Final = CHUNK + TAG
_BATCH: Final = 16
_PIECE: Final = 256 << 10
_LAST: Final = b"\1"
_MORE: Final = b"\0"


def encrypt(chunks: Iterable[bytes], file_key: bytes) -> Iterator[bytes]:
    """The body for these bytes, in pieces of about 1 MiB."""
    nonce = os.urandom(NONCE)
    yield nonce
    cipher = _cipher(file_key, nonce)
    number = 0
    for group, is_last in _grouped(pieces(chunks), CHUNK):
        sealed = []
        for at in range(0, max(len(group), 1), CHUNK):
            part = group[at : at + CHUNK]
            mark = _LAST if is_last and at + CHUNK >= len(group) else _MORE
            sealed.append(cipher.encrypt(number.to_bytes(11, "big") + mark, part, None))
            number += 1
        yield b"".join(sealed)


def decrypt(chunks: Iterable[bytes], file_key: bytes, *, name: str | None = None) -> Iterator[bytes]:
    """What was encrypted, in pieces of about 1 MiB.

    Raises DamagedObjectError, or FormatError without a `name`.
    """
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only where something is encrypted

    source = pieces(chunks)
    head = b""
    for piece in source:
        head += piece
        if len(head) >= NONCE:
            break
    if len(head) < NONCE:
        raise damage(name, "the encrypted stream is cut short")
    cipher = _cipher(file_key, head[:NONCE])
    number = 0
    for group, is_last in _grouped(_chained(head[NONCE:], source), _STORED):
        opened = []
        for at in range(0, max(len(group), 1), _STORED):
            part = group[at : at + _STORED]
            mark = _LAST if is_last and at + _STORED >= len(group) else _MORE
            try:
                opened.append(cipher.decrypt(number.to_bytes(11, "big") + mark, part, None))
            except (InvalidTag, ValueError) as error:
                raise damage(
                    name, f"the encrypted stream is damaged or cut short at chunk {number}"
                ) from error
            if not opened[-1] and number:
                raise damage(name, "the encrypted stream ends with an empty chunk")
            number += 1
        if plain := b"".join(opened):
            yield plain


def pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of at most 256 KiB: what is held and copied on the way is that small."""
    for chunk in chunks:
        for at in range(0, len(chunk), _PIECE):
            yield chunk[at : at + _PIECE]


def _cipher(file_key: bytes, nonce: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415 - see above

    return ChaCha20Poly1305(hkdf(file_key, nonce, b"payload"))


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _grouped(chunks: Iterable[bytes], size: int) -> Iterator[tuple[memoryview, bool]]:
    """The bytes in multiples of `size`, up to _BATCH of them at once, and whether these are the last.

    The last piece may be shorter, and empty only when there is nothing at all.
    """
    whole = size * _BATCH
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > whole:  # not at: these might be the last
            yield memoryview(bytes(held[:whole])), False
            del held[:whole]
    yield memoryview(bytes(held)), True
