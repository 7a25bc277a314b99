"""Single backups: files and directories of any tool, and objects of a store that are one by themselves.

To restore or to prove one, it is made a chain of one.  What can be read as a stream is read where it lies; a
zip archive, a data directory and an object of a store are taken out of their wrapping first.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.imports.unwrapped import Stored, scratch_error, unused_by_etcd, unwrapped
from rootcellar.backup.imports.wrappings import GZIP_MAGIC, Form, find
from rootcellar.backup.restore.plan import PlannedObject
from rootcellar.cli import flags, sources
from rootcellar.errors import UsageError
from rootcellar.stores.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store

_UNPACKED_FIRST = (Form.ZIP, Form.DATA_DIR)


def source(context: Context) -> Store | Path | Stored:
    """What to look into: STORE, or its object that --object names.  Raises UsageError, ConfigError."""
    named = sources.word(context)
    key = context.arguments.get(flags.OBJECT_KEY)
    return sources.at(context, named) if key is None else Stored(sources.opened(context, named), key)


def foreign(context: Context, word: str) -> Path | Stored:
    """What to import: a path, URL/KEY or @NAME/KEY.  Raises UsageError, ConfigError."""
    if not word.startswith("@") and "://" not in word:
        return Path(word).expanduser()
    address, question, query = word.partition("?")
    place, slash, key = address.rpartition("/")
    if not slash or not key or place.endswith("/"):
        raise UsageError(f"{word} names no object", hint="write URL/KEY or @NAME/KEY")
    return Stored(sources.opened(context, f"{place}{question}{query}", forms=flags.BACKUP_CREDENTIALS), key)


@contextmanager
def single(backup: Path | Stored, scratch: Path | None = None) -> Generator[tuple[Store, PlannedObject]]:
    """The store it lies in and the object it is, while the context lasts.

    Raises UsageError, FormatError, DamagedObjectError, TargetError (an etcd runs on it), StoreError.
    """
    if isinstance(backup, Stored) or (wrapping := find(backup.absolute())).form in _UNPACKED_FIRST:
        with unwrapped(backup, scratch=scratch) as found:
            yield _planned(found.path, names.NONE)
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(unused_by_etcd(wrapping.path))
            with wrapping.path.open("rb") as file:
                is_gzip = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        except OSError as error:
            raise scratch_error(error) from error
        packed = wrapping.path.suffix if wrapping.path.suffix in (names.ZLIB, names.LZW) else names.NONE
        yield _planned(wrapping.path, names.GZIP if is_gzip else packed)


def _planned(path: Path, suffix: str) -> tuple[Store, PlannedObject]:
    store = FileStore(path.parent)
    return store, PlannedObject(path.name, store.stat(path.name).size, suffix, 0, has_tail=None)
