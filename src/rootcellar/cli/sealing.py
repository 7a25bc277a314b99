"""How a store's backups are written: compression, and for whom they are encrypted; and who can read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.objects.sealing.keyring import NO_KEYS, Keyring, parse_recipients, read_identities
from rootcellar.cli import flags, sources
from rootcellar.cli.configuration import reveal
from rootcellar.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from rootcellar.backup.imports.unwrapped import Stored
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.cli import schema
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store

_SUFFIXES = {"gzip": names.GZIP, "zlib": names.ZLIB, "none": names.NONE, "zstd": names.ZSTD}


@dataclass(frozen=True, slots=True)
class Writing:
    """The suffix of what is written, which says it all; and who can open it, if it is encrypted."""

    suffix: str
    recipients: tuple[Recipient, ...] = ()


def writing(context: Context, default: str = names.GZIP) -> Writing:
    """What --compression and the configuration say of STORE, else `default`, a suffix.  Raises ConfigError,
    UsageError.
    """
    return configured_writing(sources.configured(context), context.arguments.get(flags.COMPRESSION), default)


def configured_writing(
    configured: schema.Store | None, how: str | None = None, default: str = names.GZIP
) -> Writing:
    """The same of a store of the configuration; `how` goes above its compression."""
    how = how or (configured.compression if configured is not None else None)
    if configured is None or configured.encryption is None:
        return Writing(default if how is None else _SUFFIXES[how])
    suffix = _SUFFIXES[how or "zstd"] + names.AGE
    if suffix not in names.SEALED_SUFFIXES:
        raise UsageError(f"{how} is not written encrypted", hint="choose zstd, gzip or none")
    return Writing(suffix, recipients(configured.encryption))


def recipients(encryption: schema.Encryption) -> tuple[Recipient, ...]:
    """Raises ConfigError."""
    return parse_recipients(map(reveal, encryption.recipients))


def keyring(context: Context, place: Store | Path | Stored) -> Keyring:
    """The identities of --identity, else those that the configuration has for a store.  Raises ConfigError.

    Configured ones that cannot be read are told and done without: most backups need none.
    """
    named = context.arguments.get(flags.IDENTITY)
    if named is not None:
        return read_identities(named)
    try:
        url = getattr(place, "url", None)
        stores = context.configuration.file.stores if url is not None else ()
        found = [
            identity
            for store in stores
            if store.identities is not None and sources.opened(context, f"@{store.name}").url == url
            for identity in configured_identities(store.identities).identities
        ]
    except ConfigError as error:
        context.console.warn(f"no identities are at hand: {error.message}")
        return NO_KEYS
    return Keyring(tuple(found))


def configured_identities(written: schema.Identities) -> Keyring:
    """Raises ConfigError."""
    return read_identities(Path(reveal(written.file or written.dir or "")).expanduser())
