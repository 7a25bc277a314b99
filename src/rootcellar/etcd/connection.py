"""Channels to the members of one cluster: TLS, deadlines, failover, tokens.

Every call has a deadline.  A call that may be repeated gets an equal share of what is left at each endpoint,
and goes round again while a living server says that an election is under way.  A stream stays with the
endpoint it began on; its reader decides what a break means.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

import grpc

from rootcellar.errors import ConfigError, EtcdUnavailableError
from rootcellar.etcd import calls, failures
from rootcellar.etcd._proto import rpc_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rootcellar.etcd.calls import Answer, Call, Question

Received_co = TypeVar("Received_co", covariant=True)
Metadata = tuple[tuple[str, str], ...]

_CONNECT_SECONDS = 5.0
_ELECTION_PAUSE = 0.2
_KEEPALIVE_MS = 10_000  # etcd answers pings that come faster than every 5 s by closing the connection
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", -1),  # one revision can be as large as the server lets a request be
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
    ("grpc.http2.max_pings_without_data", 0),  # a quiet watch must notice a dead peer too
    ("grpc.min_reconnect_backoff_ms", int(_CONNECT_SECONDS * 1000)),  # gRPC's name for: connect timeout
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),  # or a new client waits out the pause of one that failed
    ("grpc.enable_http_proxy", 0),  # etcd is not reached through a web proxy
)


class Messages(Protocol[Received_co]):
    """A stream of answers as gRPC hands it out."""

    def __iter__(self) -> Iterator[Received_co]: ...

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files.  Without `ca` the system's roots hold; `server_name` is checked in the host's place."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """What the files hold now.  Raises ConfigError."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError("a client certificate needs its key, and a key its certificate")
        return grpc.ssl_channel_credentials(*map(_pem, (self.ca, self.key, self.cert)))

    def stamp(self) -> object:
        """Something that changes when one of the files does, also when a mounted Secret is exchanged."""
        return [_state(path) for path in (self.ca, self.key, self.cert) if path is not None]


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _pem(path: Path | None) -> bytes | None:
    """A file with at least one whole block: an empty one has gRPC abort the process, half of one never
    connects.
    """
    if path is None:
        return None
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}", operation="tls") from error
    if b"-----END " not in raw:
        raise ConfigError(
            f"{path} holds no PEM" if raw else f"{path} is empty",
            operation="tls",
            hint="give a whole file; one that is being written will be whole in a moment",
        )
    return raw


