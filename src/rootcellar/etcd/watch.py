"""A watch that survives its streams.

What it delivers are whole revisions in ascending order, each exactly once, whatever happens to members,
leaders and connections.  Four rules make that true:

* A broken stream is resumed from the last *delivered* revision (or past a progress report that can be
  trusted).  Never from a header: while a watcher catches up, the header already names the newest revision.
* The last delivered revision is asked for once more and must be what it was, and the cluster the same.  Else
  somebody restored etcd meanwhile, and what follows does not continue what was delivered: ForkedError.
* With fragments on, a revision may arrive in several messages.  Its events are held until a later revision or
  the last fragment shows that it is complete; a break in between drops and fetches them again.
* Events at or below what was delivered are dropped: a lagging member of etcd 3.6.0 and 3.6.1 may send older
  ones.

It does not promise that every revision has events: a compaction may have removed a tombstone at the start.
Whoever watches the whole keyspace and needs that looks for gaps.
"""

from __future__ import annotations

import queue
import threading
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Self

import grpc

from rootcellar.errors import CompactedError, EtcdDeniedError, EtcdError, EtcdUnavailableError, ForkedError
from rootcellar.etcd import calls, failures
from rootcellar.etcd._proto import rpc_pb2 as pb
from rootcellar.etcd.answers import Version, WatchBatch
from rootcellar.etcd.conduit import Conduit
from rootcellar.etcd.fingerprint import change_of, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rootcellar.etcd._proto.kv_pb2 import Event
    from rootcellar.etcd.connection import Connection, Messages, Metadata

# Without it a member that lost its cluster keeps a watch open and silent.
_REQUIRE_LEADER: Metadata = (("hasleader", "true"),)
_ASK_SECONDS = 5.0
_PAUSE = 0.1
_BATCHES_WAITING = 4
_MANUAL_PROGRESS_ID = -1
_FORKED = "etcd was restored meanwhile: begin a new timeline with a full"
_BROKEN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,  # a stream reset by the peer
    grpc.StatusCode.UNKNOWN,  # as old servers say when they stop
}


def reports_progress(version: Version) -> bool:
    """Whether an answer to `request_progress` can be trusted.

    Before 3.4.25 and 3.5.8 it may overtake events that it claims to be delivered.
    """
    return version >= (3, 5, 8) or (3, 4, 25) <= version < (3, 5)


