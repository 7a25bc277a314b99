"""Requests to one API server: the one place where bytes leave.

The machine's proxy is not used: an API server is beside us.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from rootcellar.errors import ConfigError, KubeError, KubeUnavailableError
from rootcellar.kube.refusal import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from urllib3 import BaseHTTPResponse
    from urllib3.util import Url

    from rootcellar.kube.access import Access

JSON = "application/json"
_CONNECT_SECONDS = 5.0
_CONNECTIONS = 32
"""Kept open: those of an operator's workers and of its watches."""


class Connection:
    """For all threads.  `timeout` is seconds without a byte.  Raises ConfigError for a URL that is none."""

    def __init__(self, access: Access, timeout: float) -> None:
        self.url = access.url
        self._access = access
        self._timeout = urllib3.Timeout(connect=min(_CONNECT_SECONDS, timeout), read=timeout)
        self._lock = threading.Lock()
        place = _place(access.url)
        self._path, self._is_tls = (place.path or "").rstrip("/"), place.scheme == "https"
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._stamp: tuple[object, ...] = ()

    def close(self) -> None:
        """Let go of the connections that are idle; a later request makes new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def ask(
        self,
        method: str,
        path: str,
        verb: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | bytes | None = None,
        form: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """The body of the answer; `form` is what is sent, `accept` what is to come.  Raises KubeError, and
        ConfigError where a file of the access cannot be read.
        """
        content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": form}
        return self._answer(method, path, verb, query or {}, content, headers).data

    def open(
        self, path: str, verb: str, query: Mapping[str, str], *, timeout: float, accept: str = JSON
    ) -> BaseHTTPResponse:
        """An answer that is still coming; close it.  `timeout` is for what comes after its head.

        Raises as `ask` does.
        """
        response = self._answer("GET", path, verb, query, None, {"Accept": accept}, is_stream=True)
        if isinstance(under := response.connection, HTTPConnection) and under.sock is not None:
            under.sock.settimeout(timeout)
        return response

    def _answer(
        self,
        method: str,
        path: str,
        verb: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        is_stream: bool = False,
    ) -> BaseHTTPResponse:
        asked = urlencode({name: value for name, value in query.items() if value})
        always = {"User-Agent": "rootcellar", **self._access.authorization()}
        pool = self._connections()
        with self.translated(verb, path):
            response = pool.urlopen(
                method,
                f"{self._path}{path}{f'?{asked}' if asked else ''}",
                body=body,
                headers={**always, **headers},
                retries=False,
                redirect=False,
                timeout=self._timeout,
                preload_content=not is_stream,
            )
            if response.status < 300:
                return response
            told = response.data
        raise refusal(verb, path, response.status, told)

    def _connections(self) -> urllib3.HTTPConnectionPool:
        """Those there are, until a certificate changes."""
        with self._lock:
            stamp = self._access.stamp()
            if self._pool is None or stamp != self._stamp:
                tls: dict[str, Any] = {}
                if self._is_tls:
                    tls["ssl_context"] = self._access.context()
                    if name := self._access.server_name:
                        tls |= {"server_hostname": name, "assert_hostname": name}
                self._pool = urllib3.connection_from_url(self.url, maxsize=_CONNECTIONS, **tls)
                self._stamp = stamp
            return self._pool

    @contextmanager
    def translated(self, verb: str, path: str) -> Iterator[None]:
        """Turn what the network says into our errors."""
        try:
            yield
        except (HTTPError, HTTPException, OSError) as error:
            told = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            if "CERTIFICATE_VERIFY_FAILED" in told:
                raise KubeError(
                    f"{self.url}: the API server's certificate is not trusted: {told}",
                    hint="look at ca.crt of the service account, or the authority of the kubeconfig",
                    operation=f"{verb} {path}",
                ) from error
            raise KubeUnavailableError(
                f"{self.url}: the Kubernetes API server does not answer: {told}", operation=f"{verb} {path}"
            ) from error


def _place(url: str) -> Url:
    """The parts of an API server's URL, as those see them who connect to it."""
    try:
        place = parse_url(url)
        (place.host or "").encode("idna")
    except ValueError:
        place = None
    if place is None or place.scheme not in ("https", "http") or not place.host or place.auth:
        raise ConfigError(  # a password may stand before an @
            f"{url.rpartition('@')[2]!r} cannot be the URL of an API server",
            hint="https://HOST:PORT and no user, by the kubeconfig's `server` or KUBERNETES_SERVICE_HOST",
        )
    return place
