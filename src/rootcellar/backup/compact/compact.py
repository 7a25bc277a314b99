"""Folding a chain into a new full, from the store alone: no etcd runs, and none is asked.

The fold is written beside a running agent and must not fence it, so it claims no epoch.  It needs none.  An
epoch keeps two writers from telling the same revisions differently, and a fold tells nothing new: what it
writes follows from objects that are there.  It is named by the revision it ends with, N, and holds exactly
that (H = R = N in the words of `capture.base`), so a delta that the agent publishes meanwhile lies wholly
above it, ends with it, or spans it, all of which both readers take: EBR begins with the last full and trims
its first delta.  An agent that plans from the catalogue again goes on at N + 1, because the record has what
it asks for: cluster, auth revision, and the fingerprint of revision N.

One thing can make a fold wrong: that history forks while it is under way, and N is of the dead part.  So the
timelines are looked at before the upload and again after it.

In order, and what is there when it is killed behind each step:

1. a pin, so that no prune takes the chain away while it is read.  It expires.
2. the claim: timeline, name and hash of what comes.  Nothing visible.
3. the object, create-only, visible whole or not at all.  A valid full without a record, whose claim tells the
   timeline; the next fold proves that it is what the chain comes to, and records it.  A capture that comes
   before takes a full, as behind any full of which nobody knows what it ends with.
4. the record.  All is there.
5. the timelines, read again.  If history forked below N: a tombstone, then the object is removed.
6. the claim, which has served, and the pin are removed.

Killed between 3 and 5 of a fold that a fork overtook, the object stays; rootcellar's readers know by claim
or record that it is of the dead timeline, and `timeline.abandon` moves it out of EBR's sight when it runs
next.

The result is never `.final`, though the base may have been: a fold promises nothing for its etcd.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.capture.publisher import used_keys, utc_now
from rootcellar.backup.catalogue import documents, keys, ledger, names, records
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.history import History, Snapshot
from rootcellar.backup.catalogue.ownership import Claim, Timeline
from rootcellar.backup.catalogue.records import AT_REST, Caution, Link, Record
from rootcellar.backup.compact.build import build, chunks, pack, reread, scratch_directory, seal
from rootcellar.backup.compact.plan import cluster_of, plan_compaction, refuse_exposure
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.objects.sealing.seal import unlock
from rootcellar.backup.restore.pins import pinned
from rootcellar.errors import AlreadyExistsError, FencedError, LockedError, StoreError
from rootcellar.stores.protocol import Create

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.compact.build import Built, Packed
    from rootcellar.backup.compact.plan import Fold
    from rootcellar.backup.objects.sealing.keyring import Keyring, Recipient
    from rootcellar.backup.restore.database import Progress
    from rootcellar.mvcc.hashkv import HashKV
    from rootcellar.stores.protocol import Store

_UNKNOWN_MEMBER = "0"
_KEPT_NOTICES = frozenset({"etcd-may-diverge", "etcd-corrupt-alarm", Caution.EBR_CANNOT_SEE})


@dataclass(frozen=True, slots=True)
class Compacted:
    """A full that a chain was folded into.

    `base_size` and `size` are the databases of the chain's full and of the new one, in bytes; `stored_size`
    is the new object's, `chain_size` that of all folded ones.  `record` is None in a prefix that no cluster
    was bound to.
    """

    key: str
    folded: tuple[str, ...]
    hashkv: HashKV
    base_size: int
    chain_size: int
    size: int
    stored_size: int
    rows_dropped: int
    seconds: float
    record: Record | None


def compact(  # noqa: PLR0913 - all but the first have defaults that do, or a name
    store: Store,
    target: Target | None = None,
    *,
    by: str,
    suffix: str = names.GZIP,
    recipients: Sequence[Recipient] = (),
    keyring: Keyring = NO_KEYS,
    compact_to: int | None = None,
    scratch: Path | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Compacted | None:
    """Fold a chain of `store` into a full; None when there is nothing to fold.

    `by` is the writer's name in the record.  `suffix` says how the full is compressed, and whether it is
    encrypted for `recipients`; `keyring` opens what is.  `scratch` is where the databases are built: about
    twice the size of the base and what the deltas add.  `progress` is called with "full" (bytes), "deltas"
    (events) and "store" (bytes).

    Raises what `plan_compaction` does; UsageError (`refuse_exposure`), NoKeyError, DamagedObjectError,
    ProofError, TargetError (no room), FencedError (history forked meanwhile), StoreErrors.  After an error
    the chain is as it was.
    """
    catalogue = read_catalogue(store)
    fold = plan_compaction(catalogue, store.url, target, compact_to=compact_to)
    return (
        None
        if fold is None
        else carry_out(
            store,
            catalogue,
            fold,
            by=by,
            suffix=suffix,
            recipients=recipients,
            keyring=keyring,
            scratch=scratch,
            clock=clock,
            progress=progress,
        )
    )


def carry_out(  # noqa: PLR0913 - all but the first four have defaults that do
    store: Store,
    catalogue: Catalogue,
    fold: Fold,
    *,
    by: str,
    suffix: str = names.GZIP,
    recipients: Sequence[Recipient] = (),
    keyring: Keyring = NO_KEYS,
    scratch: Path | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Compacted:
    """Carry a fold out; `catalogue` is what it was planned from.  See `compact`."""
    began = time.monotonic()
    begun = clock()
    left = fold.unfinished
    if left is None:
        refuse_exposure(fold, suffix, recipients)
    wanted = [*fold.chain.snapshots, *([left.full] if left is not None else [])]
    unlocked = unlock(store, (each.key for each in wanted), keyring)
    with (
        pinned(store, fold.chain.full, fold.revision, by=by, is_awaited=True),
        scratch_directory(fold, scratch) as directory,
    ):
        built = build(store, fold, directory, unlocked, progress)
        if left is not None:
            built, packed = reread(store, left, built, directory / "found", unlocked, progress)
            name, claims = left.full.name, list(left.claims)
        else:
            packed = pack(built, directory / "object", suffix, progress)
            name, packed, claims = _publish(store, catalogue, fold, packed, recipients, begun, clock)
        record = _record(catalogue, fold, built, packed, name, by)
        if record is not None:
            ledger.write_record(store, record)
        # Killed here: all is there, only nobody looked whether history had forked meanwhile.
        if not _is_alive(store, fold):
            _take_back(store, catalogue, fold, packed, name, by, clock())
            raise _forked(fold)
        if record is not None:  # it says all that the claim said
            with suppress(StoreError):
                for key in claims:
                    store.delete(key)
    return Compacted(
        key=name.key,
        folded=tuple(each.key for each in fold.chain.snapshots),
        hashkv=built.hashkv,
        base_size=built.base_size,
        chain_size=fold.stored_size,
        size=packed.payload.size,
        stored_size=packed.stored_size,
        rows_dropped=built.rows_dropped,
        seconds=time.monotonic() - began,
        record=record,
    )


def _publish(
    store: Store,
    catalogue: Catalogue,
    fold: Fold,
    packed: Packed,
    recipients: Sequence[Recipient],
    begun: datetime,
    clock: Callable[[], datetime],
) -> tuple[SnapshotName, Packed, list[str]]:
    """Claim a name and store the object under it, encrypted if so wanted; these, and the keys of the claims.

    The second in the name is when the fold began: behind every snapshot that ends with the same revision,
    in EBR's order, and before whatever timeline is opened from now on.
    """
    taken, claims = used_keys(catalogue), list[str]()
    beside = [each.name.created for each in catalogue.snapshots if each.name.last == fold.revision]
    second = max([int(begun.timestamp()), *(each + 1 for each in beside)])
    while True:
        name = names.full(fold.revision, second, packed.suffix)
        second += 1
        if name.key in taken:
            continue
        if not _is_alive(store, fold):
            raise _forked(fold)
        sealed = seal(packed, name, recipients)
        claim = Claim(
            start=name.start,
            epoch=_epoch(catalogue),
            timeline=fold.chain.timeline,
            key=name.key,
            stored_sha256=sealed.stored_sha256,
            created_at=clock(),
        )
        claims.append(keys.claim(name.start, claim.epoch, secrets.token_hex(8)))
        documents.put_once(store, claims[-1], claim)
        # Killed here: the claim alone.
        try:
            store.put(name.key, chunks(sealed.path), condition=Create())
        except AlreadyExistsError:  # the agent took a full of the same revision in the same second
            continue
        # Killed here: the object without a record.
        return name, sealed, claims


def _epoch(catalogue: Catalogue) -> int:
    """The epoch beside which we write, 0 where nobody ever claimed one."""
    return 0 if catalogue.epoch is None else catalogue.epoch.number


def _is_alive(store: Store, fold: Fold) -> bool:
    """Whether the living history still has the revision, on the timeline that we know it of."""
    found = [documents.fetch(store, info.key, Timeline) for info in store.list(keys.TIMELINES)]
    if not found:
        return True
    stretches = History((), tuple(found)).lineage()
    upto = {stretch.timeline: stretch.upto for stretch in stretches}
    if fold.chain.timeline not in upto:
        return False
    limit = upto[fold.chain.timeline]
    return limit is None or fold.revision <= limit


def _forked(fold: Fold) -> FencedError:
    return FencedError(
        f"history forked below revision {fold.revision} while it was folded",
        hint="a restore was captured meanwhile; `rootcellar ls` shows the new timeline, which can be folded",
    )


def _record(
    catalogue: Catalogue, fold: Fold, built: Built, packed: Packed, name: SnapshotName, by: str
) -> Record | None:
    """What the full is.  None where nothing tells whose it is: a wrong cluster would look like a fork."""
    last = fold.chain.snapshots[-1]
    base = fold.chain.full.record
    cluster = cluster_of(catalogue, fold.chain)
    if cluster is None:
        return None
    notices = [notice for notice in (base.warnings if base else ()) if notice.code in _KEPT_NOTICES]
    if packed.facts.encrypted_at_rest:
        notices.append(AT_REST)
    return Record(
        key=name.key,
        kind=name.kind,
        start=0,
        last_revision=fold.revision,
        compact_revision=built.hashkv.compact_revision,
        payload_size=packed.payload.size,
        payload_sha256="" if name.is_encrypted else packed.payload.sha256,
        stored_size=packed.stored_size,
        stored_sha256=packed.stored_sha256,
        cluster_id=cluster,
        member_id=base.member_id if base else _UNKNOWN_MEMBER,
        timeline=fold.chain.timeline,
        epoch=_epoch(catalogue),
        writer=by,
        captured_at=built.captured_at,
        hashkv=records.HashKV(built.hashkv.hash, built.hashkv.revision, built.hashkv.compact_revision),
        etcd_version=base.etcd_version if base else "",
        auth_revision=built.auth_revision,
        previous=Link(last.name.key, built.read[last.key]),
        last_change=built.last_change,
        leases=built.leases,
        warnings=tuple(notices),
        key_ids=packed.key_ids,
    )


def _take_back(
    store: Store,
    catalogue: Catalogue,
    fold: Fold,
    packed: Packed,
    name: SnapshotName,
    by: str,
    now: datetime,
) -> None:
    """Remove what was published into a history that is dead."""
    snapshot = Snapshot(name, name.key, packed.stored_size, fold.chain.timeline)
    reason = "history forked below it while it was folded"
    ledger.write_tombstone(store, snapshot, reason=reason, by=by, epoch=_epoch(catalogue), now=now)
    # Killed here: a tombstone beside its object, which the next prune removes.
    with suppress(LockedError):
        store.delete(name.key)