class Watch:
    """A running watch of a range of keys from `start` (inclusive, at least 1).

    One thread reads and few batches wait, so a slow consumer slows the server's stream and does not fill our
    memory.  Gives up with EtcdUnavailableError after `patience` seconds without a stream at any endpoint.
    `anchor` is the fingerprint of revision `start` - 1, which must be what it was, and is not delivered.
    """

    def __init__(
        self,
        connection: Connection,
        among: Sequence[str],
        *,
        start: int,
        key: bytes,
        range_end: bytes,
        patience: float,
        anchor: str | None = None,
    ) -> None:
        self._connection = connection
        self._among = among
        self._key, self._range_end = key, range_end
        self._patience = patience
        self._last = start - 1
        self._anchor: str | Sequence[Event] | None = anchor
        self._anchored = False
        self._cluster_id = 0
        self._held: list[Event] = []
        self._trusted = False
        self._denied = False
        self._batches: Conduit[WatchBatch] = Conduit(_BATCHES_WAITING)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._call: Messages[pb.WatchResponse] | None = None
        self._questions: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="etcd-watch", daemon=True)
        self._thread.start()

    def get(self, timeout: float | None = None) -> WatchBatch | None:
        """The next batch, or None when `timeout` seconds bring none.

        Raises CompactedError when the next revision is gone (or the last one, so that nothing tells whether
        they belong together), ForkedError, EtcdDeniedError, EtcdUnavailableError, EtcdError, and EOFError
        after `close`.
        """
        try:
            return self._batches.get(timeout)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[WatchBatch]:
        """Batches without end, until `close`."""
        while True:
            try:
                yield self._batches.get()
            except EOFError:
                return

    def request_progress(self) -> None:
        """Ask for a batch without events that says how far the watch is.

        Not answered while it is catching up or between streams, and never where `reports_progress` says no:
        do not wait for it without another way out.
        """
        with self._lock:
            self._questions.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    def close(self) -> None:
        self._closed.set()
        self._batches.close()
        with self._lock:
            if self._call is not None:
                self._call.cancel()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        """The reader thread: one stream after the other."""
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to the consumer
            self._batches.end(error)
        else:
            self._batches.end()

    def _follow(self) -> None:
        failing: float | None = None
        while not self._closed.is_set():
            endpoint = self._connection.order(self._among)[0]
            try:
                for response in self._responses(endpoint):
                    failing, self._denied = None, False
                    self._same_cluster(response)
                    if not self._batches_taken(response):
                        return
            except EtcdUnavailableError:
                failing = time.monotonic() if failing is None else failing
                if time.monotonic() - failing > self._patience:
                    raise
            self._connection.prefer_next(endpoint, self._among)
            self._closed.wait(_PAUSE)

    def _responses(self, endpoint: str) -> Iterator[pb.WatchResponse]:
        """What one stream brings, until it breaks (EtcdUnavailableError) or ends for good."""
        self._held = []
        self._anchored = self._anchor is None
        self._trusted = reports_progress(self._version(endpoint))
        questions: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
        questions.put(pb.WatchRequest(create_request=self._create_request()))
        try:
            metadata = self._connection.metadata(endpoint, _ASK_SECONDS) + _REQUIRE_LEADER
            with self._lock:
                if self._closed.is_set():
                    return
                self._questions = questions
                self._call = self._connection.watch(iter(questions.get, None), endpoint, metadata)
            for response in self._call:
                if response.canceled:
                    raise self._cancelled(endpoint, response)
                yield response
        except grpc.RpcError as error:
            self._connection.refresh_token(failures.details(error))
            raise self._broken(endpoint, error) from error
        finally:
            questions.put(None)

    def _create_request(self) -> pb.WatchCreateRequest:
        return pb.WatchCreateRequest(
            key=self._key,
            range_end=self._range_end,
            start_revision=self._last + (self._anchor is None),
            progress_notify=True,
            fragment=True,
        )

    def _version(self, endpoint: str) -> Version:
        answer = self._connection.unary(
            calls.STATUS, pb.StatusRequest(), among=(endpoint,), timeout=_ASK_SECONDS
        )
        return Version.parse(answer.version)

    def _cancelled(self, endpoint: str, response: pb.WatchResponse) -> EtcdError:
        if response.compact_revision:
            return CompactedError(
                f"revision {self._last + 1} is gone: etcd has compacted up to {response.compact_revision}",
                hint="take a new full",
                operation="Watch",
            )
        error = failures.describe(calls.WATCH, endpoint, grpc.StatusCode.CANCELLED, response.cancel_reason)
        # Of a watch etcd denies an outdated token as if permission were missing; a fresh one tells.
        if isinstance(error, EtcdDeniedError) and self._connection.forget_token() and not self._denied:
            self._denied = True
            return EtcdUnavailableError(error.message, hint=error.hint, operation=error.operation)
        return error

    def _broken(self, endpoint: str, error: grpc.RpcError) -> EtcdError:
        translated = failures.translate(calls.WATCH, endpoint, error)
        text = failures.details(error)
        if error.code() in _BROKEN or failures.is_stale_token(text):
            return EtcdUnavailableError(translated.message, hint=translated.hint, operation="Watch")
        return translated

    def _batches_taken(self, response: pb.WatchResponse) -> bool:
        """Hand on what the response completes.  False once the consumer is gone."""
        if not response.events:
            reported = not response.created and (self._trusted or response.watch_id != _MANUAL_PROGRESS_ID)
            if not reported or response.header.revision <= self._last:
                return True
            if not self._anchored:
                raise self._unanchored()
            self._last, self._anchor = response.header.revision, None
            return self._batches.put(WatchBatch((), self._last))
        events = self._complete(response)
        if not self._anchored:
            self._hold_to_anchor(events)
        if events and events[0].kv.mod_revision <= self._last:
            events = events[bisect_right(events, self._last, key=_revision) :]
        if not events:
            return True
        self._last = _revision(events[-1])
        # The whole revision, not its digest: that is needed only when a stream breaks.
        self._anchor = events[bisect_left(events, self._last, key=_revision) :]
        return self._batches.put(WatchBatch(events, self._last))

    def _same_cluster(self, response: pb.WatchResponse) -> None:
        cluster_id = response.header.cluster_id
        if self._cluster_id and cluster_id != self._cluster_id:
            raise ForkedError(
                f"cluster {self._cluster_id:x} has become cluster {cluster_id:x} behind a running watch",
                hint=_FORKED,
                operation="Watch",
            )
        self._cluster_id = cluster_id

    def _hold_to_anchor(self, events: Sequence[Event]) -> None:
        """Compare the last revision, which a new stream brings first, with what was delivered of it."""
        if not events or _revision(events[-1]) < self._last:
            return
        first = bisect_left(events, self._last, key=_revision)
        again = events[first : bisect_right(events, self._last, key=_revision)]
        if not again:
            raise self._unanchored()
        anchor = self._anchor or ()
        known = anchor if isinstance(anchor, str) else fingerprint(map(change_of, anchor))
        if fingerprint(map(change_of, again)) != known:
            raise ForkedError(
                f"revision {self._last} is not the change it was", hint=_FORKED, operation="Watch"
            )
        self._anchored = True

    def _unanchored(self) -> CompactedError:
        return CompactedError(
            f"revision {self._last} is gone: nothing tells whether what follows continues it",
            hint="take a new full",
            operation="Watch",
        )

    def _complete(self, response: pb.WatchResponse) -> Sequence[Event]:
        """The events whose revisions are known to be whole; the rest is held."""
        if not response.fragment:
            if not self._held:
                return response.events
            events = [*self._held, *response.events]
            self._held = []
            return events
        events = [*self._held, *response.events]
        whole = bisect_left(events, _revision(events[-1]), key=_revision)
        self._held = events[whole:]
        return events[:whole]


def _revision(event: Event) -> int:
    return event.kv.mod_revision


def compacted_up_to(connection: Connection, among: Sequence[str], *, timeout: float) -> int:
    """The newest compaction that the asked member knows, -1 for none.

    No call answers this.  But a watch from revision 1 on is refused with it; and whether it would be refused
    a read at revision 1 tells.
    """
    past = pb.RangeRequest(key=b"\0", count_only=True, revision=1)
    try:
        connection.unary(calls.RANGE, past, among=among, timeout=timeout)
    except CompactedError:
        pass
    else:
        return -1
    endpoint = connection.order(among)[0]
    question = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"\0", start_revision=1))
    questions: queue.SimpleQueue[pb.WatchRequest | None] = queue.SimpleQueue()
    questions.put(question)
    metadata = connection.metadata(endpoint, timeout)
    try:
        call = connection.watch(iter(questions.get, None), endpoint, metadata, timeout=timeout)
        for response in call:
            if response.canceled:
                break
        call.cancel()
    except grpc.RpcError as error:
        raise failures.translate(calls.WATCH, endpoint, error) from error
    finally:
        questions.put(None)
    return response.compact_revision
