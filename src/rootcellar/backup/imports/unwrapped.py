"""A database out of its wrapping, as a plain file to read.

A form is told by its bytes.  Nothing is extracted by a name that an archive states, so no name can lead out
of the scratch directory; such names are refused all the same, as nobody writes them in good faith.  How much
is unpacked is bounded by what the database's own first pages say.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import struct
import tempfile
import zipfile
import zlib
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.records import Notice
from rootcellar.backup.imports.wrappings import GZIP_MAGIC, ZIP_MAGIC, Form, Wrapping, find
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.pipeline import ahead, download
from rootcellar.bolt.file import BoltFile, find_meta
from rootcellar.errors import BoltError, DamagedObjectError, FormatError, TargetError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from rootcellar.stores.protocol import Store

LIMIT = 64 << 30
"""Bytes that are unpacked at most: etcd itself warns above a quota of 8 GiB."""

_CHUNK = 1 << 20
_HEAD = 128 << 10  # both meta pages, at any page size that a machine of today has
_SURPLUS = 64 << 20  # etcd's files grow in steps of 16 MiB, so a copied one may end in unused pages
_ZIP_DIRECTORY = 1 << 20
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)
_EMPTY_ZIP_MAGIC = b"PK\x05\x06"
_FOREIGN = (
    (b"age-encryption.org/", "is encrypted with age", "decrypt it first: age --decrypt -i KEY FILE"),
    (b"-----BEGIN AGE ENCRYPTED", "is encrypted with age", "decrypt it first: age --decrypt -i KEY FILE"),
    (b"-----BEGIN PGP MESSAGE", "is encrypted with PGP", "decrypt it first: gpg --decrypt FILE"),
    (b"Salted__", "is encrypted with openssl", "decrypt it first with openssl enc -d"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", "unpack it first: zstd -d FILE"),
    (b"\xfd7zXZ\0", "is compressed with xz", "unpack it first: xz -d FILE"),
    (b"BZh", "is compressed with bzip2", "unpack it first: bzip2 -d FILE"),
    (b"\x04\x22\x4d\x18", "is compressed with lz4", "unpack it first: lz4 -d FILE"),
    (b"SQLite format 3\0", "is a SQLite database", "k3s keeps its data there when it runs without etcd"),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One object of a store that is a backup by itself, whatever its name: a snapshot somebody uploaded."""

    store: Store
    key: str


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A database to read, never to write.  `size` is in bytes, without hash and unused pages behind it.

    `is_hashed`: a SHA-256 followed it and is right.  `metas` are the two meta pages to stream in place of the
    file's, if they have to be others: see `chunks`.
    """

    path: Path
    size: int
    wrapping: Wrapping
    is_hashed: bool
    metas: bytes = b""
    notices: tuple[Notice, ...] = ()

    def chunks(self) -> Iterator[bytes]:
        """The database as etcd would stream it, `size` bytes.  Raises OSError, DamagedObjectError.

        A snapshot is passed on byte for byte.  In a copied file the meta pages describe two transactions, and
        the pages of the older one may be overwritten: like etcd's own stream, this one has the newer in both.
        """
        left = self.size - len(self.metas)
        if self.metas:
            yield self.metas
        with self.path.open("rb") as file:
            file.seek(len(self.metas))
            while left:
                chunk = file.read(min(_CHUNK, left))
                if not chunk:
                    raise DamagedObjectError(self.path.name, "became shorter while it was read")
                left -= len(chunk)
                yield chunk


@contextmanager
def unwrapped(
    source: Path | Stored, *, scratch: Path | None = None, limit: int = LIMIT
) -> Generator[Unwrapped]:
    """The database in `source` while the context lasts; what has to be unpacked lies below `scratch`.

    An etcd that is started on the file meanwhile waits, as it does for bbolt's own readers.  Raises
    UsageError (nothing there, or several), FormatError (a form that is not read, more than `limit` bytes),
    DamagedObjectError, TargetError (etcd runs on it, no space).
    """
    with ExitStack() as stack:
        try:
            if isinstance(source, Stored):
                source = _fetched(source, Path(stack.enter_context(_directory(scratch))))
            wrapping = find(source)
            path = wrapping.path
            stack.enter_context(unused_by_etcd(path))
            if (chunks := _unpacked(path)) is not None:
                path = Path(stack.enter_context(_directory(scratch)), "db")
                _write(path, _bounded(chunks, wrapping.path.name, limit))
            found = _measured(path, wrapping)
        except OSError as error:
            raise scratch_error(error) from error
        yield found


def _directory(scratch: Path | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rootcellar-", dir=scratch)


def _fetched(source: Stored, directory: Path) -> Path:
    """An object as a file under its own last name, which says what it is."""
    info = source.store.stat(source.key)
    path = directory / source.key.rpartition("/")[2]
    with path.open("xb") as file:
        for chunk in download(source.store, source.key, info.size):
            file.write(chunk)
    stamp = info.modified.timestamp()
    os.utime(path, (stamp, stamp))
    return path


@contextmanager
def unused_by_etcd(path: Path) -> Generator[None]:
    """Share the lock that etcd holds on its database, as bbolt's own readers do.  Raises TargetError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TargetError(
                f"an etcd is running on {path}", hint="take a snapshot of it, or stop it first"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF):
                raise
        yield
    finally:
        os.close(handle)


def _unpacked(path: Path) -> Iterator[bytes] | None:
    """What is in the wrapping, or None when there is none.  Raises FormatError for other forms."""
    with path.open("rb") as file:
        head = file.read(512)
    _refuse_foreign(path.name, head)
    if head.startswith(GZIP_MAGIC):
        return codecs.decompress(_read(path), names.GZIP, name=path.name)
    if head.startswith((ZIP_MAGIC, _EMPTY_ZIP_MAGIC)):
        return _unzipped(path)
    if path.suffix in (names.ZLIB, names.LZW):  # not told by their bytes
        return codecs.decompress(_read(path), path.suffix, name=path.name)
    return None


