"""One writer's stay at a prefix: one epoch, one timeline, one watch that stays open.

`collect` takes what etcd's watch brings for a while and stores it as deltas; `full` takes a full in another
thread meanwhile, so that no change waits for it.  Both can be called again and again.  What ends a session:

* FencedError: another writes here now.
* ForkedError: etcd was restored beneath us.  What comes next is of another timeline: open a new session.
* `close`.

Everything else leaves it usable: deltas that the store did not take are kept and put again, and a watch that
broke is opened anew behind what is stored.  Where deltas cannot go on, `collect` says which full is needed;
with the next full they begin anew, at the revision in its name, while it still streams.

One thread calls `collect`; any may call the rest.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from rootcellar.backup.capture.base import Base
from rootcellar.backup.capture.cut import DeltaLimits
from rootcellar.backup.capture.deltas import DeltaStream, auth_revision
from rootcellar.backup.capture.full import FullOptions, begin_full, store_full
from rootcellar.backup.capture.gate import Gate
from rootcellar.backup.capture.opening import Sealing, open_prefix
from rootcellar.backup.capture.outcome import Deltas, Need, NeedFull
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.catalogue import fence
from rootcellar.errors import FencedError, ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import TracebackType

    from rootcellar.backup.capture.full import Source
    from rootcellar.backup.capture.outcome import Captured
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.ownership import Epoch, Heartbeat
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.backup.restore.database import Progress
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

_RESTORED = "open a new session: it begins a new timeline"
_SLICE = 0.25


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How fulls and deltas are taken.

    `override` is the reason for which a prefix of another cluster is taken over, written into its marker.
    `compares_hash`: where live hashes are wanted, also hold etcd against a recorded one as a session begins.
    `recipients` can open what is written, if `full.suffix` is that of encrypted objects.  `allows_clear`:
    also where backups were encrypted up to now and will no longer be.
    """

    full: FullOptions = field(default_factory=FullOptions)
    limits: DeltaLimits = field(default_factory=DeltaLimits)
    override: str = ""
    compares_hash: bool = False
    recipients: tuple[Recipient, ...] = ()
    allows_clear: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """All that etcd had acknowledged by `at`, up to `revision`, is in the store."""

    revision: int
    at: datetime


