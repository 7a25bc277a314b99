"""What a process of controllers answers: `/healthz`, `/readyz` and `/metrics`.  Nothing is changed here."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from rootcellar.errors import ConfigError
from rootcellar.kube.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PLAIN = "text/plain; charset=utf-8"
_PATIENCE = 5


class HealthServer:
    """Serves in threads of its own; `checks` say by path what is wrong ("" for nothing).

    Raises ConfigError where the address cannot be had.  An empty host is every address of this machine.
    """

    def __init__(
        self, host: str, port: int, *, checks: Mapping[str, Callable[[], str]], metrics: Callable[[], bytes]
    ) -> None:
        everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  probes come from outside
        try:
            self._server = _Server((host or everywhere, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"cannot serve on {host}:{port}: {(error.strerror or str(error)).lower()}",
                hint="is the port taken?",
            ) from error
        self._server.checks, self._server.metrics = checks, metrics
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.ident is not None:
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    checks: Mapping[str, Callable[[], str]]
    metrics: Callable[[], bytes]
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, *_what: object) -> None:
        """Whoever went away is nobody to tell."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "rootcellar", ""
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, self.server.metrics(), CONTENT_TYPE)
        elif path in self.server.checks:
            wrong = self.server.checks[path]()
            self._answer(503 if wrong else 200, f"{wrong or 'ok'}\n".encode(), _PLAIN)
        else:
            self._answer(404, b"not here\n", _PLAIN)

    def _answer(self, status: int, body: bytes, form: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_what: object) -> None:
        """Probes are not worth a line."""
