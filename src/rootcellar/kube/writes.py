"""Writes of a controller: only while this process leads, and only where something changes.

Two manners, by whose the object is.  What is ours is *applied* (server-side, one field manager for each
controller).  Of what is somebody else's we change single fields by a JSON merge patch (RFC 7386), None taking
one away; what of a patch is so already is left out, and what is left of nothing is not sent.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, field

from rootcellar.errors import KubeNotFoundError
from rootcellar.kube.election import fenced
from rootcellar.kube.kinds import Key, Meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.kinds import Kind

T = TypeVar("T")

APPLIED = "rootcellar.dev/applied"
"""On what is ours: what we last applied, as a hash.  So a field that we no longer want is noticed."""


class Writer:
    """The writes of one controller.  Each method raises FencedError where this process does not lead, and
    KubeError; KubeConflictError where what it was decided on is not what is there.

    `manager` is the name of its fields' owner.  `raw` is always the object as it was seen, with all that the
    API server sends, such as `Cache.raw` has it.
    """

    def __init__(self, client: KubeClient, manager: str, may_write: Callable[[], bool]) -> None:
        self._client, self._manager, self._may_write = client, manager, may_write

    def apply(self, kind: Kind[Any], body: Mapping[str, Any], raw: bytes | None) -> bool:
        """Have an object of ours be as `body` says, `apiVersion`, `kind` and name included; what others set
        beside it stays.  `raw` is None where there is none yet.  Whether there was anything to do.
        """
        wanted = _stamped(body)
        if raw is not None and _holds(wanted, msgspec.json.decode(raw)):
            return False
        self._fence()
        key = Key(wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"])
        self._client.apply(kind, key.name, wanted, key.namespace, field_manager=self._manager, force=True)
        return True

    def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Make one that must not be there yet.  Raises KubeExistsError."""
        self._fence()
        return self._client.create(kind, body, namespace)

    def patch(
        self,
        kind: Kind[Any],
        key: Key,
        patch: Mapping[str, Any],
        raw: bytes,
        *,
        subresource: str = "",
        only_this: bool = False,
    ) -> bytes | None:
        """Change the fields that `patch` names; the object after it as it came, or None where there was
        nothing to change.  With `only_this` the object must be the very version that was seen.
        """
        seen = msgspec.json.decode(raw)
        left = pruned(patch, seen)
        if not left:
            return None
        self._fence()
        version = seen["metadata"]["resourceVersion"] if only_this else ""
        return self._client.merge_patch_raw(
            kind,
            key.name,
            left,
            key.namespace,
            resource_version=version,
            subresource=subresource,
            field_manager=self._manager,
        )

    def status(
        self, kind: Kind[Any], key: Key, status: Mapping[str, Any], raw: bytes, *, only_this: bool = False
    ) -> bytes | None:
        """Change these fields of the status; as `patch`."""
        return self.patch(kind, key, {"status": status}, raw, subresource="status", only_this=only_this)

    def annotate(
        self, kind: Kind[Any], key: Key, annotations: Mapping[str, str | None], raw: bytes
    ) -> bytes | None:
        """Set annotations, or take them away; as `patch`.  Not if somebody changed the object since: an
        annotation that is taken away may by then be another order.
        """
        return self.patch(kind, key, {"metadata": {"annotations": annotations}}, raw, only_this=True)

    def add_finalizer(self, kind: Kind[Any], key: Key, finalizer: str, raw: bytes) -> bytes | None:
        """Have the object stay until we let go of it; as `patch`."""
        has = _finalizers(raw)
        return None if finalizer in has else self._finalize(kind, key, [*has, finalizer], raw)

    def remove_finalizer(self, kind: Kind[Any], key: Key, finalizer: str, raw: bytes) -> bytes | None:
        """Let go of it; as `patch`.  One that is gone has been let go of."""
        has = _finalizers(raw)
        left = [each for each in has if each != finalizer]
        try:
            return None if left == has else self._finalize(kind, key, left, raw)
        except KubeNotFoundError:
            return None

    def _finalize(self, kind: Kind[Any], key: Key, finalizers: list[str], raw: bytes) -> bytes | None:
        # The list is replaced as a whole, so it must be the one that was seen.
        patch = {"metadata": {"finalizers": finalizers or None}}
        return self.patch(kind, key, patch, raw, only_this=True)

    def delete(self, kind: Kind[Any], key: Key, raw: bytes, *, propagation: str = "Background") -> bool:
        """Have the very object deleted that was seen; False where it is gone."""
        self._fence()
        uid = msgspec.json.decode(raw, type=_Head).metadata.uid
        try:
            self._client.delete(kind, key.name, key.namespace, uid=uid, propagation=propagation)
        except KubeNotFoundError:
            return False
        return True

    def _fence(self) -> None:
        if not self._may_write():
            raise fenced(self._manager)


def pruned(patch: Mapping[str, Any], seen: Any) -> dict[str, Any]:
    """What of a merge patch is not so already; empty where nothing is to be changed."""
    here = seen if isinstance(seen, dict) else {}
    left: dict[str, Any] = {}
    for name, value in patch.items():
        if isinstance(value, dict):
            inner = pruned(value, here.get(name))
            # Nothing but None where there is nothing is nothing to do; an empty mapping may be one to make.
            if (
                inner
                or (name in here and not isinstance(here[name], dict))
                or (name not in here and not value)
            ):
                left[name] = inner
        elif value is None:
            if name in here:
                left[name] = None
        elif name not in here or not _same(value, here[name]):
            left[name] = value
    return left


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON, where 1 is not true."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(
        other, order="deterministic"
    )


class _Head(Struct, frozen=True):
    metadata: Meta = field(default_factory=Meta)


def _finalizers(raw: bytes) -> list[str]:
    return list(msgspec.json.decode(raw, type=_Head).metadata.finalizers)


def _stamped(body: Mapping[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()[:32]
    meta = body["metadata"]
    annotations = {**meta.get("annotations", {}), APPLIED: digest}
    return {**body, "metadata": {**meta, "annotations": annotations}}


def _holds(wanted: Any, seen: Any) -> bool:
    """Everything wanted is there.  A list has to have as many items: what the API server does not keep as it
    was written costs a request each time, and changes nothing.
    """
    if isinstance(wanted, dict):
        return isinstance(seen, dict) and all(
            name in seen and _holds(value, seen[name]) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(seen, list)
            and len(wanted) == len(seen)
            and all(_holds(one, other) for one, other in zip(wanted, seen, strict=True))
        )
    return _same(wanted, seen)
