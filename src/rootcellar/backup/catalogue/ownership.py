"""Whose prefix this is, which of its histories is alive, and who may write.

The documents only; `timeline` and `fence` write them in their order.  Those with a number are create-only,
so of two writers that race for the next one a single one gets it, and the highest number is what holds.
"""

from __future__ import annotations

from rootcellar.backup.catalogue.documents import Document
from rootcellar.backup.catalogue.records import (  # noqa: TC001  msgspec reads the annotations at run time
    Count,
    HashKV,
    Id,
    Moment,
    Sha256,
)


class Marker(Document, frozen=True, kw_only=True):
    """Binds the prefix to an etcd cluster.  `reason` says why a later one replaced an earlier."""

    number: Count
    cluster_id: Id
    writer: str
    created_at: Moment
    reason: str = ""


class Timeline(Document, frozen=True, kw_only=True):
    """One unforked history.  It shares with `parent` everything up to `forked_at`, and nothing above.

    `intent` is the nonce of the fork intent that it follows, if a restore left one.
    """

    number: Count
    parent: Count | None
    forked_at: Count
    cluster_id: Id
    writer: str
    created_at: Moment
    nonce: str
    intent: str = ""


class ForkIntent(Document, frozen=True, kw_only=True):
    """Left by a restore: a cluster with this id continues from revision `forked_at` of that timeline.

    `revision` is what the restored members count on from: above `forked_at` when revisions were bumped.
    """

    nonce: str
    timeline: Count
    forked_at: Count
    revision: Count
    cluster_id: Id
    created_at: Moment
    by: str
    hashkv: HashKV | None = None


class Epoch(Document, frozen=True, kw_only=True):
    """The right to write, until somebody takes the next number."""

    number: Count
    nonce: str
    writer: str
    created_at: Moment


class Claim(Document, frozen=True, kw_only=True):
    """What a writer is about to publish in the slot that begins at revision `start`: key and hash.

    Of a full that is streamed nobody knows the hash yet; its database ends at or below `reached`.
    """

    start: Count
    epoch: Count
    timeline: Count
    key: str
    stored_sha256: Sha256 | None
    created_at: Moment
    reached: Count | None = None


class Heartbeat(Document, frozen=True, kw_only=True):
    """An agent was alive and saw etcd at `revision`: tells a quiet etcd from a dead agent."""

    time: Moment
    revision: Count
    timeline: Count
    epoch: Count
    agent: str
