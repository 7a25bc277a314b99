"""Object stores: the protocol, its providers and its decorators.

`open_store` is the way in; it gives the provider with retries.  A limit goes around that, and a meter
around all: `MeteredStore(LimitedStore(open_store(url), upload=Bandwidth(rate)))`.
"""

from rootcellar.stores.backoff import Backoff
from rootcellar.stores.credentials import (
    AMBIENT,
    Credentials,
    DirectoryCredentials,
    EnvironmentCredentials,
    FileCredentials,
)
from rootcellar.stores.file import FileStore
from rootcellar.stores.limit import Bandwidth, LimitedStore
from rootcellar.stores.meter import Meter, MeteredStore
from rootcellar.stores.protocol import (
    Capabilities,
    Create,
    ObjectInfo,
    PutCondition,
    ReplaceIf,
    Retention,
    Store,
)
from rootcellar.stores.retry import RetryingStore
from rootcellar.stores.url import open_store

__all__ = [
    "AMBIENT",
    "Backoff",
    "Bandwidth",
    "Capabilities",
    "Create",
    "Credentials",
    "DirectoryCredentials",
    "EnvironmentCredentials",
    "FileCredentials",
    "FileStore",
    "LimitedStore",
    "Meter",
    "MeteredStore",
    "ObjectInfo",
    "PutCondition",
    "ReplaceIf",
    "Retention",
    "RetryingStore",
    "Store",
    "open_store",
]
