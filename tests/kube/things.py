"""A kind of the tests' own, and what waits for it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from msgspec import Struct, field

from rootcellar.errors import KubeExistsError, KubeNotFoundError
from rootcellar.kube.kinds import Kind, Meta, untyped

GROUP = "tests.rootcellar.dev"
CRDS = untyped("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
CONFIG_MAPS = untyped("", "v1", "configmaps")


class Spec(Struct, frozen=True, rename="camel"):
    size: int = 0


class Status(Struct, frozen=True, rename="camel"):
    size: int | None = None
    by: str | None = None


class Thing(Struct, frozen=True):
    metadata: Meta = field(default_factory=Meta)
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)


THINGS = Kind(GROUP, "v1", "controlledthings", Thing)
ANY_THINGS = untyped(GROUP, "v1", "controlledthings")
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_CRD = {
    "metadata": {"name": f"controlledthings.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "controlledthings", "kind": "ControlledThing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}
                },
            }
        ],
    },
}


def define(client):
    """Have the API server know the kind."""
    with suppress(KubeExistsError):
        client.create(CRDS, _CRD)

    def known():
        try:
            client.list_page(THINGS, "default", page=1)
        except KubeNotFoundError:
            return False
        return True

    wait_until(known, "the kind is known")


def body(name, size=0, **meta):
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ControlledThing",
        "metadata": {"name": name, **meta},
        "spec": {"size": size},
    }


def wait_until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited too long: {what}"
        pause.wait(0.02)
    return found
