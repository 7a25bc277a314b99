"""Taking deltas: what etcd's watch tells behind the newest snapshot, up to a stated revision.

`capture_base` says where they start and why, `capture_cut` how they are cut, `capture_publisher` in which
order they are written.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rootcellar.backup import names
from rootcellar.backup.capture_base import fingerprint_of
from rootcellar.backup.capture_cut import Cutter, DeltaLimits
from rootcellar.backup.capture_outcome import Captured, Deltas, Need, NeedFull
from rootcellar.backup.records import Caution, Lease, Notice, Record
from rootcellar.errors import CompactedError, EtcdDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.backup.capture_base import Base
    from rootcellar.backup.capture_cut import Cut
    from rootcellar.backup.capture_publisher import Publisher
    from rootcellar.backup.database import Progress
    from rootcellar.etcd.answers import Header
    from rootcellar.etcd.client import EtcdClient


def capture_deltas(
    client: EtcdClient,
    publisher: Publisher,
    base: Base,
    *,
    suffix: str = names.GZIP,
    limits: DeltaLimits | None = None,
    progress: Progress = lambda _phase, _more: None,
) -> Deltas:
    """Write everything from `base` up to etcd's revision at the start of the call, as one delta or several.

    Where etcd no longer has what comes next, that is not an error but the want of a full, which comes with
    whatever could be written.  `progress` is called with "delta" and revisions.  Raises EtcdError and below
    (EtcdDeniedError without read permission on all keys; ForkedError when etcd was restored meanwhile),
    StoreErrors, FencedError.
    """
    publisher.begin()
    header = client.header()
    run = _Run(client, publisher, base, header, suffix, limits or DeltaLimits(), progress)
    need = run.need_for_auth()
    try:
        run.write(max(header.revision, base.held))
    except CompactedError as error:
        need = NeedFull(Need.COMPACTED, error.message)
    return Deltas(tuple(run.written), run.reached, run.need_for_ebr() or need)


class _Run:
    """One call of `capture_deltas`."""

    def __init__(
        self,
        client: EtcdClient,
        publisher: Publisher,
        base: Base,
        header: Header,
        suffix: str,
        limits: DeltaLimits,
        progress: Progress,
    ) -> None:
        self._client = client
        self._publisher = publisher
        self._base = base
        self._header = header
        self._suffix = suffix
        self._limits = limits
        self._progress = progress
        self._version = str(client.status().version)
        self._auth_revision = _auth_revision(client)
        self._leases = set(base.leases)
        self._heavy: list[int] = []
        self._previous = base.ends.record.link if base.ends.record else None
        self.reached = base.held
        self.written: list[Captured] = []

    def need_for_auth(self) -> NeedFull | None:
        """Fulls alone hold users and roles; where etcd does not tell us their revision, nobody notices."""
        before, now = self._base.auth_revision, self._auth_revision
        if before is None or now is None or before == now:
            return None
        return NeedFull(
            Need.AUTH, f"users, roles or permissions changed: auth revision {before} became {now}"
        )

    def need_for_ebr(self) -> NeedFull | None:
        if not self._heavy:
            return None
        return NeedFull(Need.EBR, f"etcdbrctl cannot replay revision {self._heavy[-1]}: it is too large")

    def write(self, target: int) -> None:
        torn = self._base.torn
        if torn is not None:
            anchor = fingerprint_of(self._publisher.store, torn)
            try:
                if anchor is not None:
                    return self._follow(torn.last + 1, anchor, target)
            except CompactedError:
                # The older chain stays torn; what was mended of it lies below the full, in nobody's way.
                if self.reached > self._base.held:
                    raise
        if target <= self._base.held:
            return None
        ends = self._base.ends
        behind = not ends.is_full
        anchor = fingerprint_of(self._publisher.store, ends) if behind else None
        return self._follow(self._base.start, anchor, target)

    def _follow(self, start: int, anchor: str | None, target: int) -> None:
        with self._client.watch(start, anchor=anchor) as watch:
            cutter = Cutter(
                watch,
                start,
                history=self._header.revision,
                forbidden=self._base.forbidden,
                limits=self._limits,
                suffix=self._suffix,
                clock=self._publisher.clock,
            )
            began = time.monotonic()
            while (cut := cutter.next(target)) is not None:
                self._publish(cut, began)
                began = time.monotonic()

    def _publish(self, cut: Cut, began: float) -> None:
        name = self._publisher.unused(
            lambda second: names.delta(cut.start, cut.last, second, self._suffix), int(cut.cut_at.timestamp())
        )
        record = Record(
            key=name.key,
            kind=name.kind,
            start=cut.start,
            last_revision=cut.last,
            compact_revision=self._client.compact_revision(),
            payload_size=cut.payload.size,
            payload_sha256=cut.payload.sha256,
            stored_size=cut.stored.size,
            stored_sha256=cut.stored.sha256,
            cluster_id=f"{self._header.cluster_id:x}",
            member_id=f"{self._header.member_id:x}",
            timeline=self._publisher.timeline,
            epoch=self._publisher.epoch.number,
            writer=self._publisher.epoch.writer,
            captured_at=cut.cut_at,
            etcd_version=self._version,
            auth_revision=self._auth_revision,
            first_received=cut.first_received,
            last_received=cut.last_received,
            previous=self._previous,
            last_change=cut.last_change,
            leases=tuple(self._granted(sorted(cut.leases - self._leases))),
            catch_up=cut.catch_up,
            warnings=tuple(
                Notice(Caution.EBR_CANNOT_REPLAY, f"revision {revision} is too large for etcdbrctl")
                for revision in cut.heavy
            ),
        )
        self._publisher.put_delta(name, cut.chunks, cut.stored.sha256)
        self._publisher.record(record)
        self._leases |= cut.leases
        self._heavy += cut.heavy
        self._previous = record.link
        self.reached = max(self.reached, cut.last)
        self.written.append(Captured(record, time.monotonic() - began))
        self._progress("delta", cut.last - cut.start + 1)

    def _granted(self, leases: Iterable[int]) -> Iterator[Lease]:
        """What etcd granted to leases first seen here; of one that has ended meanwhile nothing is known."""
        for lease in leases:
            ttl = self._client.lease_ttl(lease)
            if ttl is not None:
                yield Lease(lease, ttl.granted)


def _auth_revision(client: EtcdClient) -> int | None:
    """None on etcd 3.4, and below 3.7 without the role root."""
    try:
        status = client.auth_status()
    except EtcdDeniedError:
        return None
    return status.revision if status else None
