"""Our CRDs in a test's API server."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rootcellar.errors import KubeExistsError, KubeNotFoundError
from rootcellar.kube.crd import manifest
from rootcellar.kube.kinds import untyped

if TYPE_CHECKING:
    from rootcellar.kube.client import KubeClient
    from rootcellar.kube.crd import Definition

CRDS = untyped("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
_SECONDS = 30.0
_PACE = 0.02


def install(client: KubeClient, definition: Definition) -> None:
    """Create the CRD unless it is there, and wait until its objects can be read."""
    with suppress(KubeExistsError):
        client.create(CRDS, manifest(definition))
    until = time.monotonic() + _SECONDS
    while not _is_served(client, definition):
        if time.monotonic() > until:
            raise TimeoutError(f"{definition.full_name}: {conditions(client, definition)}")
        time.sleep(_PACE)


def conditions(client: KubeClient, definition: Definition) -> dict[str, Any]:
    """What the API server says of the CRD: conditions by type."""
    found = client.get(CRDS, definition.full_name).get("status", {}).get("conditions") or ()
    return {each["type"]: each for each in found}


def _is_served(client: KubeClient, definition: Definition) -> bool:
    if conditions(client, definition).get("Established", {}).get("status") != "True":
        return False
    try:
        next(client.list(definition.kind), None)
    except KubeNotFoundError:  # established, and not yet served everywhere
        return False
    return True
