"""Files that -o names."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rootcellar.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def private(path: Path) -> Generator[IO[bytes]]:
    """A file to write that only its owner can read: values are secrets as often as not.

    Raises TargetError for an OSError, also of what is written into it.
    """
    try:
        path.touch(mode=0o600)
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise TargetError(
            f"{path}: {(error.strerror or str(error)).lower()}", hint="name another file with -o"
        ) from error
