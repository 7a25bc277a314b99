"""Which leases a fold keeps.

Deltas tell what keys are attached to, not when a lease ended: that shows only in the deletion of its keys.
So of the leases that the chain speaks of, those stay that a live key is attached to at the end.  One that the
base has, and that no key was attached to, may be alive as well, and stays, too: these are etcd's own, and
folding does not make more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.mvcc.meta import leases
from rootcellar.mvcc.record import decode
from rootcellar.mvcc.rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Collection

    from rootcellar.bolt.file import BoltFile

_TAG = 0x30
"""What stands before the lease, which is the last field of a row."""


def unused_leases(base: BoltFile) -> set[int]:
    """Those of a chain's full that no live key is attached to."""
    known = leases(base).keys()
    return known - attached_leases(base) if known else set()


def kept_leases(chained: BoltFile, unused: Collection[int], mentioned: Collection[int]) -> set[int]:
    """Those that a fold of this database keeps.

    `unused` are the base's that no key was attached to, `mentioned` those that the deltas speak of.
    """
    known = leases(chained).keys()
    if not known:
        return set()
    return known & (attached_leases(chained) | set(unused).difference(mentioned))


def attached_leases(file: BoltFile) -> set[int]:
    """Those that a live key is attached to.  Raises BoltError, RecordError.

    Memory: some 150 bytes for each such key.
    """
    holders: dict[bytes, int] = {}
    for rows in KeyRows(file):
        spans = zip(rows.elements.values.tolist(), rows.elements.ends.tolist(), strict=True)
        buffer = rows.tree.buffer
        for key, (start, end) in zip(rows.user_keys(), spans, strict=True):
            value = buffer[start:end]
            lease = decode(value).lease if _may_have_lease(value) else 0
            if lease:
                holders[key] = lease
            else:
                holders.pop(key, None)
    return set(holders.values())


def _may_have_lease(value: bytes) -> bool:
    """Whether it ends as a row with a lease would; a key or a value can end so by chance."""
    at = len(value) - 2
    while at > 0 and value[at] & 0x80:
        at -= 1
    return at > 0 and value[at] == _TAG
