"""Telling one prefix of a restore that was made from another.

A restore leaves its fork intent where it read.  Where that was a copy, or a chain that was written beside the
first store while it was away, the first store has to hear of it, or it would take the restored cluster for a
foreign one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.ownership import ForkIntent, Timeline
from rootcellar.backup.catalogue.timeline import leave_fork_intent
from rootcellar.errors import NotFoundError, RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.backup.catalogue.documents import Document
    from rootcellar.stores.protocol import Store

D = TypeVar("D", bound="Document")


def carry_intents(origin: Store, target: Store, cluster_id: str) -> tuple[ForkIntent, ...]:
    """Leave in `target` what `origin` knows of restores that made this cluster; what was left.

    Carried over is what forks from a history that both have: the same timeline, or one of the cluster that
    the target's newest timeline is of, as one that was begun while the target was away.  Killed in between,
    it is done again.  Raises StoreErrors.
    """
    wanted = [each for each in _all(origin, keys.FORKS, ForkIntent) if each.cluster_id == cluster_id]
    if not wanted:
        return ()
    ours, theirs = _timelines(target), _timelines(origin)
    known = {each.nonce for each in _all(target, keys.FORKS, ForkIntent)}
    left = []
    for intent in wanted:
        number = _counterpart(theirs.get(intent.timeline), ours)
        if intent.nonce not in known and number is not None:
            left.append(leave_fork_intent(target, msgspec.structs.replace(intent, timeline=number)))
    return tuple(left)


def _counterpart(timeline: Timeline | None, ours: dict[int, Timeline]) -> int | None:
    """What a timeline of the origin is called in the target."""
    if timeline is None or not ours:
        return None
    same = ours.get(timeline.number)
    if same is not None and same.nonce == timeline.nonce:
        return same.number
    newest = ours[max(ours)]
    return newest.number if newest.cluster_id == timeline.cluster_id else None


def _timelines(store: Store) -> dict[int, Timeline]:
    return {each.number: each for each in _all(store, keys.TIMELINES, Timeline)}


def _all(store: Store, prefix: str, kind: type[D]) -> Sequence[D]:
    found = []
    for info in store.list(prefix):
        try:
            found.append(documents.fetch(store, info.key, kind))
        except (NotFoundError, RecordError):
            continue  # the catalogue reports what is damaged
    return found
