"""A member's database as it streams, every byte of it or an error.

etcd sends the database in messages of 32 KiB, each saying how many bytes remain, then one message with the
SHA-256 of all before.  A member that goes away ends the stream with an error, or, behind some proxies,
without one: only the announced length tells.  The hash is content and is the capture's to check.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import grpc

from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd import calls, failures
from rootcellar.etcd.conduit import Conduit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rootcellar.etcd._proto import rpc_pb2 as pb
    from rootcellar.etcd.connection import Connection, Messages, Metadata

TAIL = 32
"""Bytes of SHA-256 after the database."""

_ASK_SECONDS = 5.0
_BLOCK = 1 << 20
_BLOCKS_WAITING = 4


class SnapshotStream:
    """Iterate over it once for blocks of about 1 MiB: the database, then its hash, `size` + 32 bytes in all.

    One thread reads ahead, a few MiB at most.  A failure before the first byte moves on to the next endpoint;
    after it, and after `idle` seconds without a byte, iteration raises EtcdUnavailableError.  The constructor
    waits for the first byte and raises what any call raises.
    """

    def __init__(self, connection: Connection, among: Sequence[str], *, idle: float) -> None:
        self._connection = connection
        self._idle = idle
        self._blocks: Conduit[bytes] = Conduit(_BLOCKS_WAITING)
        self._lock = threading.Lock()
        self._closed = False
        self._call: Messages[pb.SnapshotResponse] | None = None
        self.endpoint = among[0]
        """The member whose state this is."""
        self.size = 0
        """Bytes of the database."""
        self._thread = threading.Thread(target=self._run, args=(among,), name="etcd-snapshot", daemon=True)
        self._thread.start()
        try:
            self._first = self._next()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        while True:
            try:
                block = self._next()
            except EOFError:
                return
            yield block

    def close(self) -> None:
        self._blocks.close()
        with self._lock:
            self._closed = True
            if self._call is not None:
                self._call.cancel()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next(self) -> bytes:
        try:
            return self._blocks.get(self._idle)
        except TimeoutError:
            raise EtcdUnavailableError(
                f"{self.endpoint}: the snapshot stream brought nothing for {self._idle:.0f} s",
                hint="the member may be stopped, or its disk stalled",
                operation="Snapshot",
            ) from None

    def _run(self, among: Sequence[str]) -> None:
        """The reader thread."""
        try:
            self._read_from_one(self._connection.order(among))
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to the consumer
            self._blocks.end(error)
        else:
            self._blocks.end()

    def _read_from_one(self, endpoints: Sequence[str]) -> None:
        failed: list[EtcdUnavailableError] = []
        for endpoint in endpoints:
            self.endpoint = endpoint
            try:
                return self._read(endpoint)
            except EtcdUnavailableError as error:
                if self.size:
                    raise
                self._connection.prefer_next(endpoint, endpoints)
                failed.append(error)
        raise failures.unavailable(failed)

    def _read(self, endpoint: str) -> None:
        try:
            self._copy(endpoint, self._connection.metadata(endpoint, _ASK_SECONDS))
        except grpc.RpcError as error:
            if not self._connection.refresh_token(failures.details(error)):
                raise failures.translate(calls.SNAPSHOT, endpoint, error) from error
        else:
            return
        try:
            self._copy(endpoint, self._connection.metadata(endpoint, _ASK_SECONDS))
        except grpc.RpcError as error:
            raise failures.translate(calls.SNAPSHOT, endpoint, error) from error

    def _copy(self, endpoint: str, metadata: Metadata) -> None:
        with self._lock:
            if self._closed:
                return
            self._call = self._connection.snapshot(endpoint, metadata)
        received, waiting, parts = 0, 0, list[bytes]()
        for message in self._call:
            blob = message.blob
            if not self.size:
                self.size = message.remaining_bytes + len(blob)
            received += len(blob)
            waiting += len(blob)
            parts.append(blob)
            if waiting >= _BLOCK:
                if not self._blocks.put(b"".join(parts)):
                    return
                waiting, parts = 0, []
        if received != self.size + TAIL:
            raise EtcdUnavailableError(
                f"{endpoint}: the snapshot stream ended after {received} of {self.size + TAIL} bytes",
                hint="the member, or something between, cut it: try again",
                operation="Snapshot",
            )
        self._blocks.put(b"".join(parts))
