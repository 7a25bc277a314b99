"""A directory as a bucket.

Access of anybody but the owner counts as public.  Nothing else can be asked of a file system.  Whoever may
write below it must not lead us out of it: paths are opened step by step, and symlinks removed, not followed.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.errors import NotFoundError, StoreError
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.deletion import BATCH, Entry, Page, Refusal
from rootcellar.stores.admin.values import BucketState, Outcome
from rootcellar.stores.backoff import Backoff
from rootcellar.stores.directories import Chain, sync, translated
from rootcellar.stores.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rootcellar.stores.admin.values import BucketWish, Change
    from rootcellar.stores.protocol import Store

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOCK = ".lock"
"""What a FileStore at the bucket's own root locks: no object."""


class LocalAdmin(Bucket):
    """The directory `root`."""

    def __init__(self, root: str | os.PathLike[str], *, backoff: Backoff | None = None) -> None:
        self._root = Path(root).absolute()
        super().__init__(FileStore(self._root).url, backoff or Backoff())

    def look(self) -> BucketState | None:
        with translated("look", self._url):
            try:
                mode = self._root.stat().st_mode
            except FileNotFoundError:
                return None
        if not stat.S_ISDIR(mode):
            raise StoreError(f"{self._url}: it is no directory", operation="look")
        return BucketState(self._url, claims=self.claims(), public_access_blocked=not mode & _OTHERS)

    def create(self, wish: BucketWish) -> Outcome:
        """A crash leaves a directory, which the next call adopts, or none.  Where others are not to be kept
        out, the group may write: as Gardener's own local provider has it, whose agents are other users.
        """
        with translated("create bucket", self._url):
            if self._root.is_dir():
                return Outcome.ADOPTED
            self._root.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._root.mkdir(0o700)
            except FileExistsError:
                return Outcome.ADOPTED
            if not wish.public_access_blocked:
                self._root.chmod(0o775)  # whatever the umask
            _durable(self._root.parent)
        return Outcome.CREATED

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        del change, wish, state  # public access is the only one that is known
        with translated("harden", self._url):
            self._root.chmod(stat.S_IMODE(self._root.stat().st_mode) & ~_OTHERS)

    def below(self, prefix: str) -> Store:
        return FileStore(self._root / prefix)

    def _heap(self) -> _Files:
        return _Files(self._root, self._url)

    def _first_parts(self) -> Iterator[str]:
        with translated("list", self._url):
            for name in sorted(os.listdir(self._root)):  # noqa: PTH208 - names, not paths
                if name == _LOCK:
                    continue
                if not (self._root / name).is_dir() or (self._root / name).is_symlink():
                    yield name
                elif next(_files(self._root, f"{name}/"), None) is not None:
                    yield f"{name}/"

    def _remove(self) -> None:
        """Empty directories are no objects: they go with the bucket.  A file that has come meanwhile stops
        it, because rmdir takes none.
        """
        _prune(self._root, self._url)
        with translated("delete bucket", self._url):
            (self._root / _LOCK).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._root.rmdir()
            _durable(self._root.parent)

    def _is_there(self) -> bool:
        return self._root.is_dir()


class _Files:
    """All files, also hidden ones, which are temporary files of puts and their locks."""

    def __init__(self, root: Path, where: str) -> None:
        self._root = root
        self._where = where

    def page(self, prefix: str, token: str) -> Page:
        """In order of the names, whose smallest are gathered from the whole: a directory has no order."""
        with translated("list", self._where):
            if not self._root.is_dir():
                raise NotFoundError(f"{self._where}: no such bucket", operation="list")
            below = (key for key in _files(self._root, prefix) if key > token)
            found = heapq.nsmallest(BATCH, below)
        return Page([Entry(key) for key in found], found[-1] if len(found) == BATCH else "")

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        refused: dict[Entry, Refusal] = {}
        for entry in entries:
            try:
                with translated("delete", f"{self._where}/{entry.key}"):
                    self._unlink(entry.key)
            except NotFoundError:
                continue
            except StoreError as error:
                refused[entry] = Refusal(error)
        return refused

    def _unlink(self, key: str) -> None:
        *names, name = os.fsencode(key).split(b"/")
        with Chain.open(self._root, names) as chain:
            os.unlink(name, dir_fd=chain.last)
            sync(chain.last)
            chain.remove_empty()

    def tidy(self, prefix: str) -> int:
        """Directories without any file."""
        if prefix:
            _prune(self._root / prefix, self._where)
            with contextlib.suppress(OSError):
                (self._root / prefix).rmdir()
        return 0


def _files(root: Path, prefix: str) -> Iterator[str]:
    """Keys of all files and symlinks below `root/prefix`."""
    folder = root / prefix
    if folder.is_symlink() or not folder.is_dir():
        return
    for place, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
        base = os.path.relpath(place, root)
        for name in files:
            if (base, name) != (".", _LOCK):
                yield os.path.normpath(f"{base}/{name}")
        for name in folders:
            if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                yield os.path.normpath(f"{base}/{name}")


def _prune(folder: Path, where: str) -> None:
    """Remove the empty directories below `folder`."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with translated("delete", where):
        for _, folders, _, fd in os.fwalk(folder, topdown=False, follow_symlinks=False):
            for name in folders:
                with contextlib.suppress(OSError):  # not empty, or gone
                    os.rmdir(name, dir_fd=fd)


def _durable(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)
