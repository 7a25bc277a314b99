"""What a person means by STORE.

A URL, `@name` from the configuration, a directory, or (to read from; `backups` has more on that) a single
backup.  Without any: ROOTCELLAR_STORE, then the first store of the configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.imports.wrappings import is_wrapping
from rootcellar.cli import flags, values
from rootcellar.cli.configuration import reveal
from rootcellar.errors import DeniedError, StoreError, UsageError
from rootcellar.stores.credentials import (
    AMBIENT,
    Credentials,
    DirectoryCredentials,
    EnvironmentCredentials,
    FileCredentials,
)
from rootcellar.stores.limit import Bandwidth, LimitedStore
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from rootcellar.cli import schema
    from rootcellar.cli.context import Context
    from rootcellar.cli.options import Option
    from rootcellar.stores.protocol import Store


def readable(context: Context) -> Store:
    """A store to read from.  Raises UsageError (also for a single backup), ConfigError."""
    found = at(context, word(context))
    if isinstance(found, Path):
        raise UsageError(f"{found} is a single backup", hint="this needs a store: a directory or a URL")
    return found


def at(context: Context, named: str | None) -> Store | Path:
    """What to read from: a store, or a single backup on this machine.

    Raises UsageError, ConfigError, StoreError.
    """
    if named is None or named.startswith("@") or "://" in named:
        return opened(context, named)
    path = Path(named).expanduser()
    try:
        if path.is_dir() and not is_wrapping(path):
            return open_store(str(path))
        if path.exists():
            return path
    except OSError as error:
        kind = DeniedError if isinstance(error, PermissionError) else StoreError
        raise kind(
            f"{path} cannot be looked into: {(error.strerror or str(error)).lower()}",
            hint="do it as the user that the backups belong to",
        ) from error
    raise UsageError(
        f"{path} does not exist", hint="give a store's URL, @NAME, a directory or a snapshot file"
    )


def writable(context: Context) -> Store:
    """A store to write to, which may not be there yet.  Raises UsageError, ConfigError."""
    named = word(context)
    if named is not None and "://" not in named and Path(named).is_file():
        raise UsageError(f"{named} is a file", hint="a store is a directory or a URL")
    return opened(context, named)


def configured(context: Context, named: str | None = None) -> schema.Store | None:
    """What the configuration says of a store (default: STORE), also where it is named by its URL.

    Raises ConfigError.
    """
    return _configured(context, word(context) if named is None else named)


def _configured(context: Context, named: str | None) -> schema.Store | None:
    if named is None or named.startswith("@"):
        return context.configuration.store(named[1:] if named else None)
    url = open_store(named).url
    stores = context.configuration.file.stores
    return next((each for each in stores if open_store(reveal(each.url)).url == url), None)


def word(context: Context) -> str | None:
    """What was written for STORE, here or in the environment."""
    return context.arguments.operand(flags.STORE) or context.environ.get(flags.STORE_VARIABLE) or None


def mirrors(context: Context) -> tuple[schema.Store, ...]:
    """The stores that the backups of STORE are copied to, in their order.  Raises ConfigError."""
    if word(context) is None and not context.configuration.file.stores:
        return ()
    origin = configured(context)
    stores = context.configuration.file.stores
    return tuple(each for each in stores if origin is not None and each.mirror_of == origin.name)


def opened(context: Context, named: str | None, *, forms: Option[str] | None = flags.CREDENTIALS) -> Store:
    """The store of a URL, a path or @NAME; for None the first that is configured.

    `forms` is the option that says where its keys are, above what the configuration says.  Raises UsageError,
    ConfigError.
    """
    credentials = _credentials(context.arguments.get(forms)) if forms is not None else None
    if named is not None and not named.startswith("@"):
        return open_store(named, credentials=credentials or AMBIENT)
    written = context.configuration.store(named[1:] if named else None)
    credentials = credentials or configured_credentials(written.credentials)
    return _limited(open_store(reveal(written.url), credentials=credentials), written.limits)


def planned(context: Context, url: str) -> Store:
    """The store that a plan names, with the credentials of the configured store of the same URL.

    Raises UsageError, ConfigError.
    """
    for configured in context.configuration.file.stores:
        found = opened(context, f"@{configured.name}")
        if found.url == url:
            return found
    return opened(context, url)


def configured_credentials(written: schema.Credentials) -> Credentials:
    """The source of keys that the configuration names.  Raises ConfigError."""
    if written.dir is not None:
        return DirectoryCredentials(Path(reveal(written.dir)))
    if written.file is not None:
        return FileCredentials(Path(reveal(written.file)))
    if written.env_prefix is not None:
        return EnvironmentCredentials(reveal(written.env_prefix))
    return AMBIENT


def _credentials(written: str | None) -> Credentials | None:
    if written is None:
        return None
    kind, _, place = written.partition(":")
    if kind == "dir" and place:
        return DirectoryCredentials(Path(place).expanduser())
    if kind == "file" and place:
        return FileCredentials(Path(place).expanduser())
    if kind == "env" and place:
        return EnvironmentCredentials(place)
    if written == "ambient":
        return AMBIENT
    raise UsageError(f"{flags.CREDENTIALS.flag} is {written!r}", hint=flags.CREDENTIALS.help)


def _limited(store: Store, limits: schema.Limits) -> Store:
    if limits.upload is None and limits.download is None:
        return store
    return LimitedStore(store, upload=_bandwidth(limits.upload), download=_bandwidth(limits.download))


def _bandwidth(rate: str | None) -> Bandwidth | None:
    return None if rate is None else Bandwidth(values.size(rate.removesuffix("/s")))
