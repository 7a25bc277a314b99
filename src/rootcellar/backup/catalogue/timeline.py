"""Binding a prefix to a cluster, and forking its history when a restore has forked the cluster's.

A fork in order, and what a crash after each write leaves:

1. the restore writes a fork intent, then swaps the data directory.  Killed between: an intent for a fork that
   never came.  The agent compares HashKV before it believes in one.
2. the agent binds the marker to the restored cluster's id, which the intent names.  Killed: the next start
   finds the marker and the intent.
3. it opens the timeline.  Killed: a timeline without a full, whose state is to every reader its parent's up
   to the fork; the next start finds that the newest timeline has no full, and goes on with 4.
4. it moves what EBR would still see of the dead timelines to `abandoned/`, newest first.  Killed: EBR sees
   the old history up to some revision; running it again moves the rest.
5. it takes a full.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.ownership import ForkIntent, Marker, Timeline
from rootcellar.errors import (
    AlreadyExistsError,
    FencedError,
    IdentityError,
    LockedError,
    StoreError,
)

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What was moved out of EBR's sight, and what the store would not let go of: with the latter, etcdbrctl
    must no longer be used on this prefix.
    """

    moved: tuple[str, ...]
    locked: tuple[str, ...]


def bind_marker(store: Store, cluster_id: str, *, writer: str, now: datetime, override: str = "") -> Marker:
    """Make sure that this prefix is the cluster's, and claim an unclaimed one for it.

    A restored cluster is let in by the intent that its restore left, any other by `override` (the reason,
    which is written down).  Raises IdentityError; RecordError when the marker cannot be read, as then
    nobody knows.
    """
    last = _last(store, keys.MARKERS)
    marker = None if last is None else documents.fetch(store, last, Marker)
    if marker is not None and marker.cluster_id == cluster_id:
        return marker
    reason = "" if marker is None else _admission(store, cluster_id) or override
    if marker is not None and not reason:
        raise IdentityError(
            f"{store.url} holds the backups of cluster {marker.cluster_id}, and this is cluster {cluster_id}",
            hint="give every cluster a prefix of its own; override only where this one continues that one",
        )
    number = 1 if marker is None else marker.number + 1
    bound = Marker(number=number, cluster_id=cluster_id, writer=writer, created_at=now, reason=reason)
    if not _is_first(store, keys.marker(number), bound):
        # Somebody bound it in the same moment: look at it as it is now.
        return bind_marker(store, cluster_id, writer=writer, now=now, override=override)
    return bound


def _is_first(store: Store, key: str, document: Marker | Timeline) -> bool:
    """Write a document; whether it is the one that stays.

    Read again, because a store without conditional create may have let two writers pass.
    """
    try:
        documents.put_once(store, key, document)
    except AlreadyExistsError:
        return False
    return documents.fetch(store, key, type(document)) == document


def _admission(store: Store, cluster_id: str) -> str:
    for info in store.list(keys.FORKS):
        intent = documents.fetch(store, info.key, ForkIntent)
        if intent.cluster_id == cluster_id:
            return f"fork intent {intent.nonce}"
    return ""


def leave_fork_intent(store: Store, intent: ForkIntent) -> ForkIntent:
    """Announce a restored cluster, once: an intent with this nonce that is there already is returned instead.

    All members of one restore share a nonce, on whatever number of hosts it is carried out.
    """
    for info in store.list(keys.FORKS):
        if info.key.endswith(f"_{intent.nonce}.json"):
            return documents.fetch(store, info.key, ForkIntent)
    documents.put_once(store, keys.fork(intent.created_at, intent.nonce), intent)
    return intent


def open_timeline(
    store: Store,
    *,
    parent: int | None,
    forked_at: int,
    cluster_id: str,
    writer: str,
    now: datetime,
    intent: str = "",
) -> Timeline:
    """Begin a history: the first of a prefix (no parent, forked at 0), or one that forks from `parent`.

    Raises FencedError when another writer opens one at the same moment.
    """
    last = _last(store, keys.TIMELINES)
    number = 1 if last is None else documents.fetch(store, last, Timeline).number + 1
    if parent is not None and number <= parent:
        number = parent + 1  # the parent is known from its snapshots alone
    timeline = Timeline(
        number=number,
        parent=parent,
        forked_at=forked_at,
        cluster_id=cluster_id,
        writer=writer,
        created_at=now,
        nonce=secrets.token_hex(8),
        intent=intent,
    )
    if not _is_first(store, keys.timeline(number), timeline):
        raise FencedError(
            f"another writer opened timeline {number} of {store.url}",
            hint="more than one agent writes to this prefix; stop all but one",
        )
    return timeline


def abandon(store: Store, catalogue: Catalogue) -> Abandonment:
    """Move what EBR would see and the newest timeline does not share to `abandoned/`.  Can be repeated.

    Newest first, so that EBR sees an unbroken older history at every moment; copy, then delete, so that a
    crash leaves an object twice and never not at all.
    """
    alive = {stretch.timeline: stretch.upto for stretch in catalogue.lineage()}
    moved, locked = [], []
    for snapshot in reversed(catalogue.snapshots):
        upto = alive.get(snapshot.timeline, 0)
        is_seen = snapshot.key == snapshot.name.key and not snapshot.name.is_sealed
        if not is_seen or upto is None or snapshot.last <= upto:
            continue
        if _move(store, snapshot):
            moved.append(snapshot.key)
        else:
            locked.append(snapshot.key)
    return Abandonment(tuple(moved), tuple(locked))


def _move(store: Store, snapshot: Snapshot) -> bool:
    target = keys.abandoned(snapshot.name, snapshot.timeline)
    if keys.parse_abandoned(target) is None:
        return False  # a v1 directory that nothing ever wrote: it could not be found again
    # Not create-only: what a killed run left there was put whole, and is the same bytes.
    copied = store.put(target, store.get(snapshot.key))
    if copied.size != snapshot.size:
        store.delete(target)
        raise StoreError(
            f"{snapshot.key} has {copied.size} bytes and was listed with {snapshot.size}",
            hint="somebody writes to it; try again when nothing does",
        )
    try:
        store.delete(snapshot.key)
    except LockedError:
        store.delete(target)
        return False
    return True


def _last(store: Store, prefix: str) -> str | None:
    last = None
    for info in store.list(prefix):
        last = info.key
    return last
