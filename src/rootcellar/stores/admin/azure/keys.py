"""Keys of a storage account: which is in use, and when the other is made anew.  Pure.

An account has two keys, so that one can be replaced while the other serves.  The older one is replaced, and
published once it is there; whoever still uses the other has a whole period to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rootcellar.stores.admin.provider_config import Rotation


@dataclass(frozen=True, slots=True)
class Key:
    """`made` is None where Azure does not know: keys from before it noted that."""

    name: str
    value: str
    made: datetime | None

    def __repr__(self) -> str:
        return f"Key({self.name!r}, made={self.made})"


def by_age(keys: Sequence[Key]) -> list[Key]:
    """Newest first; of two from the same moment the first by name; those of unknown age are the oldest.

    Raises StoreError for an account without keys.
    """
    if not keys:
        raise StoreError("the storage account has no keys", hint="look whether its keys were switched off")
    named = sorted(keys, key=lambda key: key.name)
    return sorted(named, key=lambda key: (key.made is None, -key.made.timestamp() if key.made else 0.0))


def to_replace(
    keys: Sequence[Key], published: str | None, rotation: Rotation | None, now: datetime, *, forced: bool
) -> Key | None:
    """The key to make anew now; None for none.  `published` is the value that is in use.

    Where that is not the newest, an earlier rotation died before it published: that comes first.
    """
    ordered = by_age(keys)
    newest = ordered[0]
    if len(ordered) < 2 or (published is not None and published != newest.value):
        return None
    if forced:
        return ordered[-1]
    if rotation is None:
        return None
    is_due = newest.made is None or now - newest.made > rotation.after
    return ordered[-1] if is_due else None
