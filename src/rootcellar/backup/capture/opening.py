"""What every writer does once, before it captures anything.

In order, and each step before anything that a refusal would make wrong:

1. the catalogue is read, and etcd's history held against it (`capture.fork`).
2. the marker: a foreign cluster is refused here, before it can fence the rightful writer.  A prefix without a
   marker, which EBR may have filled, is refused where its history is not etcd's; what is of another cluster
   must not be moved away by us.
3. the epoch: from here on this is the writer.
4. the timeline: opened where there is none, or where history forked; then what EBR would still see of the
   dead one is moved aside.

Killed after any of them: the next writer finds what is done and goes on (`timeline`, `capture.publisher`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.capture.base import base_of, past_unrecorded
from rootcellar.backup.capture.fork import Verdict, compare, fork_point, newest_of
from rootcellar.backup.capture.outcome import Need, NeedFull
from rootcellar.backup.capture.publisher import Publisher, used_keys
from rootcellar.backup.capture.rivals import forbidden, rivals
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.fence import announced, claim_epoch
from rootcellar.backup.catalogue.timeline import abandon, bind_marker, open_timeline
from rootcellar.errors import ConfigError, IdentityError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from rootcellar.backup.capture.base import Base
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.ownership import Claim, Epoch, ForkIntent, Timeline
    from rootcellar.backup.catalogue.timeline import Abandonment
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.etcd.answers import Header
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Sealing:
    """What will be written: the `suffix` of all of it, and the `recipients` if that is encrypted.

    `allows_clear`: also where backups were encrypted up to now and will no longer be.
    """

    suffix: str = names.GZIP
    recipients: tuple[Recipient, ...] = ()
    allows_clear: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """A prefix that is this writer's, and where captures go on: from `base`, or with the full it wants.

    `header` is etcd's as the catalogue was read.  `newest` is the last snapshot in EBR's order, which a full
    must not be taken for.  `timeline` is the one that was opened here, if one was.  No delta may end in
    one of the `forbidden` ranges.
    """

    catalogue: Catalogue
    header: Header
    publisher: Publisher
    base: Base | NeedFull
    newest: Snapshot | None
    timeline: Timeline | None
    abandoned: Abandonment | None
    forbidden: tuple[range, ...]


def open_prefix(  # noqa: PLR0913 - all but the first four have defaults that do
    client: EtcdClient,
    store: Store,
    *,
    writer: str,
    clock: Callable[[], datetime],
    epoch: Epoch | None = None,
    live_hash: bool = False,
    override: str = "",
    sealing: Sealing | None = None,
    after: int = 0,
) -> Opening:
    """Become the writer of this prefix, on the timeline that etcd is on.

    `epoch` is the caller's if it has one, and writes here already; else a new one is claimed, which fences
    whoever wrote before.  `live_hash`: also compare HashKV, which reads the keyspace under a lock.
    `override` is the reason for which a prefix of another cluster is taken over, written into its marker.
    `after` is the number of an epoch that the caller has seen here: a store that knows of none as high is not
    the one that it was, and is not begun anew (a share that is not mounted is an empty directory).  Raises
    ConfigError (it would go on in the clear), IdentityError, FencedError, EtcdError and below,
    StoreErrors.
    """
    sealing = sealing or Sealing()
    # In this order: a revision that the store has by now etcd must have by then.
    catalogue = read_catalogue(store)
    _refuse_oblivion(store, catalogue, after)
    _refuse_clear(store, catalogue, sealing)
    header = client.header()
    verdict = _verdict(client, store, catalogue, header, live_hash=live_hash)
    fork = _fork(catalogue, f"{header.cluster_id:x}", verdict)
    if catalogue.marker is None and fork is not None and fork.intent is None and not override:
        raise IdentityError(
            f"{store.url} holds backups that are not of this cluster's history",
            hint="give every cluster a prefix of its own; override only where it continues that history",
        )
    bind_marker(store, f"{header.cluster_id:x}", writer=writer, now=clock(), override=override)
    if epoch is None:
        epoch = claim_epoch(store, writer, clock())
    # Claims first: one that is gone by then has become an object, which the second look shows.
    claims = announced(store, epoch, _settled(catalogue))
    # What the writer before had published until it could notice the epoch is what this one goes on from.
    if _has_grown(store, catalogue):
        catalogue = read_catalogue(store)
    opened = _open_timeline(client, store, catalogue, header, fork, writer, clock())
    abandoned = None
    if opened is not None:
        catalogue = read_catalogue(store)
    if _begins(catalogue) or _has_late_dead(catalogue, claims):
        abandoned = abandon(store, catalogue)
        catalogue = read_catalogue(store)
    base = base_of(catalogue, catalogue.newest_timeline)
    if verdict is Verdict.UNKNOWN:
        past = past_unrecorded(catalogue, catalogue.newest_timeline, client.header().revision)
        # The snapshot before it may tell what it does not.
        if past is not None and past.ends is not None:
            before = compare(client, store, past.ends, header.revision)
            base, verdict = (past, before) if before is Verdict.SAME else (base, verdict)
    if not isinstance(base, NeedFull) and verdict is Verdict.UNKNOWN and header.revision != base.held:
        base = _unknown(client, base)
    base = _in_layout(base, sealing.suffix)
    taken = used_keys(catalogue)
    taken.update(claim.key for claim in claims)
    late = rivals(catalogue, claims)
    publisher = Publisher(store, epoch, catalogue.newest_timeline, taken, clock, sealing.recipients, late)
    publisher.remove_superfluous(catalogue)
    ranges = (*forbidden(catalogue, claims), *([] if isinstance(base, NeedFull) else [base.forbidden]))
    newest = _last_visible(catalogue)
    return Opening(catalogue, header, publisher, base, newest, opened, abandoned, ranges)


def _settled(catalogue: Catalogue) -> set[tuple[int, int]]:
    """Start and epoch of the claims that have served."""
    records = (each.record for each in catalogue.snapshots if not each.is_full)
    return {(record.start, record.epoch) for record in records if record is not None}


def _has_late_dead(catalogue: Catalogue, claims: Sequence[Claim]) -> bool:
    """Whether EBR sees what was published on a timeline after that had been left."""
    claimed = {claim.key for claim in claims}
    shared = {stretch.timeline: stretch.upto for stretch in catalogue.lineage()}
    for each in catalogue.snapshots:
        upto = shared.get(each.timeline, 0)
        if each.key in claimed and not each.name.is_sealed and upto is not None and each.last > upto:
            return True
    return False


def _has_grown(store: Store, catalogue: Catalogue) -> bool:
    """Whether there are snapshots now that the catalogue does not show."""
    known = {each.key for each in catalogue.snapshots} | {each.key for each in catalogue.damaged}
    known.update(catalogue.strays, catalogue.parts)
    return any(info.key not in known for prefix in ("v2/", names.SEALED) for info in store.list(prefix))


def _refuse_oblivion(store: Store, catalogue: Catalogue, after: int) -> None:
    """Raise StoreError where the store has forgotten an epoch that it had."""
    if (catalogue.epoch.number if catalogue.epoch is not None else 0) < after:
        raise StoreError(
            f"{store.url} knows nothing of epoch {after}, in which this agent wrote to it",
            hint="see that its share is mounted; if it was emptied on purpose, start the agent anew",
        )


def _refuse_clear(store: Store, catalogue: Catalogue, sealing: Sealing) -> None:
    """Raise ConfigError where somebody has taken care that backups are encrypted and we would not."""
    newest = newest_of(catalogue)
    encrypts = sealing.suffix.endswith(names.AGE)
    if newest is not None and newest.name.is_encrypted and not encrypts and not sealing.allows_clear:
        raise ConfigError(
            f"the backups in {store.url} are encrypted, and this one would not be",
            hint="name the store by its @NAME, which has `encryption`; --unencrypted goes on in the clear",
        )


def _in_layout(base: Base | NeedFull, suffix: str) -> Base | NeedFull:
    """A chain is either EBR's to read or sealed: what switches begins with a full."""
    is_sealed = suffix in names.SEALED_SUFFIXES
    if isinstance(base, NeedFull) or base.ends is None or base.ends.name.is_sealed == is_sealed:
        return base
    how = "sealed" if is_sealed else "readable by etcdbrctl"
    return NeedFull(Need.LAYOUT, f"backups are {how} from now on, and {base.ends.key} is not")


