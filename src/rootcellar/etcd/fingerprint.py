"""What one revision changed, as a digest.

After a restore a cluster counts the same revisions again, with other changes.  Whoever knows what a revision
changed before can tell by it whether etcd still has the history that it had: unlike HashKV this costs one
event and does not depend on what has been compacted since.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rootcellar.etcd._proto.kv_pb2 import Event

_NUMBERS = struct.Struct("<B4q2Q")


class Change(NamedTuple):
    """One event, without the time that somebody saw it at.  A delete has only key and `mod_revision`."""

    kind: int
    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


def change_of(event: Event) -> Change:
    """The change that a watch event tells."""
    kv = event.kv
    record = kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease
    return Change(event.type, *record)


def fingerprint(changes: Iterable[Change]) -> str:
    """Hex sha256 over the changes of one revision, in their order.

    Each is, little-endian, `kind u8, create i64, mod i64, version i64, lease i64, key length u64, value
    length u64`, then key and value.
    """
    digest = hashlib.sha256()
    for change in changes:
        numbers = change.create_revision, change.mod_revision, change.version, change.lease
        digest.update(_NUMBERS.pack(change.kind, *numbers, len(change.key), len(change.value)))
        digest.update(change.key)
        digest.update(change.value)
    return digest.hexdigest()