class Connection:
    """The endpoints of one cluster, one lazy channel each, and the token of one user.  Safe between threads.

    Endpoints are `http://host:port`, `https://host:port`, or `host:port` (TLS when files are given).  The TLS
    files are read here, which raises ConfigError, and again for the next call after they have changed.  Where
    they cannot be meant by then, as in the middle of an exchange, what was read last serves.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: TlsFiles | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        if not endpoints:
            raise ConfigError(
                "no etcd endpoint is given", hint="give at least one, such as http://127.0.0.1:2379"
            )
        self.endpoints = tuple(endpoints)
        self._tls = tls
        self._server_name = tls.server_name if tls is not None else None
        self._user, self._password = user, password
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._outdated: list[grpc.Channel] = []
        self._token: str | None = None
        self._preferred = self.endpoints[0]
        for endpoint in self.endpoints:
            self._target(endpoint)
        self._stamp = tls.stamp() if tls is not None else None  # before they are read, to miss no change
        self._credentials = (tls or TlsFiles()).credentials()

    def close(self) -> None:
        with self._lock:
            channels, self._channels, self._outdated = [*self._outdated, *self._channels.values()], {}, []
        for channel in channels:
            channel.close()

    def order(self, among: Sequence[str]) -> list[str]:
        """The endpoints as they should be tried: the one that last answered comes first."""
        start = among.index(self._preferred) if self._preferred in among else 0
        return [*among[start:], *among[:start]]

    def prefer_next(self, failed: str, among: Sequence[str]) -> None:
        """Begin at the endpoint after `failed`, unless another thread has already moved on."""
        if self._preferred == failed:
            self._preferred = among[(among.index(failed) + 1) % len(among)]

    def unary(
        self,
        call: Call[Question, Answer],
        question: Question,
        *,
        among: Sequence[str],
        timeout: float,
    ) -> Answer:
        """Call it, in `timeout` seconds at most, at one of `among`.  Raises EtcdError and below."""
        deadline = time.monotonic() + timeout
        while True:
            failed: list[EtcdUnavailableError] = []
            order = self.order(among)
            for index, endpoint in enumerate(order):
                left = max(deadline - time.monotonic(), 0.001)
                share = left / (len(order) - index) if call.repeatable else left
                try:
                    return self._ask(call, question, endpoint, share)
                except EtcdUnavailableError as error:
                    self.prefer_next(endpoint, among)
                    if not (call.repeatable or failures.was_never_sent(error)):
                        raise
                    failed.append(error)
            electing = call.repeatable and any(map(failures.is_electing, failed))
            if not electing or time.monotonic() + _ELECTION_PAUSE > deadline:
                raise failures.unavailable(failed)
            time.sleep(_ELECTION_PAUSE)

    def _ask(self, call: Call[Question, Answer], question: Question, endpoint: str, timeout: float) -> Answer:
        try:
            return self._send(call, question, endpoint, timeout, self.metadata(endpoint, timeout))
        except grpc.RpcError as error:
            if not self.refresh_token(failures.details(error)):
                raise failures.translate(call, endpoint, error) from error
        try:
            return self._send(call, question, endpoint, timeout, self.metadata(endpoint, timeout))
        except grpc.RpcError as error:
            raise failures.translate(call, endpoint, error) from error

    def _send(
        self,
        call: Call[Question, Answer],
        question: Question,
        endpoint: str,
        timeout: float,
        metadata: Metadata,
    ) -> Answer:
        multi = self._channel(endpoint).unary_unary(
            call.path,
            request_serializer=call.question.SerializeToString,
            response_deserializer=call.answer.FromString,
        )
        return multi(question, timeout=timeout, metadata=metadata)

    def watch(
        self,
        questions: Iterator[pb.WatchRequest],
        endpoint: str,
        metadata: Metadata,
        timeout: float | None = None,
    ) -> Messages[pb.WatchResponse]:
        """Open a watch stream.  What breaks it is raised as gRPC's error: the reader knows what it means."""
        multi = self._channel(endpoint).stream_stream(
            calls.WATCH.path,
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        return multi(questions, metadata=metadata, timeout=timeout)

    def snapshot(self, endpoint: str, metadata: Metadata) -> Messages[pb.SnapshotResponse]:
        """Open a snapshot stream.  What breaks it is raised as gRPC's error."""
        multi = self._channel(endpoint).unary_stream(
            calls.SNAPSHOT.path,
            request_serializer=pb.SnapshotRequest.SerializeToString,
            response_deserializer=pb.SnapshotResponse.FromString,
        )
        return multi(pb.SnapshotRequest(), metadata=metadata)

    def metadata(self, endpoint: str, timeout: float) -> Metadata:
        """The token, fetched when there is a user and none is at hand.  Raises EtcdError and below."""
        if self._user is None:
            return ()
        token = self._token
        if token is None:
            token = self._authenticate(endpoint, timeout)
            self._token = token
        return (("token", token),) if token else ()

    def refresh_token(self, refusal: str) -> bool:
        """Forget a token that was refused for its age, or the belief that none is needed.

        False when a new one would not help.
        """
        if self._user is None or not failures.is_stale_token(refusal, had_none=self._token == ""):
            return False
        self._token = None
        return True

    def forget_token(self) -> bool:
        """Make the next call fetch a new token.  False when there is no user."""
        self._token = None
        return self._user is not None

    def _authenticate(self, endpoint: str, timeout: float) -> str:
        question = pb.AuthenticateRequest(name=self._user or "", password=self._password or "")
        try:
            return self._send(calls.AUTHENTICATE, question, endpoint, timeout, ()).token
        except grpc.RpcError as error:
            # A user and password given for a cluster without authentication do no harm.
            if "authentication is not enabled" in failures.details(error):
                return ""
            raise failures.translate(calls.AUTHENTICATE, endpoint, error) from error

    def _channel(self, endpoint: str) -> grpc.Channel:
        with self._lock:
            self._follow()
            if endpoint not in self._channels:
                self._channels[endpoint] = self._open(endpoint)
            return self._channels[endpoint]

    def _follow(self) -> None:
        """Leave channels whose files have changed; what is under way on one goes on there."""
        if self._tls is None or self._stamp == (stamp := self._tls.stamp()):
            return
        try:
            self._credentials = self._tls.credentials()
        except ConfigError:
            return
        self._stamp = stamp
        self._outdated.extend(self._channels.values())
        self._channels.clear()

    def _open(self, endpoint: str) -> grpc.Channel:
        target, secure = self._target(endpoint)
        if not secure:
            return grpc.insecure_channel(target, options=_OPTIONS)
        name = (("grpc.ssl_target_name_override", self._server_name),) if self._server_name else ()
        return grpc.secure_channel(target, self._credentials, options=(*_OPTIONS, *name))

    def _target(self, endpoint: str) -> tuple[str, bool]:
        """The target as gRPC writes it, and whether it speaks TLS."""
        scheme, separator, rest = endpoint.partition("://")
        if not separator:
            return endpoint, self._tls is not None
        parts = urlsplit(endpoint)
        if scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/"):
            raise ConfigError(
                f"{endpoint} is not an etcd endpoint", hint="write http://host:port or https://host:port"
            )
        if scheme == "http" and self._tls is not None:
            raise ConfigError(
                f"TLS files are given, but {endpoint} is plaintext",
                hint="write https://, or leave the files out",
            )
        return rest.rstrip("/"), scheme == "https"