class Session:
    """An open prefix.  `client` is used for everything but the bytes of fulls, which come from `source`.

    `source` (default: `client`) may name followers or learners; its endpoints are tried in order.
    """

    def __init__(  # noqa: PLR0913 - all but the first three have defaults that do
        self,
        client: EtcdClient,
        store: Store,
        *,
        writer: str,
        source: EtcdClient | None = None,
        epoch: Epoch | None = None,
        after: int = 0,
        options: CaptureOptions | None = None,
        clock: Callable[[], datetime] = utc_now,
        progress: Progress = lambda _phase, _more: None,
    ) -> None:
        """Open the prefix; `after` is the newest epoch that was seen there.

        Raises IdentityError, FencedError, EtcdError and below, StoreErrors.
        """
        self._client = client
        self._source = source
        self._store = store
        self._options = options or CaptureOptions()
        self._progress = progress
        opening = open_prefix(
            client,
            store,
            writer=writer,
            clock=clock,
            epoch=epoch,
            after=after,
            live_hash=self._options.compares_hash and self._options.full.live_hash,
            override=self._options.override,
            sealing=Sealing(self._options.full.suffix, self._options.recipients, self._options.allows_clear),
        )
        self._publisher = opening.publisher
        self._cluster_id = opening.header.cluster_id
        self._newest: Snapshot | None = opening.newest
        self._gate = Gate(*opening.forbidden)
        self._fulls = threading.Lock()
        self._changed = threading.Condition()
        self._is_closed = False
        self._cuts_wanted = self._cuts_made = 0
        self._stream: DeltaStream | None = None
        self._ended: DeltaStream | None = None
        self.need: NeedFull | None = None
        """Why deltas cannot go on, while they cannot."""
        if isinstance(opening.base, NeedFull):
            self.need = opening.base
        else:
            self._stream = self._stream_from(opening.base)
        self._catalogue: Catalogue | None = opening.catalogue
        here = opening.catalogue.on(opening.publisher.timeline)
        self._newest_full = max((each for each in here if each.is_full), key=_order, default=None)
        self.timeline = opening.timeline
        """The timeline that was opened, if one was."""
        self.abandoned = opening.abandoned
        """What was then moved out of EBR's sight."""
        self.point: RecoveryPoint | None = None
        """The newest recovery point of this session."""
        self.point_asked_at = 0.0
        """When etcd was asked for it, by the monotonic clock."""
        self.last_full: Captured | None = None
        self.last_delta: Captured | None = None
        self.asked_at = 0.0
        """When etcd was last asked for its revision, by the monotonic clock."""

    @property
    def epoch(self) -> Epoch:
        return self._publisher.epoch

    @property
    def timeline_number(self) -> int:
        return self._publisher.timeline

    @property
    def reached(self) -> int:
        """The newest revision that the store holds without a gap; 0 where deltas cannot go on."""
        stream = self._stream
        return stream.reached if stream is not None and self.need is None else 0

    @property
    def is_following(self) -> bool:
        """Whether there is something to collect from: false where a full has to come first."""
        return self._stream is not None

    def take_catalogue(self) -> Catalogue:
        """What the store held as the session began; once, because it may be large."""
        catalogue, self._catalogue = self._catalogue, None
        assert catalogue is not None  # noqa: S101  a caller's mistake
        return catalogue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # deltas

    def collect(self, deadline: float | None = None) -> Deltas:
        """Take what comes until `deadline` (`time.monotonic`; None: now) or `cut`, and store it as deltas.

        At the end etcd is asked for its revision, and everything up to that is stored: the recovery point is
        the moment of the question.  What comes to the limits' size before is stored earlier.

        Where deltas cannot go on it returns at once and says so, unless a full is under way that they wait
        for.  Raises EtcdError and below, StoreErrors, FencedError, ForkedError (see above for which of these
        end the session).
        """
        self._publisher.begin()
        tick = _Tick(self, deadline)
        stream = self._stream_when_there(tick)
        if stream is None:
            return self._without_stream(tick)
        try:
            done = stream.take(tick)
        except EOFError as error:
            if self._is_closed:
                raise FencedError("the session was closed", hint="open a new one") from error
            return Deltas((), 0)  # a final full has ended the stream; the next call says what is wanted
        finally:
            if stream.last is not None:
                self.last_delta = stream.last
        if done.need is not None and done.need.need is Need.COMPACTED:
            self._end_stream(done.need)
        elif self.need is not None:
            # Behind a full that has become final meanwhile the next call says what is wanted.
            done = replace(done, need=None if self._is_final() else self.need)
        elif tick.asked is not None and done.revision >= tick.asked.revision:
            self._reach(tick.asked, self.asked_at)
        return done

    def cut(self) -> None:
        """Have the running `collect` end as if its deadline had come."""
        with self._changed:
            self._cuts_wanted += 1
            self._changed.notify_all()

    def _ask(self) -> RecoveryPoint:
        wanted, asked_at = self._cuts_wanted, time.monotonic()
        point = self._live()
        self._cuts_made, self.asked_at = wanted, asked_at
        return point

    def _live(self) -> RecoveryPoint:
        """Where etcd is.  Raises ForkedError where it is no longer where it was."""
        at = self._publisher.clock()
        header = self._client.header()
        if header.cluster_id != self._cluster_id:
            raise ForkedError(
                f"cluster {self._cluster_id:x} has become cluster {header.cluster_id:x}", hint=_RESTORED
            )
        if header.revision < (reached := self.reached):
            raise ForkedError(
                f"etcd is at revision {header.revision}, and {reached} is stored already", hint=_RESTORED
            )
        return RecoveryPoint(header.revision, at)

    def _stream_from(self, base: Base) -> DeltaStream:
        return DeltaStream(
            self._client,
            self._publisher,
            base,
            gate=self._gate,
            suffix=self._options.full.suffix,
            limits=self._options.limits,
            progress=self._progress,
        )

    def _stream_when_there(self, tick: _Tick) -> DeltaStream | None:
        """The stream; where it waits for a full that is under way, that is waited for until the tick."""
        with self._changed:
            while (
                self._stream is None
                and (self._fulls.locked() or self._is_final())
                and not self._is_closed
                and not tick.is_due()
            ):
                self._changed.wait(_SLICE)
            return self._stream

    def _is_final(self) -> bool:
        """Whether the newest full was meant to be the last: nothing is wanted until something changes."""
        return self.need is not None and self.need.need is Need.FINAL

    def _without_stream(self, tick: _Tick) -> Deltas:
        newest = self.last_full.snapshot if self.last_full is not None else self._newest_full
        if self._is_final() and newest is not None:
            tick()
            if tick.asked is not None and tick.asked.revision == newest.last:
                self._reach(tick.asked, self.asked_at)
                return Deltas((), newest.last)
        return Deltas((), 0, self.need)

    def _end_stream(self, need: NeedFull) -> None:
        with self._changed:
            stream, self._stream, self.need = self._stream, None, need
            self._ended = stream
        if stream is not None:
            stream.close()

    def _reach(self, point: RecoveryPoint, asked_at: float) -> None:
        """What etcd was asked for last counts, by the monotonic clock: the other one may be set back."""
        if self.point is None or asked_at > self.point_asked_at:
            self.point, self.point_asked_at = point, asked_at

    # fulls

    def full(self, *, final: bool | None = None, unless_unchanged: bool = False) -> Captured | None:
        """Take a full; deltas go on meanwhile.  One at a time: a second call waits for the first.

        None with `unless_unchanged` where the newest full holds all that etcd has, its users and roles too
        (leases apart, which have no revision).  Raises EtcdError and below, StoreErrors, FencedError,
        ForkedError.
        """
        with self._fulls:
            self._publisher.begin()
            if unless_unchanged and self._is_unchanged():
                return None
            return self._full(self._options.full.final if final is None else final)

    def _full(self, final: bool) -> Captured:
        options = FullOptions(self._options.full.suffix, final, self._options.full.live_hash)
        begun: DeltaStream | None = None
        captured: Captured | None = None
        with self._gate.shut():
            newest = self._newest_now()
            asked, asked_at = self._publisher.clock(), time.monotonic()
            source = begin_full(self._client, self._source)
            try:
                forbidden = range(source.revision, self._held_together(source))
                self._gate.forbid(forbidden)
                if self._stream is None:
                    # Nothing to go on from: begin behind this full, and store nothing before it is there.
                    begun = self._begin_behind(source.revision)
                else:
                    self._gate.open()
                captured = store_full(
                    self._client,
                    self._publisher,
                    source,
                    reached=forbidden.stop,
                    options=options,
                    newest=newest,
                    progress=self._progress,
                )
            finally:
                source.stream.close()
                if captured is None and begun is not None:
                    self._end_stream(self.need or NeedFull(Need.FIRST, "there is no full yet"))
            self._settle(captured, forbidden)
            self._reach(RecoveryPoint(captured.record.last_revision, asked), asked_at)
            if captured.record.name.final:
                self._end_stream(NeedFull(Need.FINAL, f"{captured.key} was meant to be the last"))
        return captured

    def _held_together(self, source: Source) -> int:
        """A revision at or above the database's last.  Raises ForkedError if it is of another history."""
        live = self._live()
        stream = self._stream or self._ended
        if stream is not None:
            stream.check_history()
        return max(live.revision, source.revision)

    def _newest_now(self) -> Snapshot | None:
        """The last snapshot in EBR's order.  While the gate is shut, so that no delta is on its way."""
        stream = self._stream
        mine = [each.snapshot for each in (stream.last if stream else None, self.last_full) if each]
        return max([*mine, *([self._newest] if self._newest else [])], key=_order, default=None)

    def _begin_behind(self, revision: int) -> DeltaStream:
        base = Base(start=revision + 1, held=revision, ends=None, forbidden=range(0))
        with self._changed:
            self._stream = stream = self._stream_from(base)
            self._changed.notify_all()
        return stream

    def _settle(self, captured: Captured, forbidden: range) -> None:
        record = captured.record
        self._gate.forbid(range(forbidden.start, record.last_revision), instead_of=forbidden)
        self._publisher.outlive_rivals(record.name.last)
        with self._changed:
            # Without one, etcd had compacted what came next for it while this full streamed.
            stream = self._stream or self._begin_behind(record.name.last)
            stream.after_full(captured)
            self.need = None
            self.last_full = captured

    def _is_unchanged(self) -> bool:
        newest = self.last_full.snapshot if self.last_full is not None else self._newest_full
        if newest is None or newest.record is None or self.need is not None or newest.name.final:
            return False
        live = self._live()
        return live.revision == newest.last and auth_revision(self._client) == newest.record.auth_revision

    # the rest

    def beat(self) -> Heartbeat | None:
        """Leave a heartbeat for the newest recovery point.  None before there is one.  Raises StoreErrors."""
        point = self.point
        if point is None:
            return None
        return fence.beat(self._store, self.epoch, point.revision, self.timeline_number, point.at)

    def close(self) -> None:
        """End it.  What is on its way to the store breaks off, and becomes no object."""
        with self._changed:
            self._is_closed = True
            stream = self._stream
            self._changed.notify_all()
        self._publisher.stop()
        self._gate.close()
        if stream is not None:
            stream.close()


def _order(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.name.order


class _Tick:
    """When a collection ends, and the revision that etcd had then."""

    def __init__(self, session: Session, deadline: float | None) -> None:
        self._session = session
        self._deadline = deadline
        self.asked: RecoveryPoint | None = None

    def is_due(self) -> bool:
        return (
            self._deadline is None
            or self._session._cuts_wanted > self._session._cuts_made  # noqa: SLF001  its own helper
            or time.monotonic() >= self._deadline
        )

    def __call__(self) -> int | None:
        if self.asked is None and self.is_due():
            self.asked = self._session._ask()  # noqa: SLF001
        return self.asked.revision if self.asked is not None else None
