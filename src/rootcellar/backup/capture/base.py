"""From where deltas go on.  Pure: what the store holds in, a start or the want of a full out.

After a delta that ends with revision L the next one starts at L + 1.  After a full there are two revisions
to think of: H in its name, read before its stream, and R, with which its database really ends.

* EBR, which knows names only, expects a delta that starts at H + 1.  So that is where ours starts, though the
  full holds everything up to R: readers, EBR too, leave out of a first delta what they have already.
* EBR demands that its etcd is at a delta's last revision once it has been applied.  One that ended at or
  above H and below R would be wholly inside the full and leave etcd beyond it: its restore would stop.  So
  none does, ever.  (It may end with R: EBR skips a first delta that ends where the full does.)
* A full that follows deltas should not tear their chain: if it turns out damaged, the older full and all
  deltas must still lead on.  So where the newest delta ends below H, and etcd still has what follows, the
  next one starts right behind it and spans the full.  What ends below H sorts before the full, so EBR does
  not see it; what ends above R is a first delta that repeats something, as above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rootcellar.backup.capture.outcome import Need, NeedFull
from rootcellar.backup.catalogue.chain import chains
from rootcellar.backup.objects import codecs, delta
from rootcellar.errors import FormatError, NotFoundError
from rootcellar.etcd.fingerprint import Change, fingerprint

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.history import History, Snapshot
    from rootcellar.backup.objects.delta import Event
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Base:
    """What deltas continue.

    `held` is the newest revision that the store holds, and `ends` the snapshot that ends with it (None while
    that is a full on its way).  The next delta starts behind `torn`, the last delta of the chain before, if
    there is one that it can mend; else, or if etcd no longer has that, at `start`.  No delta may end in
    `forbidden`.  `auth_revision` is that of the last full, None when unknown.  `leases` are those with a TTL
    in the records behind it.  `wants` is a full that is needed soon, though deltas can go on before it.
    """

    start: int
    held: int
    ends: Snapshot | None
    forbidden: range
    torn: Snapshot | None = None
    auth_revision: int | None = None
    leases: frozenset[int] = frozenset()
    wants: NeedFull | None = None


def past_unrecorded(history: History, timeline: int, revision: int) -> Base | None:
    """Where deltas go on though a writer died between its newest full and that one's record.

    Behind the snapshots before it, past the full, in which no delta may end: it ends at or below `revision`,
    where etcd is now.  A new full is wanted, because nothing shows that its history is etcd's.  None where
    there is no such full, or the snapshots before it lead nowhere.
    """
    here = history.on(timeline)
    recorded = [each for each in here if not each.is_full or each.record is not None]
    dead = [each for each in here if each.is_full and each.record is None]
    if not dead or max(dead, key=_order) is not max(here, key=_order):
        return None
    base = base_of(replace(history, snapshots=tuple(recorded)), timeline)
    if isinstance(base, NeedFull):
        return None
    start = min([each.name.last for each in dead if each.name.last >= base.held], default=revision)
    if base.forbidden:
        start = min(start, base.forbidden.start)
    reason = f"nothing is recorded of {max(dead, key=_order).key}"
    wants = NeedFull(Need.EBR, reason)
    return replace(base, forbidden=range(start, max(revision, base.forbidden.stop)), wants=wants)


def _order(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.last, snapshot.name.created


def base_of(history: History, timeline: int) -> Base | NeedFull:
    """Where deltas go on on this timeline, or why they cannot."""
    found = chains(history, timeline)
    if not found:
        return NeedFull(Need.FIRST, "there is no full yet")
    chain = found[-1]
    full = chain.full
    if chain.gap is not None:
        first, last = chain.gap
        return NeedFull(Need.GAP, f"revisions {first} to {last} are missing behind {full.key}")
    if full.name.final:
        return NeedFull(Need.FINAL, f"{full.key} was meant to be the last")
    record = full.record
    leases = {lease.id for each in chain.deltas if each.record for lease in each.record.leases}
    auth_revision = record.auth_revision if record else None
    if chain.deltas:
        return Base(
            start=chain.reach + 1,
            held=chain.reach,
            ends=chain.deltas[-1],
            forbidden=range(full.name.last, full.last),
            auth_revision=auth_revision,
            leases=frozenset(leases),
        )
    before = found[-2].full.name.last if len(found) > 1 else full.name.last
    deltas = [each for each in history.on(timeline) if not each.is_full]
    newest = max(deltas, key=lambda each: each.last, default=None)
    # One that spans the full and ends with it is EBR's first delta; the next must not repeat anything.
    spanned = newest is not None and newest.last >= full.name.last
    return Base(
        start=newest.last + 1 if newest is not None and spanned else full.name.last + 1,
        held=full.last,
        ends=full,
        forbidden=range(full.name.last, full.last),
        torn=newest if newest is not None and before < newest.last < full.name.last else None,
        auth_revision=auth_revision,
    )


def fingerprint_of(store: Store, snapshot: Snapshot) -> str | None:
    """What the snapshot's last revision changed: from its record, or of a delta from its events.

    None when nothing tells: without a record a full and what is encrypted, a damaged delta.  Raises
    StoreErrors.
    """
    if snapshot.record is not None and snapshot.record.last_change is not None:
        return snapshot.record.last_change
    if snapshot.is_full or snapshot.name.is_encrypted:  # who captures need not be able to read
        return None
    last: list[Event] = []
    payload = codecs.decompress(store.get(snapshot.key), snapshot.name.suffix, name=snapshot.key)
    try:
        for events in delta.decode(codecs.hash_tail(payload, name=snapshot.key), last=snapshot.name.last):
            last = [event for event in [*last, *events] if event.mod_revision == events[-1].mod_revision]
    except (FormatError, NotFoundError):
        return None
    return fingerprint(
        Change(e.type, e.key, e.value, e.create_revision, e.mod_revision, e.version, e.lease) for e in last
    )
