"""From a catalogue and a wish to a restore plan.  Pure: no store, no clock, no randomness but the token
given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import AtRevision, AtTime, ChainPlan, Step, plan_chain
from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.restore.plan import (
    DEFAULT_QUOTA,
    ExpectedHash,
    PlannedObject,
    RestorePlan,
    planned_members,
)
from rootcellar.errors import ChainError, NotFoundError, NothingToRestoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.backup.catalogue.history import History, Snapshot

DEFAULT_MEMBER = "default=http://localhost:2380"
"""What etcd itself is called when nobody names it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks of a restore.  `members` are `name=peer-url`; `compact_to` None: the chain's records
    say.

    `bump_revision` None: Kubernetes' keys are raised, others not.  `quota` in bytes, 0 for no limit.
    `announce`: the restored cluster will go on writing, not only be looked at.
    """

    target: Target
    token: str
    members: tuple[str, ...] = (DEFAULT_MEMBER,)
    timeline: int | None = None
    for_etcd: str | None = None
    bump_revision: int | None = None
    keep_history: bool = False
    compact_to: int | None = None
    quota: int = DEFAULT_QUOTA
    exclude: frozenset[str] = frozenset()
    announce: bool = False


def plan_restore(history: History, store_url: str, wish: Wish) -> RestorePlan:
    """Raises NothingToRestoreError, ChainError, UsageError (with what can be restored instead), NotFoundError
    (what is to be excluded).
    """
    wish = replace(wish, exclude=_named(history, wish.exclude))
    cluster_id, members = planned_members(wish.members, wish.token)
    chain, cut = _chain(history, wish)
    full = chain.full.record
    return RestorePlan(
        store=store_url,
        full=_planned(chain.full),
        deltas=tuple(_planned(step.snapshot) for step in chain.steps),
        token=wish.token,
        cluster_id=cluster_id,
        members=members,
        upto=chain.revision if cut is None else cut,
        moment=chain.moment,
        must_stop=chain.must_stop,
        timeline=chain.timeline,
        source_version=full.etcd_version if full else "",
        for_etcd=wish.for_etcd,
        compact_revision=_compaction(chain, wish, chain.revision if cut is None else cut),
        bump_revision=wish.bump_revision,
        quota=wish.quota,
        lease_ttls=_lease_ttls(chain.snapshots),
        expected=_expected(chain),
        covers=" to ".join(map(_moment, chain.covers)),
        warnings=_warnings(chain, cut),
        announce=wish.announce,
    )


def plan_bare(url: str, planned: PlannedObject, wish: Wish) -> RestorePlan:
    """The plan for one snapshot file that belongs to no catalogue.  Raises UsageError."""
    if isinstance(wish.target, AtTime):
        raise UsageError(
            "a single snapshot file knows no times", hint="give --to-revision, or restore from a store"
        )
    upto = wish.target.revision if isinstance(wish.target, AtRevision) else None
    if wish.exclude:
        raise UsageError(
            "a single snapshot file has nothing that it could do without", hint="leave out --exclude"
        )
    cluster_id, members = planned_members(wish.members, wish.token)
    return RestorePlan(
        store=url,
        full=planned,
        deltas=(),
        token=wish.token,
        cluster_id=cluster_id,
        members=members,
        upto=upto,
        for_etcd=wish.for_etcd,
        bump_revision=wish.bump_revision,
        compact_revision=-1 if (asked := _asked_compaction(wish, upto)) is None else asked,
        quota=wish.quota,
    )


def _named(history: History, wanted: Collection[str]) -> frozenset[str]:
    """The keys of objects that a person named by key or by name alone."""
    keys = {
        word: each.key for each in history.snapshots for word in (each.name.name, each.name.key, each.key)
    }
    for word in wanted:
        if word not in keys:
            raise NotFoundError(
                f"{word}: no such snapshot, so nothing can do without it",
                hint="`rootcellar ls --objects` has their names",
            )
    return frozenset(keys[word] for word in wanted)


def _chain(history: History, wish: Wish) -> tuple[ChainPlan, int | None]:
    """The chain, and the revision to cut a full's own history back to, if no chain but that serves."""
    try:
        chain = plan_chain(history, wish.target, timeline=wish.timeline, exclude=wish.exclude)
    except (NothingToRestoreError, ChainError):
        if not isinstance(wish.target, AtRevision):
            raise
        full = _full_above(history, wish.target.revision, wish.timeline, wish.exclude)
        if full is None:
            raise
        later = AtRevision(full.last)
        chain = plan_chain(history, later, timeline=wish.timeline, exclude=wish.exclude)
        if chain.full.key != full.key:
            raise
        return chain, wish.target.revision
    return chain, None