def _verdict(
    client: EtcdClient, store: Store, catalogue: Catalogue, header: Header, *, live_hash: bool
) -> Verdict:
    newest = newest_of(catalogue)
    if newest is None:
        return Verdict.SAME
    return compare(client, store, newest, header.revision, live_hash=live_hash)


def _open_timeline(
    client: EtcdClient,
    store: Store,
    catalogue: Catalogue,
    header: Header,
    fork: _Fork | None,
    writer: str,
    now: datetime,
) -> Timeline | None:
    parent: int | None = None
    forked_at, intent = 0, ""
    if fork is not None and fork.intent is not None:
        parent, forked_at = fork.intent.timeline, fork.intent.forked_at
        intent = fork.intent.nonce
    elif fork is not None:
        parent = catalogue.newest_timeline
        forked_at = fork_point(client, catalogue.on(parent), header.revision)
    elif catalogue.timelines:
        return None
    return open_timeline(
        store,
        parent=parent,
        forked_at=forked_at,
        cluster_id=f"{header.cluster_id:x}",
        writer=writer,
        now=now,
        intent=intent,
    )


def _unknown(client: EtcdClient, base: Base) -> NeedFull:
    ends = base.ends.key if base.ends is not None else "the store"
    compacted = client.compact_revision()
    if compacted > base.held:
        return NeedFull(
            Need.COMPACTED, f"etcd has compacted up to revision {compacted}, and {ends} ends with {base.held}"
        )
    return NeedFull(Need.UNKNOWN, f"nothing tells whether etcd still has the history that ends with {ends}")


