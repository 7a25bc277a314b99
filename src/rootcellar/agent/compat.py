"""The HTTP API of etcd-backup-restore's `server`, with its codes and bodies.

etcd-wrapper, etcd-druid and people's scripts talk to it, so it is as open and as odd as there: every method
is answered, nothing is authenticated, and reading a finished initialization's status makes it new again.
What is behind it is ours: `Snapshotter` is what the agent implements.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections import Counter
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rootcellar.agent.threads import in_thread
from rootcellar.agent.validation import Mode
from rootcellar.booleans import go_boolean
from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request

    from rootcellar.agent.initialization import Initialized
    from rootcellar.backup.catalogue.names import SnapshotName

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_NO_TIME = "0001-01-01T00:00:00Z"
_ASK_LEADER = 5.0
_FORWARDED = 16
"""Requests that one leader may have of us at a time: where it hangs, each keeps a thread to its end."""
_log = logging.getLogger(__name__)


class Snapshotter(Protocol):
    """Who takes snapshots.  Failures are RootcellarErrors."""

    async def full(self, *, final: bool) -> SnapshotName:
        """Take a full now and return when it is in the store."""
        ...

    async def delta(self) -> SnapshotName | None:
        """Cut a delta now; None when nothing has changed."""
        ...

    async def latest(self) -> tuple[SnapshotName | None, Sequence[SnapshotName]]:
        """The newest full in the store and the deltas behind it."""
        ...

    def healthy(self) -> bool:
        """Whether it leads and etcd answers."""
        ...

    async def leader(self) -> str | None:
        """Where the leader's API is (`http://host:port`): "" when it is this one, None when unknown."""
        ...


class Progress(StrEnum):
    """Where an initialization stands, in the reference's words."""

    NEW = "New"
    RUNNING = "Progress"
    SUCCESSFUL = "Successful"
    FAILED = "Failed"


class Initialization:
    """What the wrapper polls.  `run` is called in a thread, one at a time.

    Unlike there, why the last one failed is kept and logged, though no poll can ask for it.
    """

    def __init__(self, run: Callable[[Mode], Initialized]) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None
        self.progress = Progress.NEW
        self.done: Initialized | None = None
        self.failure: RootcellarError | None = None

    @property
    def joins(self) -> bool:
        """Whether etcd has to be started as a member of an existing cluster."""
        return self.done is not None and self.done.joins

    def start(self, mode: Mode) -> None:
        """Begin, unless one has begun and nobody has read its end."""
        if self.progress is Progress.NEW:
            self.progress = Progress.RUNNING
            self._task = asyncio.get_running_loop().create_task(self._initialize(mode))

    def read(self) -> Progress:
        """Where it stands; an end is told once."""
        told = self.progress
        if told in (Progress.SUCCESSFUL, Progress.FAILED):
            self.progress = Progress.NEW
        return told

    async def _initialize(self, mode: Mode) -> None:
        try:
            self.done = await in_thread("initialization", partial(self._run, mode))
            self.failure = None
            self.progress = Progress.SUCCESSFUL
            _log.info("initialized: etcd may start (%s)", self.done.plan.deed.value)
            for warning in self.done.warnings:
                _log.warning("initialization: %s", warning)
        except RootcellarError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the wrapper must not wait for ever
            self._failed(RootcellarError(f"{type(error).__name__}: {error}"))

    def _failed(self, error: RootcellarError) -> None:
        self.failure = error
        self.progress = Progress.FAILED
        _log.error("initialization failed: %s%s", error.message, f" ({error.hint})" if error.hint else "")


