"""Secrets of Kubernetes, as the contracts see them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import field

from rootcellar.kube.kinds import Kind, Meta
from rootcellar.operator.shared.part import Part

if TYPE_CHECKING:
    from rootcellar.kube.kinds import Key

ETCD_BACKUP = "etcd-backup"
"""In a control plane's namespace: where its backups go."""
SOURCE_ETCD_BACKUP = "source-etcd-backup"
"""Beside it, while backups are copied from another seed: where they come from."""

PURPOSE = "security.gardener.cloud/purpose"
TOKEN_REQUESTOR = "workload-identity-token-requestor"  # noqa: S105  a purpose, no password
_IDENTITY = "workloadidentity.security.gardener.cloud/"
IDENTITY_PROVIDER = f"{_IDENTITY}provider"
IDENTITY_NAME, IDENTITY_NAMESPACE = f"{_IDENTITY}name", f"{_IDENTITY}namespace"
IDENTITY_CONTEXT, TOKEN_RENEWED = f"{_IDENTITY}context-object", f"{_IDENTITY}token-renew-timestamp"


class Secret(Part, frozen=True, kw_only=True):
    """A secret; `data` is decoded."""

    metadata: Meta = field(default_factory=Meta)
    data: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_identity(self) -> bool:
        """Whether it stands for a workload identity: a configuration, and a token that others renew."""
        return self.metadata.labels.get(PURPOSE) == TOKEN_REQUESTOR


SECRETS = Kind("", "v1", "secrets", Secret)


class Contents(NamedTuple):
    """What is to be in a secret, and nothing else."""

    data: dict[str, bytes]
    labels: dict[str, str]
    annotations: dict[str, str]

    def manifest(self, key: Key) -> dict[str, Any]:
        """The secret as it is made."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
            },
            "type": "Opaque",
            "data": self._encoded(),
        }

    def patch(self, there: Secret) -> dict[str, Any]:
        """What makes of one that is there this one: what is foreign in it goes, by name."""
        meta = there.metadata
        return {
            "data": {**dict.fromkeys(there.data), **self._encoded()},
            "metadata": {
                "labels": {**dict.fromkeys(meta.labels), **self.labels},
                "annotations": {**dict.fromkeys(meta.annotations), **self.annotations},
            },
        }

    def _encoded(self) -> dict[str, str]:
        return {name: base64.b64encode(value).decode() for name, value in self.data.items()}
