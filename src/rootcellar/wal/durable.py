"""Files that survive a power cut once they are written, and only their owner can read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rootcellar.errors import TargetError

if TYPE_CHECKING:
    from pathlib import Path


def write_file(path: Path, data: bytes, *, size: int | None = None) -> None:
    """Create a file (mode 0600), sync it and its directory; `size` extends it by zeros that take no space.

    A crash before the return leaves no file, a part of it, or all of it: write where nobody reads yet.
    Raises OSError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        if size is not None:
            file.truncate(size)
        os.fsync(fd)
    sync_directory(path.parent)


def cannot_write(path: Path, error: OSError) -> TargetError:
    """The error for a place that does not take what a restore writes."""
    if isinstance(error, FileExistsError):
        hint = "restore into an empty directory, or say that it may be replaced"
    else:
        hint = "check its permissions and the free space"
    return TargetError(f"{path} cannot be written: {error.strerror}", hint=hint)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable.  Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
