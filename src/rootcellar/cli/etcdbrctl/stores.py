"""The stores that a command line of etcd-backup-restore means."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rootcellar.cli.etcdbrctl.sections import SecondSite, Snapstore
from rootcellar.errors import RootcellarError
from rootcellar.stores.reference import located
from rootcellar.stores.url import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli.etcdbrctl.reading import Configuration
    from rootcellar.stores.protocol import Store


SECOND = "secondary-"
_log = logging.getLogger(__name__)


def readable(configuration: Configuration, environ: Mapping[str, str]) -> Store:
    """The store, or where it cannot be read the one that it is copied to, if there is one.

    Raises UsageError, ConfigError; StoreError where neither can be read.
    """
    site = configuration.sections.get((SecondSite, ""))
    if site is None or not site.enabled:
        return opened(configuration, environ)
    try:
        first = opened(configuration, environ)
        next(iter(first.list()), None)
    except RootcellarError as error:
        second = opened(configuration, environ, SECOND)
        next(iter(second.list()), None)
        _log.warning("the store cannot be read: %s; what is there is taken from %s", error, second.url)
        return second
    return first


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