class CompatApi:
    """The routes.  `config` makes this member's etcd configuration, given whether etcd joins a cluster.

    `snapshotter` is None without a store.  `leader_ca` says whom the leader's certificate must come from.
    `tls`: whether this is served by HTTPS.
    """

    def __init__(
        self,
        initialization: Initialization,
        config: Callable[[bool], str],
        snapshotter: Snapshotter | None,
        *,
        snapshot_timeout: float = 900,
        leader_ca: str | None = None,
        tls: bool = False,
    ) -> None:
        self._initialization = initialization
        self._config = config
        self._snapshotter = snapshotter
        self._timeout = snapshot_timeout
        self._leader_ca = leader_ca
        self._forwarded: Counter[str] = Counter()
        self._headers = (
            {
                "Strict-Transport-Security": "max-age=31536000",
                "Content-Security-Policy": "default-src 'self'",
            }
            if tls
            else {}
        )

    def routes(self) -> list[Route]:
        """To be mounted at the root."""
        handlers = {
            "/initialization/start": self._start,
            "/initialization/status": self._status,
            "/snapshot/full": self._full,
            "/snapshot/delta": self._delta,
            "/snapshot/latest": self._latest,
            "/config": self._serve_config,
            "/healthz": self._healthz,
        }
        return [Route(path, handler, methods=list(_METHODS)) for path, handler in handlers.items()]

    async def _start(self, request: Request) -> Response:
        mode = Mode.SANITY if request.query_params.get("mode") == Mode.SANITY else Mode.FULL
        self._initialization.start(mode)
        return self._answer(200)

    async def _status(self, _request: Request) -> Response:
        return PlainTextResponse(self._initialization.read(), headers=self._headers)

    async def _full(self, request: Request) -> Response:
        final = _go_bool(request.query_params.get("final", ""))
        if final is None:
            return self._answer(400)
        return await self._led(request, lambda snapshotter: self._taken(snapshotter.full(final=final)))

    async def _delta(self, request: Request) -> Response:
        return await self._led(request, lambda snapshotter: self._taken(snapshotter.delta()))

    async def _latest(self, request: Request) -> Response:
        async def latest(snapshotter: Snapshotter) -> Response:
            full, deltas = await snapshotter.latest()
            return self._json(
                {
                    "fullSnapshot": snapshot_json(full),
                    "deltaSnapshots": [snapshot_json(each) for each in deltas] or None,
                }
            )

        return await self._led(request, latest)

    async def _taken(self, taken: Awaitable[SnapshotName | None]) -> Response:
        return self._json(snapshot_json(await taken))

    async def _led(self, request: Request, answer: Callable[[Snapshotter], Awaitable[Response]]) -> Response:
        """Answer as the leader, or have the leader answer."""
        if self._snapshotter is None:
            return self._answer(405)
        leader = await self._snapshotter.leader()
        if leader is None:
            return self._answer(405)
        if leader:
            return await self._forward(leader, request)
        try:
            return await answer(self._snapshotter)
        except RootcellarError as error:
            _log.warning("%s: %s", request.url.path, error.message)
            return self._answer(500)

    async def _forward(self, leader: str, request: Request) -> Response:
        if self._forwarded[leader] >= _FORWARDED:
            _log.warning("%s: the leader at %s has %d to answer", request.url.path, leader, _FORWARDED)
            return self._answer(503)
        self._forwarded[leader] += 1
        try:
            return await in_thread("forward", partial(self._ask_leader, leader, request))
        finally:
            self._forwarded[leader] -= 1

    def _ask_leader(self, leader: str, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        context = ssl.create_default_context(cafile=self._leader_ca) if leader.startswith("https") else None
        try:
            with _fetch(f"{leader}/healthz", context, _ASK_LEADER):
                pass
        except OSError as error:
            _log.warning("the leader at %s is not healthy: %s", leader, error)
            return self._answer(405)
        try:
            with _fetch(f"{leader}{request.url.path}{query}", context, self._timeout) as answer:
                body, code = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            with error:
                body, code = error.read(), error.code
        except OSError as error:
            _log.warning("the leader at %s does not answer: %s", leader, error)
            return self._answer(502)
        return Response(body, code, self._headers, "application/json" if body else None)

    async def _serve_config(self, _request: Request) -> Response:
        try:
            text = await in_thread("config", partial(self._config, self._initialization.joins))
        except RootcellarError as error:
            _log.error("the etcd configuration cannot be made: %s", error.message)
            return self._answer(500)
        return PlainTextResponse(text, headers=self._headers)

    async def _healthz(self, _request: Request) -> Response:
        initializing = self._initialization.progress is Progress.RUNNING
        healthy = self._snapshotter is not None and self._snapshotter.healthy() and not initializing
        return self._json({"health": healthy}, 200 if healthy else 503)

    def _answer(self, code: int) -> Response:
        return Response(b"", code, self._headers)

    def _json(self, value: object, code: int = 200) -> Response:
        body = json.dumps(value, separators=(",", ":"))
        return Response(body, code, self._headers, "application/json")


def snapshot_json(name: SnapshotName | None) -> dict[str, Any] | None:
    """A snapshot as the reference shows it; None is its `null`.

    Its misspelt key is part of the interface; what it never fills for a triggered snapshot is empty here.
    """
    if name is None:
        return None
    created = name.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "createdOn": created,
        "immutabilityExpriyTime": _NO_TIME,
        "versionID": None,
        "kind": name.kind.value,
        "snapDir": "",
        "snapName": name.name,
        "prefix": "",
        "compressionSuffix": name.suffix,
        "startRevision": name.start,
        "lastRevision": name.last,
        "isChunk": name.part,
        "isFinal": name.final,
    }


def _go_bool(text: str) -> bool | None:
    """A Go boolean, False for nothing, None for what is none."""
    try:
        return bool(text) and go_boolean(text)
    except ValueError:
        return None


def _fetch(url: str, context: ssl.SSLContext | None, timeout: float) -> Any:
    return urllib.request.urlopen(url, timeout=timeout, context=context)  # noqa: S310  http(s), from etcd
