"""Directories below a store's root, opened step by step so that no symlink and no `..` leads out of it.

Every call is relative to an open directory (openat and its kin), because a path checked first and used
later can be another one by then.  The root itself may be a symlink: a person chose it.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from typing import TYPE_CHECKING, Self

from rootcellar.errors import (
    DeniedError,
    NotFoundError,
    RootcellarError,
    StoreError,
    TransientError,
    UsageError,
)
from rootcellar.stores.meaning import Translation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PAGE = 10_000
"""Names held in memory at once: a larger directory is read again for each further page."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS: dict[int, tuple[type[RootcellarError], str, str | None]] = {
    errno.ENOENT: (NotFoundError, "no such object", None),
    errno.EACCES: (DeniedError, "permission denied", "look at the owner and mode of the store's directories"),
    errno.EPERM: (DeniedError, "not permitted", "look at the owner, mode and attributes of the directories"),
    errno.EROFS: (DeniedError, "the file system is read-only", "mount it writable, or use another store"),
    errno.ENOSPC: (StoreError, "no space left", "free some, or prune old backups"),
    errno.EDQUOT: (StoreError, "the disk quota is used up", "raise it, or prune old backups"),
    errno.ENAMETOOLONG: (UsageError, "a name is too long for this file system", None),
    errno.ENOTDIR: (UsageError, "a part of the key is an object, not a directory", None),
    errno.EISDIR: (UsageError, "the key is a directory of other keys", None),
    errno.ESTALE: (TransientError, "the network file system lost the file", None),
    errno.ETIMEDOUT: (TransientError, "the network file system does not answer", None),
    errno.EMFILE: (TransientError, "too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: (TransientError, "too many open files on this machine", None),
}


class translated(Translation):  # noqa: N801 - reads as the with-statement it is
    """What the file system refuses."""

    def meaning(self, error: Exception) -> tuple[type[RootcellarError], str, str | None] | None:
        if not isinstance(error, OSError):
            return None
        return _KINDS.get(error.errno or 0, (StoreError, error.strerror or str(error), None))


def refuse_symlink(name: bytes, directory: int) -> None:
    """UsageError if `name` in `directory` is a symlink."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise UsageError(
            f"{os.fsdecode(name)} is a symlink inside a store",
            hint="symlinks are not followed there: move the data, or point the store at the link's target",
        )


def step(name: bytes, directory: int) -> int:
    """The open directory `name` in `directory`."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            refuse_symlink(name, directory)
        raise


def sync(directory: int) -> None:
    """Make the names in an open directory durable, where the file system can: some shares refuse, and do it
    with the file or never.
    """
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise


class Chain:
    """The open directories from the root down to the one that holds a key's last part."""

    def __init__(self, fds: list[int], names: list[bytes]) -> None:
        self._fds = fds
        self._names = names

    @classmethod
    def open(cls, root: Path, names: Sequence[bytes], *, create: bool = False) -> Self:
        """Raises OSError (FileNotFoundError for a missing step unless `create`), UsageError for a symlink."""
        if create:
            _make_root(root)
        fds = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            for name in names:
                fds.append(_step_or_make(name, fds[-1]) if create else step(name, fds[-1]))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return cls(fds, list(names))

    @property
    def root(self) -> int:
        return self._fds[0]

    @property
    def last(self) -> int:
        return self._fds[-1]

    def sync(self) -> None:
        """Make the names on the whole way durable.  Also those that were there already: a writer beside us
        may have made a parent a moment ago and not be as far as its fsync.
        """
        for fd in reversed(self._fds):
            sync(fd)

    def remove_empty(self) -> None:
        """Remove the directories on the way, deepest first, until one is not empty.  The root stays."""
        for parent, name in zip(reversed(self._fds[:-1]), reversed(self._names), strict=True):
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
                    return
                raise
            sync(parent)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_root(root: Path) -> None:
    missing = []
    while not root.is_dir():
        missing.append(root)
        root = root.parent
    for path in reversed(missing):
        try:
            path.mkdir(0o700)
        except FileExistsError:
            continue
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(parent)
        finally:
            os.close(parent)


def _step_or_make(name: bytes, directory: int) -> int:
    while True:
        try:
            return step(name, directory)
        except FileNotFoundError:
            # Where a delete beside us removes the empty directory again, the next round makes it anew;
            # where it has removed `directory` itself, mkdir says so and the caller begins again from the
            # root.
            try:
                os.mkdir(name, 0o700, dir_fd=directory)
            except FileExistsError:
                continue


def walk(fd: int, base: bytes, prefix: bytes, after: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Files below the open directory `fd`, whose own keys begin with `base`, in byte order of their keys.

    A directory is ordered as its name and a slash, because that is how all keys below it begin: `a-b` comes
    before `a/b`, although `a` comes before `a-b`.  Names beginning with a dot are ours and never listed.
    """
    low = b""
    while True:
        page = heapq.nsmallest(PAGE, (name for name in _names(fd, base, prefix, after) if name > low))
        for name in page:
            try:
                if name.endswith(b"/"):
                    below = step(name[:-1], fd)
                else:
                    yield base + name, os.stat(name, dir_fd=fd, follow_symlinks=False)
                    continue
            except FileNotFoundError:
                continue  # removed since the directory was read
            except PermissionError:
                if base + name == b"lost+found/":  # the store is a mount point, and we are not root
                    continue
                raise
            try:
                yield from walk(below, base + name, prefix, after)
            finally:
                os.close(below)
        if len(page) < PAGE:
            return
        low = page[-1]


def _names(fd: int, base: bytes, prefix: bytes, after: bytes) -> Iterator[bytes]:
    with os.scandir(fd) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if name.startswith(b"."):
                continue
            if entry.is_dir(follow_symlinks=False):
                name += b"/"
                key = base + name
                wanted = key.startswith(prefix) or prefix.startswith(key)
                wanted = wanted and (key > after or after.startswith(key))
            else:
                key = base + name
                wanted = key.startswith(prefix) and key > after
            if not wanted:
                continue
            if entry.is_symlink():
                refuse_symlink(name, fd)
            if name.endswith(b"/") or entry.is_file(follow_symlinks=False):
                yield name


def hidden(fd: int, stem: bytes) -> Iterator[tuple[int, bytes]]:
    """Every file below `fd` whose name begins with `stem`, with the open directory that holds it."""
    with os.scandir(fd) as entries:
        names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in names:
        if is_directory and not name.startswith(b"."):
            try:
                below = step(name, fd)
            except (FileNotFoundError, PermissionError):
                continue
            try:
                yield from hidden(below, stem)
            finally:
                os.close(below)
        elif not is_directory and name.startswith(stem):
            yield fd, name
