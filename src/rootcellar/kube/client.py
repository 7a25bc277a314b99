"""Reading and writing objects.  One request per call, nothing is tried again.

For all threads, and synchronous like our clients of etcd and of stores: whoever waits in an event loop puts
a call into a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import Struct, field

from rootcellar.errors import KubeError
from rootcellar.kube.connection import JSON, Connection
from rootcellar.kube.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self, Unpack

    from rootcellar.kube.access import Access
    from rootcellar.kube.kinds import Kind

T = TypeVar("T")

PAGE = 500
"""Objects in one answer of a list, as Kubernetes' own clients ask for."""
_ANSWER_SECONDS = 30.0

Body = Mapping[str, Any] | bytes
"""What is sent: to be encoded, or JSON as it is."""


class Page(NamedTuple):
    """One answer of a list: objects as the bytes that came, the moment that the whole list is of, and what
    to ask for the next page with ("" when this was the last).
    """

    items: list[bytes]
    resource_version: str
    more: str


class Patching(TypedDict, total=False):
    """Of which version, of which part, and in whose name something is changed."""

    resource_version: str
    subresource: str
    field_manager: str


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class _Listed(Struct, frozen=True):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None
    """None is how the API server writes an empty list of metadata."""


class KubeClient:
    """Speaks to one API server.  Every call raises KubeError, and ConfigError where a file of `access` cannot
    be read; `timeout` is seconds without a byte.
    """

    def __init__(self, access: Access, *, timeout: float = _ANSWER_SECONDS) -> None:
        self._connection = Connection(access, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; a later call makes new ones."""
        self._connection.close()

    # reading

    def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """One object.  Raises KubeNotFoundError."""
        return _decoded(self.get_raw(kind, name, namespace), kind.type, kind.plural)

    def get_raw(self, kind: Kind[Any], name: str, namespace: str = "") -> bytes:
        """One object as it came, with all its fields.  Raises KubeNotFoundError."""
        return self._connection.ask("GET", kind.path(namespace, name), "get", accept=_accept(kind))

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
        more = ""
        while True:
            found = self.list_page(kind, namespace, labels=labels, fields=fields, page=page, more=more)
            for item in found.items:
                yield _decoded(item, kind.type, kind.plural)
            if not (more := found.more):
                return

    def list_page(
        self,
        kind: Kind[Any],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        more: str = "",
    ) -> Page:
        """One page, undecoded; of 0 objects means all at once.  Raises as `list` does."""
        limit = str(page) if page else ""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": limit, "continue": more}
        answer = self._connection.ask(
            "GET", kind.path(namespace), "list", query, accept=_accept(kind, "List")
        )
        found = _decoded(answer, _Listed, kind.plural)
        if not found.metadata.resource_version:  # valid JSON, but of whom?
            raise _unreadable(kind.plural, "a list without a resourceVersion")
        # Copies: each of the parts that were decoded holds the whole page.
        items = [bytes(item) for item in found.items or ()]
        return Page(items, found.metadata.resource_version, found.metadata.continue_)

    def watch(
        self,
        kind: Kind[Any],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        seconds: int,
        idle: float,
    ) -> Watch:
        """What happens after `resource_version`, with bookmarks, for about `seconds`; after `idle` seconds
        without a byte it is given up (KubeUnavailableError).  KubeGoneError when that version is too old.
        """
        path = kind.path(namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(seconds),
        }
        response = self._connection.open(path, "watch", query, timeout=idle, accept=_accept(kind))
        return Watch(response, path, self._connection.translated)

    # writing

    def create(self, kind: Kind[T], body: Body, namespace: str = "", *, field_manager: str = "") -> T:
        """Raises KubeExistsError where there is one of this name."""
        query = {"fieldManager": field_manager}
        answer = self._connection.ask("POST", kind.path(namespace), "create", query, body=body)
        return _decoded(answer, kind.type, kind.plural)

    def create_below(
        self, kind: Kind[Any], name: str, subresource: str, body: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        """Post to a subresource, such as a service account's `token`; what is answered."""
        path = kind.path(namespace, name, subresource)
        return _decoded(self._connection.ask("POST", path, "create", body=body), dict[str, Any], kind.plural)

    def merge_patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        **how: Unpack[Patching],
    ) -> T:
        """Change what `patch` names (RFC 7386: None takes a field away); the object after it.

        With a `resource_version` KubeConflictError is raised where the object is not that one any more.
        """
        return _decoded(self.merge_patch_raw(kind, name, patch, namespace, **how), kind.type, kind.plural)

    def merge_patch_raw(
        self,
        kind: Kind[Any],
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        **how: Unpack[Patching],
    ) -> bytes:
        """As `merge_patch`; the object after it as it came, with all its fields."""
        if version := how.get("resource_version"):
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
        path = kind.path(namespace, name, how.get("subresource", ""))
        form, query = "application/merge-patch+json", {"fieldManager": how.get("field_manager", "")}
        return self._connection.ask("PATCH", path, "patch", query, body=patch, form=form)

    def apply(
        self,
        kind: Kind[T],
        name: str,
        body: Body,
        namespace: str = "",
        *,
        field_manager: str,
        force: bool = True,
        subresource: str = "",
    ) -> T:
        """Make the fields of `body` (with apiVersion and kind) the manager's own, and give up those that it
        owned and no longer names; the object after it, created where there was none.

        Without `force` KubeConflictError is raised where a field is another manager's.
        """
        path = kind.path(namespace, name, subresource)
        form, query = "application/apply-patch+yaml", {"fieldManager": field_manager}
        if force:
            query["force"] = "true"
        answer = self._connection.ask("PATCH", path, "apply", query, body=body, form=form)
        return _decoded(answer, kind.type, kind.plural)

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
        self._connection.ask("DELETE", kind.path(namespace, name), "delete", body=body)

    def version(self) -> str:
        """The server's, such as v1.34.4."""
        answer = self._connection.ask("GET", "/version", "version")
        return str(_decoded(answer, dict[str, Any], "version")["gitVersion"])


def _accept(kind: Kind[Any], form: str = "") -> str:
    """The form of an answer, as the metadata client of client-go asks for it."""
    return f"{JSON};as=PartialObjectMetadata{form};g=meta.k8s.io;v=v1" if kind.is_bare else JSON


def _decoded(answer: bytes, what: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(answer, type=what)
    except (msgspec.DecodeError, ValueError) as error:
        raise _unreadable(where, str(error)) from error


def _unreadable(where: str, why: str) -> KubeError:
    return KubeError(
        f"{where}: an answer that cannot be read: {why}", hint="is there a proxy before the API server?"
    )
