"""What lies in a bucket for nobody: what forced deletions of entries left, and prefixes that no entry names.

Both are told, in conditions and metrics, whenever a bucket is reconciled or checked; of a store that does not
let itself be listed nothing is told, and the bucket is no worse for that.  What was left is deleted once its
locks have ended, if the annotation `COLLECT` asks for it, and only where the prefix is certainly dead: no
entry of this cluster has it, the bucket is nobody else's, no hold is on any of it, nobody has written there
since.  Prefixes without an entry are never deleted: they may well be another cluster's, or kept on purpose.

Killed between the objects and their record: the next look finds nothing below the prefix, and strikes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rootcellar.errors import FencedError, RootcellarError
from rootcellar.kube.steps import Outcome, Requeue
from rootcellar.logs import told
from rootcellar.operator.backupbucket.findings import LEFT, UNNAMED, left, unnamed
from rootcellar.operator.backupbucket.run import COLLECT
from rootcellar.operator.backupentry.holds import held
from rootcellar.operator.shared import ledger
from rootcellar.operator.shared.removal import SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rootcellar.operator.backupbucket.metrics import BucketMetrics
    from rootcellar.operator.backupbucket.run import Run
    from rootcellar.operator.shared.ledger import Left
    from rootcellar.operator.shared.removal import Removals
    from rootcellar.stores.protocol import Store


_CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""The store's from ours, at most."""


class Named(NamedTuple):
    """An entry of this cluster, the bucket that it names, and the first part of its keys there."""

    entry: str
    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """`entries` are those of this cluster, as the API server has them now; `stranger` says why a bucket is
    not ours alone.
    """

    entries: Callable[[], Iterable[Named]]
    stranger: Callable[[Run], str]
    removals: Removals
    metrics: BucketMetrics

    def look(self, each: Run) -> Outcome | None:
        """An outcome where more is to be deleted."""
        try:
            seen = self._seen(each)
            outcome = self._collect(each, seen) if each.says(COLLECT) else None
        except FencedError:
            raise
        except RootcellarError as error:
            each.subject.ground.log.warning("leftovers-unknown", bucket=each.name, **told(error))
            return None
        objects = sum(record.locked for record in seen.left)
        self.metrics.saw(each.name, left=objects, unnamed=len(seen.unnamed))
        findings = [unnamed(seen.unnamed)] if seen.unnamed else []
        if seen.left:
            findings.append(left(seen.left, each.subject.ground.now(), way_out=f"{COLLECT}=true"))
        each.subject.refresh()  # listings take their time, and others write meanwhile
        each.subject.find(findings, gone=[LEFT, UNNAMED])
        return outcome

    def _seen(self, each: Run) -> _Seen:
        """First what lies there, then the entries, then the records: an entry goes after its record has come,
        and its objects before both, so that none of them is taken for nobody's in between.
        """
        store, parts = each.admin.ours(), set(each.admin.prefixes())
        named = set(self.entries()) if parts else set()
        seen = _Seen(named)
        known = {one.prefix for one in named if one.bucket == each.name}
        for record in list(ledger.records(store)):
            if f"{record.prefix}/" not in parts:  # somebody, or a rule of the bucket, has deleted it
                ledger.strike(store, record.prefix)
            elif record.prefix not in known:  # else it has an entry again, whose deletion deals with both
                seen.left.append(record)
                known.add(record.prefix)
        if suspects := {part for part in parts if part.removesuffix("/") not in known}:
            # Listed again: an entry that went between the first two lists took its objects along.
            seen.unnamed += sorted(suspects.intersection(each.admin.prefixes()))
        return seen

    def _collect(self, each: Run, seen: _Seen) -> Outcome | None:
        now, used = each.subject.ground.now(), {named.prefix for named in seen.named}
        ready = [record for record in seen.left if record.may_go(now) and record.prefix not in used]
        if not ready or self.stranger(each):
            return None
        for record in ready:
            if _is_wanted(each.admin.below(record.prefix), record):
                continue
            until = each.subject.ground.now() + SLICE
            found = each.admin.delete_objects(
                record.prefix,
                stop=lambda: each.subject.ground.now() >= until or not self.removals.may_write(),  # noqa: B023  run here
                rate=self.removals.rate,
            )
            if not found.complete:
                return Requeue(0)
            if not found.gone:
                continue  # something holds it still: the record stays
            ledger.strike(each.admin.ours(), record.prefix)
            seen.left.remove(record)
            note = f"{found.deleted} objects that a forced deletion left below {record.prefix}/ are deleted"
            each.subject.tell("LeftCollected", "DeleteObjects", note)
        return None


def _is_wanted(store: Store, left: Left) -> bool:
    """Whether somebody holds some of it, or has written there: an agent that lives does so all the time."""
    dead = left.since + _CLOCKS_DIFFER
    return bool(held(store)) or any(info.modified > dead for info in store.list())


@dataclass(slots=True)
class _Seen:
    named: set[Named]
    left: list[Left] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
