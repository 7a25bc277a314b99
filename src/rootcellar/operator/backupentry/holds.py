"""Holds that people or agents have put on backups of an entry (`rootcellar hold`).

They lie in the catalogue of each cluster below the entry's prefix, `.../catalogue/holds/`.  A hold is about
single backups; to delete all of them would break it, so one alone keeps the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.records import Hold, Release
from rootcellar.errors import NotFoundError, RecordError

if TYPE_CHECKING:
    from rootcellar.stores.protocol import Store

_HOLDS: Final = f"/{keys.HOLDS}"
_RELEASES: Final = f"/{keys.RELEASES}"


def held(store: Store) -> tuple[str, ...]:
    """Why something below the store's prefix is held, a reason for each hold that nobody has lifted.

    One that cannot be read is a hold all the same, and a release that cannot be read lifts nothing.  None
    where there is no bucket.  Raises StoreErrors.
    """
    holds, lifted = [], set()
    try:
        for info in store.list():
            if _HOLDS in f"/{info.key}":
                holds.append(info.key)
            elif _RELEASES in f"/{info.key}" and _lifts(store, info.key):
                lifted.add(info.key)
    except NotFoundError:
        return ()
    return tuple(_reason(store, key) for key in holds if _release_of(key) not in lifted)


def _release_of(key: str) -> str:
    base, _, nonce = f"/{key}".rpartition(_HOLDS)
    return f"{base}{_RELEASES}{nonce}".removeprefix("/")


def _lifts(store: Store, key: str) -> bool:
    try:
        return key.endswith(f"/{documents.fetch(store, key, Release).hold}.json")
    except (RecordError, NotFoundError):
        return False


def _reason(store: Store, key: str) -> str:
    try:
        return f"{documents.fetch(store, key, Hold).reason} ({key})"
    except (RecordError, NotFoundError):
        return f"a hold that cannot be read ({key})"
