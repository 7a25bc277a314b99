"""A small disk for a file store, in mounts that nobody else sees: it fills up, turns read-only, goes away.

The disk itself is a tmpfs.  Who writes backups has it by a mount of its own, which alone is struck; whoever
looks on has it directly.  Below that mount lies an empty directory that nobody can write to, which is what
an agent finds while a share is not mounted.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import AbstractContextManager, suppress

from testbed.cache import UnavailableError
from tests.backup.killing import own_mounts

SIZE = 256 << 20

_READ_ONLY, _REMOUNT, _BIND, _DETACH = 1, 32, 4096, 2


def own_namespace():
    """From here on what this process mounts, only it and its children see.  Before it has threads."""
    if not own_mounts():
        raise UnavailableError(f"no mount namespace: {os.strerror(ctypes.get_errno())}")


class Disk(AbstractContextManager["Disk"]):
    """`behind` is the disk as it is, `place` where agents have it."""

    def __init__(self, directory):
        self.behind, self.place = directory / "disk", directory / "store"
        self._filler = self.behind / "filler"
        self.is_mounted = False
        for each in (self.behind, self.place):
            each.mkdir()
        _mount("tmpfs", self.behind, "tmpfs", 0, f"size={SIZE}")
        _mount("tmpfs", self.place, "tmpfs", _READ_ONLY, "size=4096")
        (self.behind / "store").mkdir()
        self.mount()

    def fill(self):
        with self._filler.open("wb") as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self):
        self._filler.unlink(missing_ok=True)

    def read_only(self):
        """Whether it could be done: not while somebody writes a file."""
        try:
            _mount("none", self.place, "none", _REMOUNT | _BIND | _READ_ONLY)
        except OSError:
            return False
        return True

    def writable(self):
        if self.is_mounted:
            _mount("none", self.place, "none", _REMOUNT | _BIND)

    def unmount(self):
        """What is open stays open, as with `umount --lazy`."""
        if not self.is_mounted:
            return False
        _call("umount2", os.fsencode(self.place), _DETACH)
        self.is_mounted = False
        return True

    def mount(self):
        if not self.is_mounted:
            _mount(self.behind / "store", self.place, "none", _BIND)
            self.is_mounted = True

    def __exit__(self, *_):
        for place in (self.place, self.place, self.behind):
            with suppress(OSError):
                _call("umount2", os.fsencode(place), _DETACH)


def _mount(source, target, kind, flags, options=""):
    _call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode())


def _call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
