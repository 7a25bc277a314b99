"""Objects of a kind in great number, in seconds.

They are written into the API server's etcd, where a custom resource is the JSON that it is on the wire: the
API server has no part in it before it watches and serves them.  Ten thousand creations by its door take a
minute here.
"""

from __future__ import annotations

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from rootcellar.etcd import operations as ops
from rootcellar.etcd.client import EtcdClient
from rootcellar.kube.kinds import untyped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from testbed.kubernetes import ControlPlane

DEFINITIONS = untyped("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
_BATCH, _WRITERS = 100, 8
_names = count(1)


class Crowd:
    """A kind of its own, whose objects have a `spec` of about `size` bytes."""

    def __init__(self, control_plane: ControlPlane, *, size: int = 2000) -> None:
        self._client, self._endpoint = control_plane.client, control_plane.etcd.endpoint
        self.group = f"crowd-{next(_names)}.test.rootcellar.dev"
        self.kind = untyped(self.group, "v1", "people")
        self._filling = "x" * size
        self._define()

    def _define(self) -> None:
        names = {"plural": "people", "singular": "person", "kind": "Person", "listKind": "PersonList"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        version["subresources"] = {"status": {}}
        name = f"people.{self.group}"
        spec = {"group": self.group, "names": names, "scope": "Namespaced", "versions": [version]}
        self._client.create(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
        deadline = time.monotonic() + 60
        while not _is_established(self._client.get(DEFINITIONS, name)):
            assert time.monotonic() < deadline, f"{name} is not established"
            time.sleep(0.05)

    def fill(self, namespace: str, numbers: Iterable[int]) -> None:
        """Create these objects, while nobody watches: a hundred have one version here, which no API server
        would do, and a watch that breaks among them goes on behind them.
        """
        pour(
            self._endpoint,
            ((self._key(namespace, each), self._object(namespace, each, 1)) for each in numbers),
        )

    def write(self, namespace: str, numbers: Iterable[int], *, generation: int = 1) -> None:
        """Create or replace these objects, one by one."""
        with EtcdClient([self._endpoint], timeout=30) as etcd, ThreadPoolExecutor(_WRITERS) as pool:
            write = partial(self._write, etcd, namespace, generation)
            for _ in pool.map(write, numbers):
                pass

    def _write(self, etcd: EtcdClient, namespace: str, generation: int, number: int) -> None:
        etcd.put(self._key(namespace, number), self._object(namespace, number, generation))

    def remove(self, namespace: str, numbers: Iterable[int]) -> None:
        """Delete these objects, one by one."""
        with EtcdClient([self._endpoint], timeout=30) as etcd, ThreadPoolExecutor(_WRITERS) as pool:
            for _ in pool.map(etcd.delete, (self._key(namespace, each) for each in numbers)):
                pass

    def _key(self, namespace: str, number: int) -> bytes:
        return f"/registry/{self.group}/people/{namespace}/p{number:06}".encode()

    def _object(self, namespace: str, number: int, generation: int) -> bytes:
        metadata: dict[str, Any] = {
            "name": f"p{number:06}",
            "namespace": namespace,
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{number}")),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": generation,
            "labels": {"number": str(number)},
        }
        spec = {"filling": self._filling, "generation": generation}
        made = {"apiVersion": f"{self.group}/v1", "kind": "Person", "metadata": metadata, "spec": spec}
        return json.dumps(made).encode()


def pour(endpoint: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write keys and their values into an etcd, a hundred at a time."""
    waiting = iter(pairs)
    with EtcdClient([endpoint], timeout=30) as etcd:
        while batch := list(islice(waiting, _BATCH)):
            etcd.txn([ops.put(key, value) for key, value in batch])


def _is_established(definition: dict[str, Any]) -> bool:
    found = definition["status"].get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)
