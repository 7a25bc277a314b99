"""The agent's HTTP API: what it is doing, metrics, and captures on demand.

    GET  /healthz          200 while the process answers
    GET  /readyz           200 once it knows who leads, and is not degraded; else 503 with the reason
    GET  /metrics          Prometheus
    GET  /status           everything, as JSON
    POST /snapshot/full    take a full and wait for it (?final=true)
    POST /snapshot/delta   store everything up to now and wait for it

The last three want the token (`Authorization: Bearer ...`), or a client certificate where one is configured.
Errors are JSON with `code`, `message` and `hint`: 401 without a token, 409 where this agent writes nothing,
502 where etcd or the store failed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from typing import TYPE_CHECKING, Any, Self

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from rootcellar.agent.doorway import Doorway
from rootcellar.agent.metrics import CONTENT_TYPE, Metrics
from rootcellar.agent.report import report, told_capture
from rootcellar.agent.serving import SignallessServer
from rootcellar.agent.state import Phase
from rootcellar.backup.capture.outcome import Capture
from rootcellar.errors import ConfigError, EtcdError, FencedError, RootcellarError, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    Handler = Callable[[Request], Awaitable[Response]]

    from rootcellar.agent.settings import HttpSettings
    from rootcellar.agent.view import Captor

_UNREADY = (Phase.STARTING, Phase.WAITING, Phase.DEGRADED, Phase.STOPPING)


def routes(agent: Captor, token: str) -> list[BaseRoute]:
    """The agent's own, to be served alone or beside others'."""
    answers = _Answers(agent)
    return [
        Route("/healthz", answers.healthz),
        Route("/readyz", answers.readyz),
        Route("/metrics", answers.metrics),
        Route("/status", guarded(answers.status, token)),
        Route("/snapshot/full", guarded(answers.full, token), methods=["POST"]),
        Route("/snapshot/delta", guarded(answers.delta, token), methods=["POST"]),
    ]


def guarded(handler: Handler, token: str) -> Handler:
    """A handler for those who know the token or showed a certificate; what it raises becomes an answer."""

    async def guard(request: Request) -> Response:
        if not _has_certificate(request) and not _knows(request, token):
            refusal = {"code": "unauthorized", "message": "this needs the agent's token", "hint": _TOKEN_HINT}
            return _json(refusal, 401)
        try:
            return await handler(request)
        except RootcellarError as error:
            return _refusal(error)

    return guard


class _Answers:
    """One handler per route."""

    def __init__(self, agent: Captor) -> None:
        self._agent = agent
        self._metrics = Metrics(agent)

    async def healthz(self, _request: Request) -> Response:
        return _json({"health": True})

    async def readyz(self, _request: Request) -> Response:
        state = self._agent.board.state
        ready = state.phase not in _UNREADY
        return _json({"ready": ready, "state": state.phase, "reason": state.reason}, 200 if ready else 503)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._metrics.exposition(), media_type=CONTENT_TYPE)

    async def status(self, _request: Request) -> Response:
        return _json(report(self._agent))

    async def full(self, request: Request) -> Response:
        final = request.query_params.get("final", "")
        if final not in _FINAL:
            return _json({"code": "usage", "message": f"final is {final!r}", "hint": "true or false"}, 400)
        taken = await self._agent.full(final=_FINAL[final])
        return _json(told_capture(self._agent, Capture((), taken)))

    async def delta(self, _request: Request) -> Response:
        return _json(told_capture(self._agent, await self._agent.delta()))


_FINAL = {"": None, "true": True, "false": False}
_TOKEN_HINT = "send `Authorization: Bearer TOKEN`; it is in the agent's token file"  # noqa: S105  no secret


def _knows(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), token.encode())


def _has_certificate(request: Request) -> bool:
    return bool(getattr(request.state, "certificate", False))


def _refusal(error: RootcellarError) -> Response:
    status = 500
    if isinstance(error, FencedError):
        status = 409
    elif isinstance(error, EtcdError | StoreError):
        status = 502
    return _json({"code": error.code, "message": error.message, "hint": error.hint}, status)


def _json(members: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(members), status, media_type="application/json")


class _Protocol(H11Protocol):
    """Tells requests whether their connection showed a certificate; TLS has then verified it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        self.app_state = {**self.app_state, "certificate": bool(transport.get_extra_info("peercert"))}
        super().connection_made(transport)


class Server:
    """Serves the agent's routes while the context lasts."""

    def __init__(self, agent: Captor) -> None:
        self._agent = agent
        self._settings: HttpSettings = agent.settings.http
        self.token = _token(self._settings)
        self._socket = _listen(self._settings)
        scheme = "https" if self._settings.cert is not None else "http"
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{port}"
        self._task: asyncio.Task[None] | None = None

    def doorway(self, store_url: str) -> Doorway:
        """How commands on this machine get here."""
        cert = self._settings.cert
        local = self.url.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")  # noqa: S104  to reach it
        return Doorway(local, self.token, store_url, os.getpid(), str(cert) if cert is not None else None)

    async def __aenter__(self) -> Self:
        settings = self._settings
        app = Starlette(routes=routes(self._agent, self.token))
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            loop="asyncio",
            http=_Protocol,
            timeout_graceful_shutdown=2,
            ssl_certfile=settings.cert,
            ssl_keyfile=settings.key,
            ssl_ca_certs=str(settings.client_ca) if settings.client_ca is not None else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.client_ca is not None else ssl.CERT_NONE,
        )
        self._server = SignallessServer(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=5)
            self._task.cancel()


def _listen(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {(error.strerror or str(error)).lower()}",
            hint="another agent may run here already; choose another address with --listen",
        ) from error
    return listening


def _token(settings: HttpSettings) -> str:
    if settings.token_file is None:
        return secrets.token_urlsafe(32)
    try:
        token = settings.token_file.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"{settings.token_file} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="it holds the token alone",
        ) from error
    if len(token) < 16:
        raise ConfigError(f"the token in {settings.token_file} is shorter than 16 characters")
    return token
