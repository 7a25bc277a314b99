"""What differs between two keyspaces: two revisions, two backups, or a backup and a live etcd.

Both are read in key order and joined, so memory is what the two reads need.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from rootcellar.mvcc.history import EVERYTHING, Entry, KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.browse.live import Keyed, Readable
    from rootcellar.mvcc.record import KeyValue

Left = TypeVar("Left", bound="Keyed")
Right = TypeVar("Right", bound="Keyed")


class Kind(StrEnum):
    """What became of a key.  REWRITTEN: written again with what it held before."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that differs, as it was `before` and is `after`."""

    key: bytes
    kind: Kind
    before: KeyValue | None
    after: KeyValue | None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the record that differ, where there are two."""
        if self.before is None or self.after is None:
            return ()
        pairs = zip(self.before._fields, self.before, self.after, strict=True)
        return tuple(name for name, before, after in pairs if before != after)


def difference(
    before: Readable, after: Readable, within: KeyRange = EVERYTHING, *, rewritten: bool = False
) -> Iterator[Difference]:
    """The keys whose value or lease differs, in key order; with `rewritten` also those where only revisions
    or version do.  Raises what reading either raises.
    """
    for left, right in joined(before.live(within), after.live(within)):
        if left is None or right is None:
            if right is not None:
                yield Difference(right.key, Kind.ADDED, None, right.record)
            elif left is not None:
                yield Difference(left.key, Kind.REMOVED, left.record, None)
            continue
        if isinstance(left, Entry) and isinstance(right, Entry) and left.is_same(right):
            continue
        was, now = left.record, right.record
        if (was.value, was.lease) != (now.value, now.lease):
            yield Difference(left.key, Kind.CHANGED, was, now)
        elif rewritten and was != now:
            yield Difference(left.key, Kind.REWRITTEN, was, now)


def joined(left: Iterator[Left], right: Iterator[Right]) -> Iterator[tuple[Left | None, Right | None]]:
    """Two streams in key order as one: pairs of what has the same key, None where a side has it not."""
    a, b = next(left, None), next(right, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a.key < b.key):
            yield a, None
            a = next(left, None)
        elif a is None or b.key < a.key:
            yield None, b
            b = next(right, None)
        else:
            yield a, b
            a, b = next(left, None), next(right, None)
