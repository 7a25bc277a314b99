"""An HTTP server inside a running event loop, which leaves signals to whoever runs the loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from starlette.routing import BaseRoute

_GRACE = 3


class SignallessServer(uvicorn.Server):
    """Signals belong to whoever runs the event loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    routes: Sequence[BaseRoute], host: str, port: int, *, cert: Path | None = None, key: Path | None = None
) -> AsyncIterator[int]:
    """Serve while the context is entered; the port (that given, or of 0 the one that was free).

    An empty `host` is every address of this machine.  Both `cert` and `key` make it HTTPS.  Raises
    ConfigError when the port is taken or a file cannot be read.
    """
    try:
        bound = _bound(host, port)
    except OSError as error:
        raise ConfigError(
            f"cannot serve on {host}:{port}: {error.strerror or error}", hint="is the port taken?"
        ) from error
    try:
        config = uvicorn.Config(
            Starlette(routes=list(routes)),
            host=host,
            port=port,
            ssl_certfile=cert,
            ssl_keyfile=key,
            lifespan="off",
            log_config=None,
            log_level="warning",  # that it has started is no news: who serves says what
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        config.load()
    except OSError as error:  # also what ssl says of a file that is no certificate
        bound.close()
        raise ConfigError(f"the server's certificate cannot be used: {error}") from error
    server = SignallessServer(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        bound.close()


def _bound(host: str, port: int) -> socket.socket:
    if host:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
