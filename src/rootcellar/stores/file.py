"""A directory as an object store.

For a laptop, a VM with a mounted share, and tests.  It promises what an object store promises: an object is
there whole or not at all, also after a power cut, and create-only puts have one winner, also between
machines that share the directory.  It has no versions and no retention: what can delete a file can delete a
backup.

The order of a put, and what a crash leaves behind:

1. a temporary file `.put-...` is made beside the final name and locked: a crash leaves a hidden file, which
   `list` never shows; later puts sweep it once it is `LEFTOVER_AGE` old and nobody holds its lock
2. the bytes are written, then fsync of the file: as before
3. rename over the final name, or, to create only, link to it: a crash before leaves the old state, a crash
   after the new one (a link may leave the temporary name too: as 1)
4. fsync of every directory on the way: a power cut before this may lose the object, but the put has not
   returned
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from rootcellar.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
    UsageError,
)
from rootcellar.stores import keys
from rootcellar.stores.directories import Chain, hidden, refuse_symlink, sync, translated, walk
from rootcellar.stores.protocol import Capabilities, Create, ObjectInfo, PutCondition, ReplaceIf, Retention
from rootcellar.stores.steps import replaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LEFTOVER_AGE = timedelta(days=1)
"""A temporary file nobody has written to for so long, and nobody holds locked, is of a dead writer."""

_CHUNK = 1 << 20
_TRIES = 100
_TEMPORARY = b".put-"
_LOCK = b".lock"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}


class FileStore:
    """The store in the directory `root`, which the first put makes if need be (modes 0700 and 0600)."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()
        self._swept: set[str] = set()
        self._exclusive = True

    @property
    def url(self) -> str:
        return f"file://{quote(os.fsencode(self._root))}"

    def probe(self) -> Capabilities:
        """Tries both conditions: a file system may lack hard links, locks, or both."""
        key = f"catalogue/probe/{secrets.token_hex(8)}"
        self.put(key, [b"probe"], condition=Create())
        try:
            with contextlib.suppress(AlreadyExistsError):
                self.put(key, [b"probe"], condition=Create())
                self._exclusive = False
            replace = False
            with contextlib.suppress(UnsupportedError):
                try:
                    self.put(key, [b"probe"], condition=ReplaceIf("another"))
                except AlreadyExistsError:
                    replace = True
        finally:
            self.delete(key)
        return Capabilities(self._exclusive, replace, conditional_multipart=self._exclusive)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        names = _segments(prefix.rpartition("/")[0]) if "/" in prefix else []
        with translated("list", self._where(prefix)):
            try:
                chain = Chain.open(self._root, names)
            except FileNotFoundError:
                return
            except NotADirectoryError:
                if self._root.is_dir():
                    return
                raise UsageError(f"{self._root} is no directory") from None
        with chain:
            base = b"".join(name + b"/" for name in names)
            files = walk(chain.last, base, prefix.encode(), after.encode())
            while True:
                with translated("list", self._where(prefix)):
                    entry = next(files, None)
                if entry is None:
                    return
                try:
                    key = entry[0].decode()
                except UnicodeDecodeError:
                    continue  # no key of ours
                yield _info(key, entry[1])

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        self._refuse_version(version)
        *names, name = _segments(key)
        with translated("stat", self._where(key)), self._existing(names, key) as chain:
            found = os.stat(name, dir_fd=chain.last, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                refuse_symlink(name, chain.last)
            if not stat.S_ISREG(found.st_mode):
                raise NotFoundError(f"{self._where(key)}: no such object", operation="stat")
            return _info(key, found)

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        """The file is open from the first byte to the last: a put meanwhile does not show."""
        self._refuse_version(version)
        keys.checked_range(start, end)
        *names, name = _segments(key)
        with translated("get", self._where(key)), self._existing(names, key) as chain:
            refuse_symlink(name, chain.last)
            # O_NONBLOCK: a pipe somebody left there must not hang the reader.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=chain.last)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise NotFoundError(f"{self._where(key)}: no such object", operation="get")
            if etag is not None and etag != _etag(found):
                raise replaced(self._where(key))
            stop = found.st_size if end is None else min(end, found.st_size)
            while start < stop:
                with translated("get", self._where(key)):
                    chunk = os.pread(fd, min(_CHUNK, stop - start), start)
                if not chunk:
                    raise TransientError(f"{self._where(key)}: the file was cut short", operation="get")
                start += len(chunk)
                yield chunk
        finally:
            os.close(fd)

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        keys.checked(key)
        *names, name = _segments(key)
        where = self._where(key)
        with translated("put", where):
            temporary = _Temporary(self._root, names)
        try:
            with translated("put", where):
                self._sweep_once(key, temporary.chain.last)
            for chunk in chunks:  # outside of `translated`: what the chunks raise is the caller's
                with translated("put", where):
                    temporary.file.write(chunk)
            with translated("put", where):
                temporary.file.flush()
                os.fsync(temporary.file.fileno())
                self._publish(temporary, name, condition, where)
                temporary.chain.sync()
            return _info(key, os.fstat(temporary.file.fileno()))
        finally:
            temporary.discard()

    def delete(self, key: str, *, version: str | None = None) -> None:
        """Removes the directories that it leaves empty.  After a power cut the object may be back."""
        self._refuse_version(version)
        self._unlink(key)
        self._settle(key.rpartition("/")[0])

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        """Durable all at once, at the end."""
        failed = {}
        parents = set()
        for key in keys:
            try:
                self._unlink(key)
            except StoreError as error:
                failed[key] = error
            parents.add(key.rpartition("/")[0])
        for parent in parents:
            self._settle(parent)
        return failed

    def _unlink(self, key: str) -> None:
        *names, name = _segments(key)
        with translated("delete", self._where(key)):
            try:
                chain = Chain.open(self._root, names)
            except (FileNotFoundError, NotADirectoryError):
                return
            with chain, self._lock(chain.root):
                refuse_symlink(name, chain.last)
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(name, dir_fd=chain.last)

    def _settle(self, parent: str) -> None:
        with translated("delete", self._where(parent)):
            try:
                chain = Chain.open(self._root, _segments(parent) if parent else [])
            except (FileNotFoundError, NotADirectoryError):
                return
            with chain:
                sync(chain.last)
                chain.remove_empty()

    def versions(self, prefix: str = "") -> NoReturn:
        self._unsupported("versions", prefix)

    def retention(self, key: str, *, version: str | None = None) -> NoReturn:
        self._unsupported("retention", key, version)

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> NoReturn:
        self._unsupported("retention", key, retention, version)

    def abort_leftovers(self, older_than: timedelta) -> int:
        with translated("abort leftovers", self.url):
            try:
                chain = Chain.open(self._root, [])
            except FileNotFoundError:
                return 0
            with chain:
                return sum(_sweep(fd, name, older_than) for fd, name in hidden(chain.root, _TEMPORARY))

    def _publish(self, temporary: _Temporary, name: bytes, condition: PutCondition, where: str) -> None:
        directory = temporary.chain.last
        try:
            if isinstance(condition, Create) and temporary.link(name):
                return
            with self._lock(temporary.chain.root) as locked:
                refuse_symlink(name, directory)
                if isinstance(condition, Create):
                    self._exclusive = locked
                self._compare(name, directory, condition, locked=locked)
                os.rename(temporary.name, name, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{where}: exists already", operation="put") from error

    def _compare(self, name: bytes, directory: int, condition: PutCondition, *, locked: bool) -> None:
        try:
            found = _etag(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            found = None
        if isinstance(condition, Create) and found is not None:
            raise FileExistsError
        if isinstance(condition, ReplaceIf):
            if not locked:
                self._unsupported("replace-if without file locks")
            if found != condition.etag:
                message = f"{self.url}: {os.fsdecode(name)} was replaced or removed by another"
                raise AlreadyExistsError(message, operation="put")

    @contextlib.contextmanager
    def _lock(self, root: int) -> Iterator[bool]:
        """One publisher or deleter at a time, in all processes: else replace-if would compare with an
        object that is gone a moment later.  Yields False where the file system has no locks.
        """
        fd = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def _existing(self, names: Sequence[bytes], key: str) -> Chain:
        try:
            return Chain.open(self._root, names)
        except NotADirectoryError as error:
            raise NotFoundError(f"{self._where(key)}: no such object") from error

    def _sweep_once(self, key: str, directory: int) -> None:
        parent = key.rpartition("/")[0]
        if parent in self._swept:
            return
        self._swept.add(parent)
        with os.scandir(directory) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        for name in names:
            if name.startswith(_TEMPORARY):
                _sweep(directory, name, LEFTOVER_AGE)

    def _where(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _refuse_version(self, version: str | None) -> None:
        if version is not None:
            self._unsupported("versions")

    def _unsupported(self, what: str, *_asked: object) -> NoReturn:
        raise UnsupportedError(f"{self.url}: a file store has no {what}", hint="use an object store for that")


class _Temporary:
    """An open, locked, hidden file beside the final name."""

    def __init__(self, root: Path, names: Sequence[bytes]) -> None:
        self.name = _TEMPORARY + secrets.token_hex(8).encode()
        fd = -1
        for tries_left in reversed(range(_TRIES)):
            try:
                fd = self._make(root, names)
                break
            except FileNotFoundError:  # a delete beside us removed the directory just made, for it was empty
                if not tries_left:
                    raise
        with contextlib.suppress(OSError):  # without locks, age alone tells the sweeper
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.file = os.fdopen(fd, "wb", buffering=_CHUNK)

    def _make(self, root: Path, names: Sequence[bytes]) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.chain = Chain.open(root, names, create=True)
        try:
            return os.open(self.name, flags, 0o600, dir_fd=self.chain.last)
        except BaseException:
            self.chain.close()
            raise

    def link(self, name: bytes) -> bool:
        """Give the file its final name if that is free, else FileExistsError.  False where there are no
        links.
        """
        directory = self.chain.last
        try:
            os.link(self.name, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True

    def discard(self) -> None:
        """Remove the file, unless it was renamed, and close all."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.chain.last)
        with contextlib.suppress(OSError):  # bytes that no longer matter could not be flushed
            self.file.close()
        self.chain.close()


def _sweep(directory: int, name: bytes, older_than: timedelta) -> bool:
    """Remove a temporary file if it is old and its writer is dead."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        if time.time() - os.fstat(fd).st_mtime < older_than.total_seconds():
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
            return True
        return False
    finally:
        os.close(fd)


def _segments(key: str) -> list[bytes]:
    """The names on the way to `key`; UsageError for one that would lead elsewhere, or to our own hidden
    files.
    """
    segments = key.split("/")
    if "\0" in key or any(segment == "" or segment.startswith(".") for segment in segments):
        raise UsageError(f"{key!r} leads out of the store", hint="keys are relative to the store's directory")
    try:
        return [segment.encode() for segment in segments]
    except UnicodeEncodeError as error:
        raise UsageError(f"{key!r} is no key: it is not Unicode text") from error


def _etag(found: os.stat_result) -> str:
    """Changes with every put: each makes a new inode while the old one still exists."""
    return f"{found.st_size:x}-{found.st_mtime_ns:x}-{found.st_ino:x}"


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC), _etag(found))
