"""One capture from the outside: what is in the store, what etcd is, and what has to be written.

In order, and each step before anything that a refusal would make wrong:

1. the catalogue is read, and etcd's history held against it (`capture_fork`).
2. the marker: a foreign cluster is refused here, before it can fence the rightful writer.  A prefix without a
   marker, which EBR may have filled, is refused where its history is not etcd's; what is of another cluster
   must not be moved away by us.
3. the epoch: from here on this is the writer.
4. the timeline: opened where there is none, or where history forked; then what EBR would still see of the
   dead one is moved aside.
5. deltas, or a full, or deltas and then the full that they ask for.

Killed after any of them: the next capture finds what is done and goes on (`timeline`, `capture_publisher`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.backup.capture_base import base_of
from rootcellar.backup.capture_cut import DeltaLimits
from rootcellar.backup.capture_delta import capture_deltas
from rootcellar.backup.capture_fork import Verdict, compare, fork_point, newest_of
from rootcellar.backup.capture_full import FullOptions, capture_full
from rootcellar.backup.capture_outcome import Capture, Deltas, Need, NeedFull
from rootcellar.backup.capture_publisher import Publisher, used_keys, utc_now
from rootcellar.backup.catalogue import read_catalogue
from rootcellar.backup.fence import claim_epoch
from rootcellar.backup.timeline import abandon, bind_marker, open_timeline
from rootcellar.errors import ForkedError, IdentityError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rootcellar.backup.capture_base import Base
    from rootcellar.backup.catalogue import Catalogue
    from rootcellar.backup.database import Progress
    from rootcellar.backup.history import Snapshot
    from rootcellar.backup.ownership import Epoch, ForkIntent, Timeline
    from rootcellar.etcd.answers import Header
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How fulls and deltas are taken.

    `override` is the reason for which a prefix of another cluster is taken over, written into its marker.
    """

    full: FullOptions = field(default_factory=FullOptions)
    limits: DeltaLimits = field(default_factory=DeltaLimits)
    override: str = ""


def capture(
    client: EtcdClient,
    store: Store,
    *,
    full: bool,
    writer: str,
    epoch: Epoch | None = None,
    options: CaptureOptions | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Capture:
    """Take a full, or deltas up to now and a full where these cannot go on or ask for one.

    `epoch` is the caller's if it writes here for longer; else a new one is claimed, which fences whoever
    wrote before.  Raises IdentityError, FencedError, EtcdError and below, StoreErrors.
    """
    work = _Work(client, store, writer, epoch, options or CaptureOptions(), clock, progress)
    try:
        return work.capture(full=full)
    except ForkedError:
        # Restored while we were at it: what was written is of the old timeline, and a second look sees it.
        return work.capture(full=True)


class _Work:
    """One call of `capture`."""

    def __init__(
        self,
        client: EtcdClient,
        store: Store,
        writer: str,
        epoch: Epoch | None,
        options: CaptureOptions,
        clock: Callable[[], datetime],
        progress: Progress,
    ) -> None:
        self._client = client
        self._store = store
        self._writer = writer
        self._epoch = epoch
        self._options = options
        self._clock = clock
        self._progress = progress

    def capture(self, *, full: bool) -> Capture:
        # In this order: a revision that the store has by now etcd must have by then.
        catalogue = read_catalogue(self._store)
        header = self._client.header()
        verdict = self._verdict(catalogue, header, full=full)
        fork = _fork(catalogue, f"{header.cluster_id:x}", verdict)
        self._claim(catalogue, header, fork)
        opened = self._open_timeline(catalogue, header, fork)
        abandoned = None
        if opened is not None:
            catalogue = read_catalogue(self._store)
        if _begins(catalogue):
            abandoned = abandon(self._store, catalogue)
            catalogue = read_catalogue(self._store)
        assert self._epoch is not None  # noqa: S101  claimed above
        taken = used_keys(catalogue)
        publisher = Publisher(self._store, self._epoch, catalogue.newest_timeline, taken, self._clock)
        done = Deltas((), 0) if full else self._deltas(catalogue, publisher, header, verdict)
        written = None
        if full or done.need is not None:
            written = capture_full(
                self._client,
                publisher,
                options=self._options.full,
                newest=done.written[-1].snapshot if done.written else _last_visible(catalogue),
                progress=self._progress,
            )
        return Capture(done.written, written, done.need, opened, abandoned)

    def _verdict(self, catalogue: Catalogue, header: Header, *, full: bool) -> Verdict:
        newest = newest_of(catalogue)
        if newest is None:
            return Verdict.SAME
        live_hash = full and self._options.full.live_hash
        return compare(self._client, self._store, newest, header.revision, live_hash=live_hash)

    def _claim(self, catalogue: Catalogue, header: Header, fork: _Fork | None) -> None:
        """Bind the prefix to this cluster, and become its writer."""
        unannounced = fork is not None and fork.intent is None
        if catalogue.marker is None and unannounced and not self._options.override:
            raise IdentityError(
                f"{self._store.url} holds backups that are not of this cluster's history",
                hint="give every cluster a prefix of its own; override only where it continues that history",
            )
        bind_marker(
            self._store,
            f"{header.cluster_id:x}",
            writer=self._writer,
            now=self._clock(),
            override=self._options.override,
        )
        if self._epoch is None:
            self._epoch = claim_epoch(self._store, self._writer, self._clock())

    def _open_timeline(self, catalogue: Catalogue, header: Header, fork: _Fork | None) -> Timeline | None:
        parent: int | None = None
        forked_at, intent = 0, ""
        if fork is not None and fork.intent is not None:
            parent, forked_at = fork.intent.timeline, fork.intent.forked_at
            intent = fork.intent.nonce
        elif fork is not None:
            parent = catalogue.newest_timeline
            forked_at = fork_point(self._client, catalogue.on(parent), header.revision)
        elif catalogue.timelines:
            return None
        return open_timeline(
            self._store,
            parent=parent,
            forked_at=forked_at,
            cluster_id=f"{header.cluster_id:x}",
            writer=self._writer,
            now=self._clock(),
            intent=intent,
        )

    def _deltas(self, catalogue: Catalogue, publisher: Publisher, header: Header, verdict: Verdict) -> Deltas:
        """The deltas that can be had, or what keeps them from being taken."""
        base = base_of(catalogue, catalogue.newest_timeline)
        if isinstance(base, NeedFull):
            return Deltas((), 0, base)
        if header.revision == base.held:
            return Deltas((), base.held)
        if verdict is Verdict.UNKNOWN:
            return Deltas((), base.held, self._unknown(base))
        return capture_deltas(
            self._client,
            publisher,
            base,
            suffix=self._options.full.suffix,
            limits=self._options.limits,
            progress=self._progress,
        )

    def _unknown(self, base: Base) -> NeedFull:
        compacted = self._client.compact_revision()
        if compacted > base.held:
            return NeedFull(
                Need.COMPACTED,
                f"etcd has compacted up to revision {compacted}, and {base.ends.key} ends with {base.held}",
            )
        return NeedFull(
            Need.UNKNOWN,
            f"nothing tells whether etcd still has the history that ends with {base.ends.key}",
        )


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