def _refuse_foreign(name: str, head: bytes) -> None:
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic):
            raise FormatError(f"{name} {what}", hint=hint)
    if head[257:262] == b"ustar":
        raise FormatError(f"{name} is a tar archive", hint="unpack it, and give the snapshot file in it")


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


class _Modest(io.FileIO):
    """A file that no length in it can make us read as a whole.

    zipfile reads an archive's directory at once, as long as that says it is.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = max(os.fstat(self.fileno()).st_size - self.tell(), 0)
        if size > _ZIP_DIRECTORY:
            raise zipfile.BadZipFile("its directory is too large")
        return super().read(size) or b""


def _unzipped(path: Path) -> Iterator[bytes]:
    """The one file in a zip archive.  Raises FormatError for anything but one plain file."""
    try:
        with (
            _Modest(path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(_only_entry(path.name, archive)) as entry,
        ):
            while chunk := entry.read(_CHUNK):
                yield chunk
    except (*_ZIP_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a seek to a negative offset
            raise
        raise DamagedObjectError(
            path.name,
            f"the zip archive cannot be read ({error})",
            hint="a full disk leaves such archives behind: take another snapshot",
        ) from error


def _only_entry(name: str, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) != 1:
        count = len(entries) or "no"
        raise FormatError(
            f"{name} holds {count} files, where a k3s snapshot is one",
            hint="unpack it, and give the snapshot file in it",
        )
    (entry,) = entries
    segments = re.split(r"[/\\]", entry.filename)
    if ".." in segments or segments[0] in ("", "~") or ":" in segments[0]:
        raise FormatError(
            f"{name} holds a file whose name leads elsewhere: {entry.filename[:80]!r}",
            hint="this is not from k3s; look where it comes from before you trust it",
        )
    if entry.flag_bits & 0x1:
        raise FormatError(f"{name} is encrypted", hint="unpack it with its password first")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FormatError(f"{name} is compressed in a way k3s never does", hint="unpack it first")
    return entry


def _bounded(chunks: Iterable[bytes], name: str, limit: int) -> Iterator[bytes]:
    """Pass on what can belong to the database that begins here.  Raises FormatError, DamagedObjectError."""
    head, size, allowed = b"", 0, limit
    for chunk in chunks:
        if allowed == limit and len(head) < _HEAD:
            head += chunk[: _HEAD - len(head)]
            if len(head) == _HEAD:
                allowed = min(limit, _database_size(head, name) + _SURPLUS)
        size += len(chunk)
        if size > allowed:
            raise FormatError(
                f"{name} unpacks to more than the {allowed} bytes that its database can have",
                hint="this is not from etcd; look where it comes from before you unpack it",
            )
        yield chunk
    if len(head) < _HEAD:
        _database_size(head, name)


def _database_size(head: bytes, name: str) -> int:
    """Bytes up to the high-water mark, as the first pages say."""
    _refuse_foreign(name, head)
    if head.startswith((GZIP_MAGIC, ZIP_MAGIC)):
        raise FormatError(f"{name} is packed more than once", hint="unpack it once, and give what comes out")
    try:
        meta = find_meta(head)
    except BoltError as error:
        raise FormatError(
            f"{name} is not an etcd database ({error.message})",
            hint="plain, gzip and zip snapshots, kops and OpenShift backups and data directories are read",
        ) from error
    return meta.high_water * meta.page_size


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with path.open("xb", buffering=0) as file, closing(ahead(chunks)) as ready:
        for chunk in ready:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]


def _measured(path: Path, wrapping: Wrapping) -> Unwrapped:
    """How much of the file is the database, and whether a hash behind it is right."""
    name = wrapping.path.name
    total = path.stat().st_size
    with path.open("rb") as file:
        _database_size(file.read(_HEAD), name)
    try:
        with BoltFile(path) as database:
            size, meta = database.size, database.meta
    except BoltError as error:
        raise DamagedObjectError(name, error.message, hint=error.hint) from error
    is_hashed = total % 512 == codecs.HASH_SIZE  # as etcd's own tools tell it
    if is_hashed:
        _prove_hash(path, total - codecs.HASH_SIZE, name)
    metas = b""
    if not is_hashed or total - codecs.HASH_SIZE != size:
        newer, older = meta.txid % 2, 1 - meta.txid % 2
        pages = {newer: meta.page(newer), older: replace(meta, txid=max(meta.txid - 1, 0)).page(older)}
        metas = pages[0] + pages[1]
    notices = wrapping.notices
    if not is_hashed and wrapping.form is not Form.DATA_DIR:
        notices = (*notices, Notice("no-hash", "no hash: integrity could not be checked"))
    return Unwrapped(path, size, wrapping, is_hashed, metas, notices)


def _prove_hash(path: Path, size: int, name: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = size
        while left and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        if file.read(codecs.HASH_SIZE) != digest.digest():
            raise DamagedObjectError(
                name,
                f"the sha256 at its end is not that of the {size} bytes before it",
                hint="the copy or the download was not complete, or it was changed: take it again",
            )


def scratch_error(error: OSError) -> TargetError:
    """What to tell when a scratch directory cannot be made or filled, or a file cannot be read."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TargetError("the scratch directory is full", hint="name a larger one (TMPDIR)")
    where = error.filename or "the scratch directory"
    return TargetError(f"{where}: {error.strerror or error}", hint="check that it is there and permitted")
