"""The stores that a command line of etcd-backup-restore means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli.etcdbrctl.sections import Snapstore
from rootcellar.stores.reference import located
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli.etcdbrctl.reading import Configuration
    from rootcellar.stores.protocol import Store


def opened(configuration: Configuration, environ: Mapping[str, str], before: str = "") -> Store:
    """The store of the flags with `before` ("", "source-" or "secondary-") in their names.

    Nothing is asked of it yet.  Raises UsageError, ConfigError.
    """
    said = configuration.get(Snapstore, before)
    found = located(
        said.provider,
        said.container,
        said.prefix,
        environment=environ,
        endpoint=said.endpoint or None,
        variables=before.replace("-", "_").upper(),
    )
    return open_store(found.url, credentials=found.credentials)
