"""What a prune does: whether it may at all, and then every object's fate, with the reason and in order.

Pure: what lies there, rules and a moment in, a plan out.  `prune.judgement` decides on snapshots,
`prune.sweep` on everything else, `prune` carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.history import nanoseconds
from rootcellar.backup.prune.judgement import Judgement
from rootcellar.backup.prune.sweep import Sweep
from rootcellar.backup.prune.values import PrunePlan
from rootcellar.errors import DoubtError, IdentityError

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.prune.values import Ground, Live, Rules

_DOUBTFUL = (keys.HOLDS, keys.PINS, keys.MARKERS, keys.TIMELINES, keys.FORKS)


def plan_prune(ground: Ground, rules: Rules, now: datetime, live: Live | None = None) -> PrunePlan:
    """Decide on everything below a prefix.

    `now` is aware, and best the store's own time, to which its objects' ages are held.  Raises DoubtError and
    IdentityError where nothing may be deleted at all.
    """
    refuse_doubt(ground.catalogue, live)
    judgement = Judgement(ground, rules, now)
    decisions = list(judgement.decisions())
    sweep = Sweep(ground, rules, now, decisions)
    snapshots = (
        each
        if each.keep or each.snapshot is None
        else each._replace(dependents=sweep.dependents(each.snapshot))
        for each in decisions
    )
    return PrunePlan(tuple(snapshots), tuple(sweep.decisions()))


def refuse_doubt(catalogue: Catalogue, live: Live | None = None) -> None:
    """Raises DoubtError or IdentityError where deleting anything could be a mistake."""
    marker = catalogue.marker
    if live is not None and live.corrupt:
        raise DoubtError(
            "etcd has a CORRUPT alarm: older backups may be the only good ones",
            hint="find the member that differs, repair it, disarm the alarm; until then nothing is deleted",
        )
    if live is not None and marker is not None and marker.cluster_id != live.cluster_id:
        raise IdentityError(
            f"the backups are of cluster {marker.cluster_id}, and etcd is cluster {live.cluster_id}",
            hint="name the store of this etcd, or leave --endpoints out to prune without asking one",
        )
    for damage in catalogue.damaged:
        if damage.key.startswith(_DOUBTFUL):
            raise DoubtError(
                f"{damage.key} cannot be believed: {damage.reason}",
                hint="it may forbid a deletion; find out what it said, then remove it",
            )
    newest = max(catalogue.timelines, key=lambda each: each.number, default=None)
    if marker is not None and newest is not None and marker.cluster_id != newest.cluster_id:
        raise DoubtError(
            f"the prefix was bound to cluster {marker.cluster_id}, which has no timeline yet",
            hint="take a snapshot of that cluster first: it opens the timeline",
        )
    intent = _pending(catalogue, live)
    if intent:
        raise DoubtError(
            f"a restore announced a fork at revision {intent}, and nothing was captured since",
            hint="take a snapshot first: it shows which history goes on",
        )


def _pending(catalogue: Catalogue, live: Live | None) -> int:
    """The revision of a fork that may have come, 0 for none.

    An intent whose cluster never came stays for ever, so it counts no longer once something was captured
    later: of the cluster that is asked, if one is.
    """
    if live is not None and (mine := catalogue.pending_intent(live.cluster_id)) is not None:
        return mine.forked_at
    seen = max((each.ended_at for each in catalogue.snapshots), default=0)
    if catalogue.heartbeat is not None:
        seen = max(seen, nanoseconds(catalogue.heartbeat.time) or 0)
    followed = {timeline.intent for timeline in catalogue.timelines}
    for intent in catalogue.intents:
        if intent.nonce not in followed and (nanoseconds(intent.created_at) or 0) >= seen:
            return intent.forked_at
    return 0
