"""Whether etcd still has the history that the store holds, and if not, up to where it had.

A restore forks history.  A restore by rootcellar makes a cluster with a new id, and announces it.  But others
restore too, and often under the old id (EBR always does), so every capture looks at the history itself: the
newest revision in the store must still be the same change in etcd.  HashKV would say more, and can hardly be
compared: it depends on the last compaction, which in a Kubernetes cluster is another one five minutes later,
and it reads the whole keyspace under a lock.  Where a recorded HashKV can be compared it is, if live hashes
are wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum, auto
from typing import TYPE_CHECKING

from rootcellar.backup.capture.base import fingerprint_of
from rootcellar.errors import CompactedError, EtcdDeniedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.backup.catalogue.history import History, Snapshot
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

_FIRST = 1
"""The revision of every etcd to which nothing was ever written."""


class Verdict(Enum):
    """How etcd's history compares with the store's."""

    SAME = auto()
    FORKED = auto()
    UNKNOWN = auto()


def newest_of(history: History) -> Snapshot | None:
    """The snapshot that ends with the newest revision of the living timeline."""
    here = history.on(history.newest_timeline)
    return max(here, key=lambda each: (each.last, each.name.created), default=None)


def compare(
    client: EtcdClient, store: Store, newest: Snapshot, revision: int, *, live_hash: bool = False
) -> Verdict:
    """Hold etcd, which is at `revision` now, against the newest snapshot.

    UNKNOWN when the revision it ends with is compacted away, or nothing tells what it was.
    """
    if revision < newest.last:
        return Verdict.FORKED
    if newest.last <= _FIRST:
        return Verdict.SAME
    expected = fingerprint_of(store, newest)
    found = client.fingerprint(newest.last) if expected is not None else None
    if expected is None or found is None:
        return Verdict.UNKNOWN
    if found != expected or (live_hash and _differs(client, newest)):
        return Verdict.FORKED
    return Verdict.SAME


def _differs(client: EtcdClient, newest: Snapshot) -> bool:
    """Whether HashKV at the recorded revision is another one for the same compaction."""
    recorded = newest.record.hashkv if newest.record else None
    if recorded is None:
        return False
    try:
        live = client.hash_kv(recorded.revision)
    except (CompactedError, EtcdDeniedError):
        return False
    return live.compact_revision == recorded.compact_revision and live.hash != recorded.hash


def fork_point(client: EtcdClient, snapshots: Sequence[Snapshot], revision: int) -> int:
    """The newest end of a snapshot that etcd, at `revision`, still has as it was; 0 when none can be shown.

    Histories part once, so the ends that agree lie below those that do not: a bisection finds the border.
    Compacted ends count as parted, because nothing shows that they are shared.
    """
    compacted = client.compact_revision()
    ends = {
        snapshot.last: snapshot.record.last_change
        for snapshot in snapshots
        if snapshot.record and snapshot.record.last_change and compacted < snapshot.last <= revision
    }
    revisions = sorted(ends)
    shared = bisect_left(revisions, True, key=lambda end: client.fingerprint(end) != ends[end])
    return revisions[shared - 1] if shared else 0
