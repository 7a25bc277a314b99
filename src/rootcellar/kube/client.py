"""Reading and writing objects.  One request per call, nothing is tried again.

For all threads, and synchronous like our clients of etcd and of stores: whoever waits in an event loop puts
a call into a thread.  Bytes leave here only.  The machine's proxy is not used: an API server is beside us.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3
from msgspec import Struct, field
from urllib3.exceptions import HTTPError

from rootcellar.errors import KubeError, KubeUnavailableError
from rootcellar.kube.refusal import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from rootcellar.kube.access import Access
    from rootcellar.kube.kinds import Kind

T = TypeVar("T")

PAGE = 500
"""Objects in one answer of a list, as Kubernetes' own clients ask for."""
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
_CONNECTIONS = 8


class _Raw(Struct, frozen=True):
    metadata: dict[str, Any]
    items: list[msgspec.Raw] = field(default_factory=list)


class KubeClient:
    """Speaks to one API server.  Every call raises KubeError, and ConfigError where a file of `access` cannot
    be read; `timeout` is seconds without a byte.
    """

    def __init__(self, access: Access, *, timeout: float = _ANSWER_SECONDS) -> None:
        self._access = access
        self._timeout = urllib3.Timeout(connect=min(_CONNECT_SECONDS, timeout), read=timeout)
        self._lock = threading.Lock()
        self._pool: urllib3.PoolManager | None = None
        self._stamp: tuple[object, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; a later call makes new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.clear()

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """One object.  Raises KubeNotFoundError."""
        return self._object(kind, self._ask("GET", kind.path(namespace, name), "get"))

    def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
    ) -> Iterator[T]:
        """All objects of a namespace, or without one of all, page by page; `labels` and `fields` are
        selectors.  All pages are of one moment.  KubeGoneError when that is too long ago: begin again.
        """
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(page), "continue": ""}
        while True:
            answer = self._ask("GET", kind.path(namespace), "list", query)
            found = _decoded(answer, _Raw, kind.plural)
            for item in found.items:
                yield _decoded(item, kind.type, kind.plural)
            query["continue"] = found.metadata.get("continue") or ""
            if not query["continue"]:
                return

    def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Raises KubeExistsError where there is one of this name."""
        answer = self._ask("POST", kind.path(namespace), "create", body=body)
        return self._object(kind, answer)

    def create_below(
        self, kind: Kind[Any], name: str, subresource: str, body: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        """Post to a subresource, such as a service account's `token`; what is answered."""
        path = kind.path(namespace, name, subresource)
        return _decoded(self._ask("POST", path, "create", body=body), dict[str, Any], kind.plural)

    def merge_patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        resource_version: str = "",
        subresource: str = "",
    ) -> T:
        """Change what `patch` names (RFC 7386: None takes a field away); the object after it.

        With a `resource_version` KubeConflictError is raised where the object is not that one any more.
        """
        if resource_version:
            meta = {**patch.get("metadata", {}), "resourceVersion": resource_version}
            patch = {**patch, "metadata": meta}
        path = kind.path(namespace, name, subresource)
        answer = self._ask("PATCH", path, "patch", body=patch, form="application/merge-patch+json")
        return self._object(kind, answer)

    def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "Background",
    ) -> None:
        """Have it deleted; finalizers may hold it.  With a `uid` or `resource_version` only that very one, or
        KubeConflictError.  Raises KubeNotFoundError where there is none.
        """
        only = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"propagationPolicy": propagation}
        if conditions := {name: value for name, value in only.items() if value}:
            body["preconditions"] = conditions
        self._ask("DELETE", kind.path(namespace, name), "delete", body=body)

    def version(self) -> str:
        """The server's, such as v1.34.4."""
        return str(_decoded(self._ask("GET", "/version", "version"), dict[str, Any], "version")["gitVersion"])

    # requests

    def _object(self, kind: Kind[T], answer: bytes) -> T:
        return _decoded(answer, kind.type, kind.plural)

    def _ask(
        self,
        method: str,
        path: str,
        verb: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        form: str = "application/json",
    ) -> bytes:
        asked = urlencode({name: value for name, value in (query or {}).items() if value})
        headers = {"User-Agent": "rootcellar", "Accept": "application/json", **self._access.authorization()}
        if body is not None:
            headers["Content-Type"] = form
        pool = self._connections()
        with _translated(f"{verb} {path}", self._access.url):
            response = pool.request(
                method,
                f"{self._access.url}{path}{f'?{asked}' if asked else ''}",
                body=msgspec.json.encode(body) if body is not None else None,
                headers=headers,
                retries=False,
                redirect=False,
                timeout=self._timeout,
            )
            answer = response.data
        if response.status >= 300:
            raise refusal(verb, path, response.status, answer)
        return answer

    def _connections(self) -> urllib3.PoolManager:
        """Those there are, until a certificate changes."""
        with self._lock:
            stamp = self._access.stamp()
            if self._pool is None or stamp != self._stamp:
                name = self._access.server_name
                names: dict[str, Any] = {"server_hostname": name, "assert_hostname": name} if name else {}
                context = self._access.context() if self._access.url.startswith("https") else None
                self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, ssl_context=context, **names)
                self._stamp = stamp
            return self._pool


def _decoded(answer: bytes | msgspec.Raw, what: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(answer, type=what)
    except (msgspec.DecodeError, ValueError) as error:
        raise KubeError(
            f"{where}: an answer that cannot be read: {error}", hint="is there a proxy before the API server?"
        ) from error


@contextmanager
def _translated(what: str, url: str) -> Iterator[None]:
    try:
        yield
    except (HTTPError, HTTPException, OSError) as error:
        told = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in told:
            raise KubeError(
                f"{url}: the API server's certificate is not trusted: {told}",
                hint="look at ca.crt of the service account, or the authority of the kubeconfig",
                operation=what,
            ) from error
        raise KubeUnavailableError(
            f"{url}: the Kubernetes API server does not answer: {told}", operation=what
        ) from error
