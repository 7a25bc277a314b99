"""Taking deltas: what etcd's watch tells behind the newest snapshot, for as long as one likes.

`capture.base` says where they start and why, `capture.cut` how they are cut, `capture.gate` where they may
end beside a full, `capture.publisher` in which order they are written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.capture.base import fingerprint_of
from rootcellar.backup.capture.cut import Cutter, DeltaLimits
from rootcellar.backup.capture.etag import etag_for
from rootcellar.backup.capture.outcome import Captured, Deltas, Need, NeedFull
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.records import Caution, Lease, Notice, Record
from rootcellar.errors import CompactedError, EtcdDeniedError, EtcdUnavailableError, ForkedError

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.capture.base import Base
    from rootcellar.backup.capture.cut import Cut, Goal
    from rootcellar.backup.capture.gate import Gate
    from rootcellar.backup.capture.publisher import Publisher
    from rootcellar.backup.restore.database import Progress
    from rootcellar.etcd.answers import Status
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.etcd.watch import Watch


class DeltaStream:
    """Deltas from `base` on, from one watch that stays open between them.

    A delta that the store did not take is kept, and put again, the same bytes under the same name, before
    anything more is taken off the watch.  A watch that failed is opened anew behind what is stored.  One
    thread takes; `after_full` may be called by another.
    """

    def __init__(
        self,
        client: EtcdClient,
        publisher: Publisher,
        base: Base,
        *,
        gate: Gate,
        suffix: str = names.GZIP,
        limits: DeltaLimits | None = None,
        progress: Progress = lambda _phase, _more: None,
    ) -> None:
        self._client = client
        self._publisher = publisher
        self._base = base
        self._gate = gate
        self._suffix = suffix
        self._limits = limits or DeltaLimits()
        self._progress = progress
        self._facts: _Facts | None = None
        self._auth_before = base.auth_revision
        self._leases = set(base.leases)
        self._heavy: list[int] = []
        self._previous = base.ends.record.link if base.ends is not None and base.ends.record else None
        self._watch: Watch | None = None
        self._cutter: Cutter | None = None
        self._waiting: _Prepared | None = None
        self._is_mending = False
        self._wanted = base.wants
        self.known = base.ends.record if base.ends is not None else None
        """What is known of the newest snapshot: by it a restore of etcd is noticed."""
        self.reached = base.held
        """The newest revision that the store holds without a gap."""
        self.last: Captured | None = None
        """The newest delta of this stream."""

    def take(self, goal: Goal) -> Deltas:
        """Write deltas up to the goal, and say what keeps more from being written, if anything does.

        Where etcd no longer has what comes next, that is not an error but the want of a full, which comes
        with whatever could be written.  Raises EtcdError and below (EtcdDeniedError without read permission
        on all keys; ForkedError when etcd was restored meanwhile), StoreErrors, FencedError; what was written
        until then stays, and the next call goes on behind it.
        """
        written: list[Captured] = []
        need = None
        try:
            self._take(goal, written)
        except CompactedError as error:
            need = NeedFull(Need.COMPACTED, error.message)
        self._publisher.remove_rivals(self.reached)
        need = need or self._wanted or self._need_for_ebr() or self._need_for_auth()
        return Deltas(tuple(written), self.reached, need)

    def _take(self, goal: Goal, written: list[Captured]) -> None:
        if self._waiting is not None:
            written.append(self._publish(self._waiting))
            self._gate.leave()
        while True:
            if self._cutter is None:
                target = goal()
                if target is not None and target <= self.reached:
                    return
                self._open()
            try:
                began = time.monotonic()
                cut = self._next(goal)
                if cut is None:
                    return
                try:
                    self._waiting = self._prepared(cut, began)
                except BaseException:
                    # What was cut has no name yet, and goes: etcd still has it, behind what is stored.
                    self._drop_watch()
                    raise
                written.append(self._publish(self._waiting))
            finally:
                if self._waiting is None:
                    self._gate.leave()

    def _next(self, goal: Goal) -> Cut | None:
        assert self._cutter is not None  # noqa: S101  opened by the caller
        while True:
            try:
                return self._cutter.next(goal)
            except CompactedError:
                self._drop_watch()
                # The older chain stays torn; what was mended of it lies below the full, in nobody's way.
                if not self._is_mending or self.reached > self._base.held:
                    raise
                self._follow(self._base.start)
            except BaseException:
                # What had been taken off it and was not cut is gone with it: etcd still has that.
                self._drop_watch()
                raise

    def check_history(self) -> None:
        """Raises ForkedError where etcd no longer has the change that the newest snapshot ends with."""
        known = self.known
        if known is None or known.last_change is None:
            return
        found = self._client.fingerprint(known.last_revision)
        if found is not None and found != known.last_change:
            raise ForkedError(
                f"revision {known.last_revision} is not the change that {known.key} ends with",
                hint="etcd was restored meanwhile: begin a new timeline with a full",
            )

    def _open(self) -> None:
        base = self._base
        # A full that was taken since may reach beyond the anchor of the watch.
        self.check_history()
        if self.last is not None:
            self._follow(self.last.record.last_revision + 1, self.last.record.last_change)
            return
        if base.torn is not None and not self._is_mending:
            anchor = fingerprint_of(self._publisher.store, base.torn)
            if anchor is not None:
                self._is_mending = True
                self._follow(base.torn.last + 1, anchor)
                return
        self._follow(base.start, self._anchor())

    def _anchor(self) -> str | None:
        """What the revision before the first delta changed: so that no restore of etcd passes unseen."""
        base = self._base
        if base.ends is not None and base.ends.last == base.start - 1:
            return fingerprint_of(self._publisher.store, base.ends)
        # It lies inside a full, which etcd's history was just held against.
        return self._client.fingerprint(base.start - 1)

    def _follow(self, start: int, anchor: str | None = None) -> None:
        self._facts = self._read_facts()
        self._watch = self._client.watch(start, anchor=anchor)
        self._cutter = Cutter(
            self._watch,
            start,
            history=self._client.header().revision,
            gate=self._gate,
            limits=self._limits,
            suffix=self._suffix,
            clock=self._publisher.clock,
        )

    def _drop_watch(self) -> None:
        watch, self._watch, self._cutter = self._watch, None, None
        if watch is not None:
            watch.close()

    def close(self) -> None:
        """Let go of the watch, from any thread: whoever takes from it gets EOFError."""
        watch = self._watch
        if watch is not None:
            watch.close()

    def after_full(self, full: Captured) -> None:
        """A full was taken beside: what only fulls hold is as new as it is."""
        record = full.record
        self._wanted = None
        self._auth_before = record.auth_revision
        self._heavy = [revision for revision in self._heavy if revision > record.last_revision]
        self._leases = set()
        self._previous = record.link
        self.reached = max(self.reached, record.last_revision)
        self._knows(record)

    def _knows(self, record: Record) -> None:
        if self.known is None or record.last_revision >= self.known.last_revision:
            self.known = record

    def _need_for_auth(self) -> NeedFull | None:
        """Fulls alone hold users and roles; where etcd does not tell us their revision, nobody notices."""
        before = self._auth_before
        try:
            now = auth_revision(self._client) if before is not None else None
        except EtcdUnavailableError:
            return None  # it will be asked again
        if before is None or now is None or before == now:
            return None
        return NeedFull(
            Need.AUTH, f"users, roles or permissions changed: auth revision {before} became {now}"
        )

    def _need_for_ebr(self) -> NeedFull | None:
        if not self._heavy:
            return None
        return NeedFull(Need.EBR, f"etcdbrctl cannot replay revision {self._heavy[-1]}: it is too large")

    def _read_facts(self) -> _Facts:
        return _Facts(self._client.status(), self._client.compact_revision(), auth_revision(self._client))

    def _prepared(self, cut: Cut, began: float) -> _Prepared:
        """What will be written, fixed once, so that it can be written again.

        If etcd went away behind these events they are stored with what it said before: an older compaction
        is as true, and a lease that is not known yet may be told with a later delta.
        """
        leases: dict[int, Lease | None] = {}
        try:
            self._facts = self._read_facts()
            for lease in sorted(cut.leases - self._leases):
                ttl = self._client.lease_ttl(lease)
                # Of one that has ended meanwhile nothing is known.
                leases[lease] = None if ttl is None else Lease(lease, ttl.granted)
        except EtcdUnavailableError:
            pass
        facts = self._facts
        assert facts is not None  # noqa: S101  read before the watch began
        self._publisher.taken.update(self._publisher.claimed(cut.start))
        name = self._publisher.unused(
            lambda second: names.delta(cut.start, cut.last, second, self._suffix), int(cut.cut_at.timestamp())
        )
        chunks, stored = self._publisher.sealed(name, cut.chunks, cut.stored)
        heavy = () if name.is_sealed else cut.heavy  # EBR does not see it
        cut = replace(cut, chunks=chunks, stored=stored, heavy=heavy)
        record = Record(
            key=name.key,
            kind=name.kind,
            start=cut.start,
            last_revision=cut.last,
            compact_revision=facts.compacted,
            payload_size=cut.payload.size,
            payload_sha256="" if name.is_encrypted else cut.payload.sha256,
            stored_size=cut.stored.size,
            stored_sha256=cut.stored.sha256,
            cluster_id=f"{facts.status.header.cluster_id:x}",
            member_id=f"{facts.status.header.member_id:x}",
            timeline=self._publisher.timeline,
            epoch=self._publisher.epoch.number,
            writer=self._publisher.epoch.writer,
            captured_at=cut.cut_at,
            etcd_version=str(facts.status.version),
            auth_revision=facts.auth_revision,
            first_received=cut.first_received,
            last_received=cut.last_received,
            previous=self._previous,
            last_change=cut.last_change,
            leases=tuple(lease for lease in leases.values() if lease is not None),
            catch_up=cut.catch_up,
            warnings=tuple(
                Notice(Caution.EBR_CANNOT_REPLAY, f"revision {revision} is too large for etcdbrctl")
                for revision in cut.heavy
            ),
            key_ids=self._publisher.key_ids(name),
        )
        return _Prepared(cut, record, frozenset(leases), self._publisher.clock(), began)

    def _publish(self, prepared: _Prepared) -> Captured:
        cut, record = prepared.cut, prepared.record
        self._publisher.put_delta(record.name, cut.chunks, cut.stored.sha256, prepared.at)
        self._publisher.record(record)
        self._waiting = None
        self._leases |= prepared.leases
        self._heavy += cut.heavy
        self._previous = record.link
        held, self.reached = self.reached, max(self.reached, cut.last)
        self._knows(record)
        etag = etag_for(self._publisher.store.url)
        for chunk in cut.chunks:
            etag.add(chunk)
        self.last = Captured(record, time.monotonic() - prepared.began, etag.value, held)
        self._progress("delta", cut.last - cut.start + 1)
        return self.last


class _Facts(NamedTuple):
    """What a record says of the etcd behind it."""

    status: Status
    compacted: int
    auth_revision: int | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A delta with all that will be said of it."""

    cut: Cut
    record: Record
    leases: frozenset[int]
    at: datetime
    began: float


def auth_revision(client: EtcdClient) -> int | None:
    """None on etcd 3.4, and below 3.7 without the role root."""
    try:
        status = client.auth_status()
    except EtcdDeniedError:
        return None
    return status.revision if status else None
