"""A kind's CustomResourceDefinition, made from its type, and the YAML of it that is always the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.kube.schema import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.kube.kinds import Kind

_OWN = {
    "apiVersion": "The group and version of this object's kind, as GROUP/VERSION.",
    "kind": "What kind of object this is.",
}
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` shows: `path` is a JSONPath below the object, `type` as OpenAPI or `date`.  With a
    `priority` above 0 only `-o wide` shows it.
    """

    name: str
    path: str
    description: str = ""
    type: str = "string"
    format: str = ""
    priority: int = 0


AGE = Column("Age", ".metadata.creationTimestamp", "how long ago it was created", type="date")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CRD says beside its kind's schema.  It has one version, which is served and stored.

    `scale` are the paths of the subresource of that name: `specReplicasPath`, `statusReplicasPath`,
    `labelSelectorPath`.
    """

    kind: Kind[Any]
    name: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_status: bool = True
    scale: Mapping[str, str] | None = None

    @property
    def full_name(self) -> str:
        """The CRD's own name."""
        return f"{self.kind.plural}.{self.kind.group}"


def manifest(definition: Definition) -> dict[str, Any]:
    """The CRD as an object.  Raises TypeError for a type that no structural schema can say."""
    kind, name = definition.kind, definition.name
    root = schema(kind.type)
    for own, description in _OWN.items():
        root["properties"][own] = {"type": "string", "description": description}
    if "status" in root["properties"]:
        root["properties"]["status"].pop("default", None)  # nobody's to fill in when an object is created
    names = {
        "kind": name,
        "listKind": f"{name}List",
        "plural": kind.plural,
        "singular": name.lower(),
        **({"shortNames": list(definition.short_names)} if definition.short_names else {}),
        **({"categories": list(definition.categories)} if definition.categories else {}),
    }
    subresources: dict[str, Any] = {
        **({"status": {}} if definition.has_status else {}),
        **({"scale": dict(definition.scale)} if definition.scale else {}),
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        **({"subresources": subresources} if subresources else {}),
        "additionalPrinterColumns": [_shown(each) for each in definition.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": definition.full_name,
            **({"labels": dict(definition.labels)} if definition.labels else {}),
            **({"annotations": dict(definition.annotations)} if definition.annotations else {}),
        },
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "versions": [version],
        },
    }


def text(document: Any) -> str:
    """YAML with sorted keys, so that the same objects are the same bytes."""
    return yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=_WIDTH)


def _shown(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "jsonPath": column.path, "type": column.type}
    extra = {"description": column.description, "format": column.format, "priority": column.priority}
    return found | {name: value for name, value in extra.items() if value}
