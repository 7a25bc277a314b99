"""Kinds of objects, and the few of Kubernetes' own that we read.

An object is a struct with the fields that we look at; what else the API server sends is skipped while it is
decoded.  So an object is never written back whole: writes are patches of named fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from msgspec import Struct, field

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind under its plural name.  `group` is empty for the oldest; `type` is what objects become.
    `is_bare`: the API server is asked for the metadata of objects alone.
    """

    group: str
    version: str
    plural: str
    type: type[T]
    is_namespaced: bool = True
    is_bare: bool = False

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of an object, or without a name of all; without a namespace of all namespaces.

        Raises ValueError for a namespace of what has none.
        """
        if namespace and not self.is_namespaced:
            raise ValueError(f"{self.plural} are in no namespace")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


class Key(NamedTuple):
    """What tells the objects of one kind apart; `namespace` is "" where they are in none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Struct, frozen=True, rename="camel", kw_only=True):
    """An object without which this one is not to be; of the same namespace, or of none."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel", kw_only=True):
    """An object's `metadata`.  Times are RFC 3339 in UTC; `generation` counts the changes of the `spec`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Head(Struct, frozen=True, kw_only=True):
    """What every object has."""

    metadata: Meta = field(default_factory=Meta)


class LeaseSpec(Struct, frozen=True, rename="camel", kw_only=True):
    """`renew_time` is RFC 3339 with microseconds, in UTC."""

    holder_identity: str | None = None
    renew_time: str | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """A lease of coordination.k8s.io: who holds something, and since when that is known."""

    metadata: Meta = field(default_factory=Meta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)


LEASES = Kind("coordination.k8s.io", "v1", "leases", Lease)


def heads(kind: Kind[Any]) -> Kind[Head]:
    """The same objects without what is in them (PartialObjectMetadata of meta/v1), to be read alone."""
    return Kind(kind.group, kind.version, kind.plural, Head, kind.is_namespaced, is_bare=True)


def untyped(group: str, version: str, plural: str, *, is_namespaced: bool = True) -> Kind[dict[str, Any]]:
    """A kind whose objects are dicts with all that the API server sends."""
    return Kind(group, version, plural, dict[str, Any], is_namespaced)
