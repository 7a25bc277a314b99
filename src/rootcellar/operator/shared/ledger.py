"""What deletions left in a bucket because it is locked: a record each, in the bucket itself.

An object that was let go before its objects could be deleted has nobody any more who would come back for
them.  So before it goes a record is put at `_rootcellar/left/<prefix>.json`, beside the marks of owners,
where no deletion of a prefix reaches it.  The records say what is to be looked at, and when.

Nothing here deletes by a record: a cluster that migrates away and back has the prefix of its past, and the
record of it would then name living backups.  A later deletion of the prefix itself takes the record away.
Who reconciles the bucket tells what they say.

Killed between the record and the end of its object: the next deletion writes the same record again.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from rootcellar.errors import LockedError, NotFoundError, RecordError
from rootcellar.stores.admin.ownership import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.stores.protocol import Store

HOME: Final = FOLDER.rstrip("/")
"""The prefix of the store that `keep`, `records` and `strike` are given, in the bucket."""
_LEFT: Final = "left/"

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_LIMIT = 4096


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """One prefix that was to be deleted; `locked` objects were kept by retention (until `earliest` the
    first, until `latest` the last) or by a legal hold (no date).
    """

    prefix: str
    locked: int
    since: _Moment
    earliest: _Moment | None = None
    latest: _Moment | None = None

    def may_go(self, now: datetime) -> bool:
        """Whether no lock that is known holds any of it now."""
        return self.latest is not None and self.latest <= now

    def __str__(self) -> str:
        until = f"until {self.latest:%Y-%m-%dT%H:%M:%SZ}" if self.latest else "by a legal hold"
        return f"{self.locked} objects below {self.prefix}/ are locked {until}"


def keep(store: Store, left: Left) -> None:
    """Write the record of a prefix, in place of an earlier one; one that the bucket's own retention keeps
    from being replaced will do.  Raises StoreErrors.
    """
    key = _key(left.prefix)
    try:
        store.put(key, [msgspec.json.encode(left, order="deterministic")])
    except LockedError:
        store.stat(key)


def records(store: Store) -> Iterator[Left]:
    """All of them.  Raises RecordError for one that cannot be read, StoreErrors."""
    for info in store.list(_LEFT):
        try:
            found = msgspec.json.decode(b"".join(store.get(info.key, end=_LIMIT)), type=Left)
        except NotFoundError:
            continue  # struck since it was listed
        except msgspec.MsgspecError as error:
            raise RecordError(
                f"{store.url}/{info.key}: a record of a deletion that cannot be read",
                hint="look at the object; removing it gives up what it was about",
            ) from error
        if _key(found.prefix) != info.key:
            raise RecordError(f"{store.url}/{info.key}: a record of {found.prefix}, under another's name")
        yield found


def strike(store: Store, prefix: str) -> None:
    """Nothing is left of it any more.  None there is fine, and looked for first: where a bucket keeps
    versions, to delete what is not there leaves a marker of it.  One that the bucket's own retention keeps
    stays until that ends.  Raises StoreErrors.
    """
    with suppress(NotFoundError, LockedError):
        store.stat(_key(prefix))
        store.delete(_key(prefix))


def _key(prefix: str) -> str:
    return f"{_LEFT}{prefix}.json"