def _full_above(
    history: History, revision: int, timeline: int | None, exclude: Collection[str]
) -> Snapshot | None:
    """The first full above a revision that still holds the history down to it.

    Without a record it is not known how far down: the restore will find out.
    """
    number = history.newest_timeline if timeline is None else timeline
    fulls = (
        each
        for each in history.on(number)
        if each.is_full
        and each.key not in exclude
        and each.last >= revision
        and (each.record is None or each.record.compact_revision <= revision)
    )
    return min(fulls, key=lambda each: each.last, default=None)


def _planned(snapshot: Snapshot) -> PlannedObject:
    record = snapshot.record
    return PlannedObject(
        key=snapshot.key,
        size=snapshot.size,
        suffix=snapshot.name.suffix,
        last=snapshot.name.last,
        payload_size=record.payload_size if record else 0,
        recorded_size=record.stored_size if record else 0,
        sha256=record.stored_sha256 if record else "",
    )


def _asked_compaction(wish: Wish, upto: int | None) -> int | None:
    """--compact-to, if it goes with the rest.  `upto` is the revision that is restored, if that is known."""
    if wish.compact_to is not None and wish.keep_history:
        raise UsageError("--keep-history and --compact-to exclude each other", hint="give one of them")
    if wish.compact_to is not None and upto is not None and wish.compact_to > upto:
        raise UsageError(
            f"--compact-to {wish.compact_to} lies above the target, {upto}",
            hint="compact at or below the revision that is restored",
        )
    return wish.compact_to


def _compaction(chain: ChainPlan, wish: Wish, upto: int | None) -> int:
    asked = _asked_compaction(wish, upto)
    if asked is not None:
        return asked
    if wish.keep_history:
        return -1
    # A restore to a time ends somewhere in its last delta; what is certain is where that one begins.
    return chain.compaction(upto if upto is not None else _after(chain.steps, chain.full))


def _after(steps: Iterable[Step], full: Snapshot) -> int:
    return max((step.after for step in steps), default=full.last)


def _lease_ttls(snapshots: Iterable[Snapshot]) -> dict[int, int]:
    records = (snapshot.record for snapshot in snapshots if snapshot.record is not None)
    return {lease.id: lease.ttl for record in records for lease in record.leases}


def _expected(chain: ChainPlan) -> ExpectedHash | None:
    record = chain.full.record
    if record is None or record.hashkv is None:
        return None
    return ExpectedHash(record.hashkv.hash, record.hashkv.revision, record.hashkv.compact_revision)


def _warnings(chain: ChainPlan, cut: int | None) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for snapshot in chain.snapshots:
        for notice in snapshot.record.warnings if snapshot.record else ():
            found.setdefault(notice.code, notice.message)
    told = list(found.values())
    if chain.full.record is None:
        told.append("the full has no record: its hashes are checked, its HashKV cannot be compared")
    if cut is not None:
        told.append(
            f"no chain ends at revision {cut}: the full at {chain.full.last} is cut back to it, "
            f"and keeps that full's users and roles; leases that ended since then begin anew"
        )
    elif chain.steps:
        told.append(f"users and roles are those of the full, taken {_moment(chain.full.ended_at)}")
    return tuple(told)


def _moment(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