@dataclass(frozen=True, slots=True)
class _Fork:
    """History forked; by a restore that announced it, if there is an intent."""

    intent: ForkIntent | None


def _fork(catalogue: Catalogue, cluster_id: str, verdict: Verdict) -> _Fork | None:
    """Whether etcd's history is another one than the living timeline's.

    An announced restore is believed when the cluster has the announced id and the store's newest snapshot has
    not; under the same id (a token was used again) only when etcd does not show the history that the store
    has, and nothing was captured since.
    """
    if not catalogue.snapshots:
        return None
    newest = newest_of(catalogue)
    intent = catalogue.pending_intent(cluster_id)
    if newest is not None and newest.record is not None:
        before = newest.record.cluster_id
    elif newest is None and catalogue.timelines:
        before = catalogue.timelines[-1].cluster_id
    else:
        before = catalogue.marker.cluster_id if catalogue.marker is not None else cluster_id
    if before != cluster_id:
        return _Fork(intent)
    fresh = intent is not None and (newest is None or intent.created_at.timestamp() > newest.name.created)
    if verdict is Verdict.FORKED or (fresh and verdict is Verdict.UNKNOWN):
        return _Fork(intent if fresh else None)
    return None


def _begins(catalogue: Catalogue) -> bool:
    """Whether the living timeline forked from another and has nothing yet: a fork is not finished."""
    living = catalogue.timelines[-1] if catalogue.timelines else None
    return living is not None and living.parent is not None and not catalogue.on(living.number)


def _last_visible(catalogue: Catalogue) -> Snapshot | None:
    """The last snapshot in EBR's order, which a full must not be taken for."""
    return next((each for each in reversed(catalogue.snapshots) if each.key == each.name.key), None)
