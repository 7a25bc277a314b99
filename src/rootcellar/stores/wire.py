"""HTTP for providers that speak plain REST: one pool of connections, one way to fail.

Bytes leave for Azure Blob, Google Cloud Storage and Swift here only.  Nothing is tried again: what may be
repeated is for whoever knows what the request meant (`rootcellar.stores.backoff`).  Redirects are not
followed, because a token must not go where an answer points.  The machine's proxy (`https_proxy`, `no_proxy`)
is used.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, SSLError

from rootcellar.errors import TransientError
from rootcellar.stores.meaning import UNTRUSTED, Meaning, Translation, flat

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

CHUNK = 1 << 18
"""Bytes of a stream that are read at once, and lost at most when it breaks."""

_CONNECTIONS = 32
_SIGNATURE = re.compile(r"\b(sig|upload_id)=[^&\s'\")]+")

# Of an answer with a line that is no header it warns with the whole address, which may hold a signature, and
# with the lines behind that one, which may hold a token.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent.  `where` is what messages say of it: never with a query, which may hold a signature."""

    method: str
    url: str
    operation: str
    where: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | bytearray = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.  Names of headers are found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def failed(self) -> bool:
        return self.status >= 400


class Stream:
    """An answer whose body is still to come: `length` bytes of it."""

    def __init__(self, request: Request, response: urllib3.BaseHTTPResponse, length: int) -> None:
        self._request = request
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.length = length

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end.  Raises TransientError where the connection breaks."""
        with _translated(self._request):
            return self._response.read(size, decode_content=False)

    def close(self) -> None:
        """The connection goes back to the pool if all was read, else it is closed."""
        with contextlib.suppress(HTTPError, OSError, HTTPException):
            if self.length:
                self._response.close()
            self._response.release_conn()


class Wire:
    """Connections to one provider, for all threads.  `ca_file` is a PEM file of authorities to trust instead
    of the machine's; times are seconds, `timeout` one without any byte.  Metadata servers of a cloud are
    reached without a proxy (`proxied`).
    """

    def __init__(
        self,
        *,
        ca_file: str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        proxied: bool = True,
    ) -> None:
        self._ca_file = ca_file
        self._timeout = urllib3.Timeout(connect=connect_timeout, read=timeout)
        self._proxied = proxied
        self._managers: dict[str | None, urllib3.PoolManager] = {}

    def send(self, request: Request) -> Answer:
        """The answer, whatever its status.  Raises TransientError where none comes or it is cut short."""
        with _translated(request):
            response = self._ask(request)
            try:
                body = response.read(decode_content=False)
            except BaseException:
                response.close()
                raise
            finally:
                response.release_conn()
            return Answer(response.status, response.headers, body)

    def open(self, request: Request) -> Stream | Answer:
        """As `send`; the body of a success is left to be read, and must be closed."""
        with _translated(request):
            response = self._ask(request)
            if response.status >= 300:
                body = response.read(decode_content=False)
                response.release_conn()
                return Answer(response.status, response.headers, body)
            length = response.headers.get("Content-Length", "")
            if not length.isdecimal():
                response.close()
                raise HTTPError("the answer has no length")
            return Stream(request, response, int(length))

    def _ask(self, request: Request) -> urllib3.BaseHTTPResponse:
        headers = {"User-Agent": "rootcellar", "Accept-Encoding": "identity", **request.headers}
        return self._manager(request.url).urlopen(
            request.method,
            request.url,
            body=request.body,
            headers=headers,
            retries=False,
            redirect=False,
            preload_content=False,
            timeout=self._timeout,
        )

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = getproxies().get(parts.scheme) if self._proxied else None
        if proxy is not None and proxy_bypass(parts.hostname or ""):
            proxy = None
        if proxy not in self._managers:
            made = (
                urllib3.PoolManager(num_pools=4, maxsize=_CONNECTIONS, ca_certs=self._ca_file)
                if proxy is None
                else urllib3.ProxyManager(proxy, num_pools=4, maxsize=_CONNECTIONS, ca_certs=self._ca_file)
            )
            made.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
            self._managers.setdefault(proxy, made)
        return self._managers[proxy]


class _WholeLines(io.BufferedReader):
    """A connection's bytes.  The library takes the end of them for the end of a line: half a number of a
    header, where a connection breaks, would be believed.
    """

    def readline(self, limit: int | None = -1, /) -> bytes:
        line = super().readline(limit)
        if not line.endswith(b"\n") and (limit is None or limit < 0 or len(line) < limit):
            raise IncompleteRead(line)
        return line


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = _WholeLines(self.fp.detach())


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _translated(Translation):  # noqa: N801 - reads as the with-statement it is
    """What urllib3 and the standard library raise."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.operation, request.where)

    def meaning(self, error: Exception) -> Meaning | None:
        if not isinstance(error, (HTTPError, HTTPException, OSError, ValueError)):
            return None
        if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UNTRUSTED
        text = _SIGNATURE.sub(r"\1=...", flat(error))
        return TransientError, f"no connection: {text}", "look at the endpoint and the network"
