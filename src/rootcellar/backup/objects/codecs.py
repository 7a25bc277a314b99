"""Between an object's stored bytes and its payload: compression by suffix, and the hash at the payload's
end.

EBR compresses one stream of payload + 32 raw bytes of sha256 over it, with no frame around.  gzip is
written by isal at level 2, about ten times as fast as zlib's default at its ratio; it may be read in
several members.  `.Z` is read only (see `lzw`).  Every stage is a generator that holds at most a few MiB,
whatever lengths the input pretends, so that a bomb costs time and never memory.

Errors are FormatError, or DamagedObjectError when the object's name is given.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from isal import igzip_lib, isal_zlib

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects import lzw
from rootcellar.errors import DamagedObjectError, FormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HASH_SIZE: Final = 32
_LEVEL: Final = 2
_ISAL_ERROR: Final = cast(
    "type[Exception]", igzip_lib.IsalError
)  # its stub says instance where it is a class
_IN: Final = 256 << 10
_OUT: Final = 1 << 20
_OTHER_COPY: Final = "restore from another chain or another store, or stop before this object"


class _Decompressor(Protocol):
    """What isal and zstd give alike."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def damage(name: str | None, message: str, *, hint: str = _OTHER_COPY) -> FormatError:
    """The error for bytes that are not what was written: with the object's name where it is known."""
    return FormatError(message, hint=hint) if name is None else DamagedObjectError(name, message, hint=hint)


def decompress(chunks: Iterable[bytes], suffix: str, *, name: str | None = None) -> Iterator[bytes]:
    """The uncompressed bytes of an object with this suffix (`names.GZIP`, ...), in pieces of at most 4 MiB.

    Of an encrypted one `chunks` are what is below the encryption (`sealing`).  Truncation, a wrong checksum,
    an impossible code and anything behind the end raise, at the latest at the end.
    """
    suffix = suffix.removesuffix(names.AGE)
    if suffix == names.NONE:
        return iter(chunks)
    if suffix == names.GZIP:
        return _inflate(chunks, _igzip(igzip_lib.DECOMP_GZIP), _ISAL_ERROR, "gzip", name)
    if suffix == names.ZLIB:
        return _inflate(chunks, _igzip(igzip_lib.DECOMP_ZLIB), _ISAL_ERROR, "zlib", name)
    if suffix == names.ZSTD:
        from rootcellar.backup.objects import zstd  # noqa: PLC0415 - only where it is used

        return _inflate(chunks, zstd.decompressor, zstd.Error, "zstd", name)
    if suffix == names.LZW:
        return _named(lzw.decompress(chunks), name)
    raise damage(
        name,
        f"compression suffix {suffix!r} is not known",
        hint="gzip (.gz), zlib (.zlib), lzw (.Z), zstd (.zst) and no suffix are read",
    )


def compress(chunks: Iterable[bytes], suffix: str) -> Iterator[bytes]:
    """The bytes to store under this suffix, or to encrypt.  Raises UsageError for one that is only read."""
    suffix = suffix.removesuffix(names.AGE)
    if suffix == names.NONE:
        return iter(chunks)
    if suffix == names.GZIP:
        return _deflate(chunks, 31)
    if suffix == names.ZLIB:
        return _deflate(chunks, 15)
    if suffix == names.ZSTD:
        from rootcellar.backup.objects import zstd  # noqa: PLC0415 - only where it is used

        return zstd.compress(chunks)
    raise UsageError(f"suffix {suffix!r} is not written", hint="choose gzip, zlib, zstd or none")


def _deflate(chunks: Iterable[bytes], wbits: int) -> Iterator[bytes]:
    stream = isal_zlib.compressobj(_LEVEL, wbits=wbits)
    for chunk in chunks:
        if packed := stream.compress(chunk):
            yield packed
    yield stream.flush()


def _igzip(flag: int) -> Callable[[], _Decompressor]:
    return lambda: igzip_lib.IgzipDecompressor(flag=flag)


def _inflate(
    chunks: Iterable[bytes],
    decompressor: Callable[[], _Decompressor],
    errors: type[Exception],
    what: str,
    name: str | None,
) -> Iterator[bytes]:
    """Inflate one stream; for gzip one member behind the other, as Go's reader does, for zstd frames."""
    stream = decompressor()
    fresh = True  # nothing of this member has been read yet
    for piece in _pieces(chunks):
        rest = piece
        while rest:
            if stream.eof:
                if what == "zlib":
                    raise damage(name, f"{what} stream is followed by other bytes")
                stream, fresh = decompressor(), True
            try:
                out = stream.decompress(rest, _OUT)
                fresh = False
                while True:
                    if out:
                        yield out
                    if stream.eof or stream.needs_input:
                        break
                    out = stream.decompress(b"", _OUT)
            except errors as error:
                raise damage(name, f"{what} stream is damaged ({error})") from error
            rest = stream.unused_data if stream.eof else b""
    if not stream.eof or fresh:
        raise damage(name, f"{what} stream is cut short")


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Bounded pieces: what the decompressor has not yet consumed it copies on every call."""
    for chunk in chunks:
        for at in range(0, len(chunk), _IN):
            yield chunk[at : at + _IN]


def _named(stream: Iterator[bytes], name: str | None) -> Iterator[bytes]:
    try:
        yield from stream
    except FormatError as error:
        raise damage(name, error.message) from error


def append_hash(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass a payload through and put the sha256 of it behind."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    yield digest.digest()


class HashTail:
    """Passes a payload through without its last 32 bytes, and raises at the end when these are not its
    sha256.

    Iterate once.  Nothing that was passed on may be believed before the iteration has ended without an
    error.  Afterwards `digest` (raw bytes) and `length` (of the payload, without the tail) are those of what
    was passed.
    """

    def __init__(self, chunks: Iterable[bytes], *, name: str | None = None) -> None:
        self._chunks = chunks
        self._name = name
        self._sha256 = hashlib.sha256()
        self.length = 0

    @property
    def digest(self) -> bytes:
        return self._sha256.digest()

    def __iter__(self) -> Iterator[bytes]:
        held = b""
        for chunk in self._chunks:
            if len(chunk) < HASH_SIZE:
                chunk = held + chunk  # noqa: PLW2901  small chunks are joined to what is held
                held = b""
            ready, held = (held, chunk[:-HASH_SIZE]), chunk[-HASH_SIZE:]
            for part in ready:
                if part:
                    self._sha256.update(part)
                    self.length += len(part)
                    yield part
        if len(held) < HASH_SIZE:
            raise damage(self._name, f"payload of {len(held)} bytes is too short to end with a sha256")
        if held != self.digest:
            raise damage(self._name, f"sha256 at the end is not that of the {self.length} bytes before it")


def hash_tail(chunks: Iterable[bytes], *, name: str | None = None) -> HashTail:
    """See HashTail."""
    return HashTail(chunks, name=name)
