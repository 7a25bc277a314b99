"""`config check`: everything that can be wrong with a configuration before it is used."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.cli.configuration import placeholders, reveal
from rootcellar.cli.document import Document
from rootcellar.cli.sealing import configured_identities, recipients
from rootcellar.cli.sources import configured_credentials
from rootcellar.errors import ConfigError, RootcellarError
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.cli.configuration import Configuration
    from rootcellar.cli.context import Context


class ConfigurationCheck(Document, frozen=True):
    """What was found.  `path` is None where there is no file."""

    path: str | None
    stores: tuple[str, ...]
    problems: tuple[str, ...]


def run(context: Context) -> int:
    """Look at everything, then complain of all of it at once."""
    configuration = context.configuration
    problems = tuple(_problems(configuration))
    path = str(configuration.path) if configuration.path is not None else None
    names = tuple(store.name for store in configuration.file.stores)
    if not context.console.is_text:
        context.console.document(ConfigurationCheck(path=path, stores=names, problems=problems))
    elif path is None:
        context.console.lines(["there is no configuration file: everything has its default"])
    elif not problems:
        stores = ", ".join(f"@{name}" for name in names) or "none"
        context.console.lines([f"{path} is fine; stores: {stores}"])
    else:
        context.console.lines(problems)
    if problems:
        raise ConfigError(
            f"{path} has {len(problems)} mistakes" if len(problems) > 1 else f"{path} has a mistake"
        )
    return 0


def _problems(configuration: Configuration) -> Iterator[str]:
    for text in placeholders(configuration.written):
        try:
            reveal(text)
        except ConfigError as error:
            yield error.message
    for store in configuration.file.stores:
        try:
            open_store(reveal(store.url), credentials=configured_credentials(store.credentials))
            configured_credentials(store.credentials).load()
            if store.encryption is not None:
                recipients(store.encryption)
            if store.identities is not None:
                configured_identities(store.identities)
        except RootcellarError as error:
            yield f"store @{store.name}: {error.message}"
    tls = configuration.file.etcd.tls
    if (tls.cert is None) != (tls.key is None):
        yield "etcd.tls: a client certificate needs its key, and a key its certificate"
    for file in (tls.ca, tls.cert, tls.key):
        with suppress(ConfigError):  # a placeholder that stands for nothing was told above
            if file is not None and not Path(reveal(file)).is_file():
                yield f"etcd.tls: there is no file {file}"
