"""10,000 BackupEntries under the real `rootcellar operator`: `python -m benchmarks.kube_entries`.

A real etcd and kube-apiserver, a bucket of SeaweedFS, and a control plane's namespace for each entry.  The
objects are written into the API server's etcd before the operator starts; what controls namespaces is stopped
by then, because it would make two objects in each of them at the same time.  The operator is a process of its
own; the API server, its etcd and the store have the same cores.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.agent import Watched
from benchmarks.table import Row, show
from rootcellar.kube.kinds import untyped
from rootcellar.operator.backupentry.run import FINALIZER
from rootcellar.operator.contracts import CONTRACTS
from rootcellar.operator.shared import status
from rootcellar.operator.shared.gardener import OperationType
from testbed import crds
from testbed.crowd import pour
from testbed.kubernetes import ControlPlane
from testbed.ports import free_port
from testbed.s3 import SeaweedFS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.s3 import Bucket

OBJECTS, IDLE_SECONDS = 10_000, 60.0
PASS_SECONDS, PEAK_MIB, IDLE_SHARE = 60.0, 400, 0.02
BARE_OBJECTS, BARE_RATIO = 1_000, 2.0
"""The yardstick of the first pass, on so many other entries before it and as many after it (the machine's
speed varies meanwhile), and how much longer than it we may take."""
_GROUP, _VERSION = "extensions.gardener.cloud", "extensions.gardener.cloud/v1alpha1"
_CLASS, _BARE = "seed", "garden"
_WORKERS = 5
_ENTRIES = untyped(_GROUP, "v1alpha1", "backupentries", is_namespaced=False)
_SECRETS = untyped("", "v1", "secrets")
_KNOWN = 'rootcellar_watch_objects{kind="backupentries'
_CREATED = "2026-01-01T00:00:00Z"


class Field:
    """A control plane with entries that nobody has touched."""

    def __init__(self, control_plane: ControlPlane, bucket: Bucket, directory: Path, objects: int) -> None:
        self._bucket, self.objects, self.client = bucket, objects, control_plane.client
        self.namespace = control_plane.new_namespace()
        self.config = control_plane.kubeconfig(directory / "admin")
        self.log = directory / "operator.log"
        for contract in CONTRACTS:
            crds.install(control_plane.client, contract.definition)
        self._make_secret()
        for server in control_plane.servers:
            if server.name == "kube-controller-manager":
                server.kill()
        pour(control_plane.etcd.endpoint, self._written())

    def _make_secret(self) -> None:
        said = {
            "accessKeyID": self._bucket.access_key,
            "secretAccessKey": self._bucket.secret_key,
            "endpoint": self._bucket.endpoint,
            "s3ForcePathStyle": "true",
        }
        data = {name: base64.b64encode(value.encode()).decode() for name, value in said.items()}
        self.client.create(_SECRETS, {"metadata": {"name": "keys"}, "data": data}, self.namespace)

    def _written(self) -> Iterator[tuple[bytes, bytes]]:
        for number in range(self.objects + 2 * BARE_OBJECTS):
            shoot = f"shoot--bench--{number:06}"
            meta: dict[str, Any] = {"uid": str(uuid.uuid4()), "creationTimestamp": _CREATED}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": shoot, **meta}}
            namespace |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
            yield f"/registry/namespaces/{shoot}".encode(), json.dumps(namespace).encode()
            name, meta = f"{shoot}--{meta['uid']}", {**meta, "uid": str(uuid.uuid4()), "generation": 1}
            class_ = _CLASS if number < self.objects else _BARE
            spec: dict[str, Any] = {
                "type": "S3",
                "class": class_,
                "region": "eu-1",
                "bucketName": self._bucket.name,
            }
            spec["secretRef"] = {"name": "keys", "namespace": self.namespace}
            entry = {"apiVersion": _VERSION, "kind": "BackupEntry", "metadata": {"name": name, **meta}}
            yield (
                f"/registry/{_GROUP}/backupentries/{name}".encode(),
                json.dumps({**entry, "spec": spec}).encode(),
            )

    def versions(self) -> dict[str, str]:
        """The version of each entry and of each secret, which tells whether anything was written."""
        found = [*self.client.list(_ENTRIES), *self.client.list(_SECRETS)]
        return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}

    def succeeded(self) -> int:
        """How many entries say that all is done, and have their secret."""
        secrets = {each["metadata"]["namespace"] for each in self.client.list(_SECRETS)}
        return sum(
            each["spec"]["class"] == _CLASS
            and each.get("status", {}).get("lastOperation", {}).get("state") == "Succeeded"
            and each["metadata"]["name"].rpartition("--")[0] in secrets
            for each in self.client.list(_ENTRIES)
        )


def bare(field: Field) -> float:
    """Seconds for what the first pass has to write, for as many, by as many threads that do nothing else.
    Each call takes entries that have nothing yet.
    """
    client = field.client
    names = [
        each["metadata"]["name"]
        for each in client.list(_ENTRIES)
        if each["spec"]["class"] == _BARE and "status" not in each
    ][:BARE_OBJECTS]
    doing = status.processing(OperationType.CREATE, "BackupEntry", datetime.now(UTC))
    done = status.succeeded(OperationType.CREATE, "BackupEntry", 1, datetime.now(UTC))
    secret = client.get(_SECRETS, "keys", field.namespace)["data"]

    def write(name: str) -> None:
        shoot = name.rpartition("--")[0]
        client.merge_patch_raw(_ENTRIES, name, {"metadata": {"finalizers": [FINALIZER]}})
        client.merge_patch_raw(_ENTRIES, name, {"status": doing}, subresource="status")
        client.create(_SECRETS, {"metadata": {"name": f"entry-{shoot}"}, "data": secret}, shoot)
        client.merge_patch_raw(_ENTRIES, name, {"status": done}, subresource="status")

    began = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as threads:
        list(threads.map(write, names))
    return (time.monotonic() - began) / len(names) * field.objects


class Operator:
    """The process, as its metrics show it."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self._process, self._address, self._log = process, address, log
        self.pid = process.pid

    def figures(self) -> dict[str, float]:
        """Its metrics, by name and labels; empty before it serves them."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            if self._process.poll() is not None:
                raise SystemExit(f"the operator has ended:\n{self._log.read_text()}") from None
            return {}
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
        }

    def is_done(self, objects: int, reconciles: int) -> bool:
        """It leads, knows all objects, has gone through so many, and has nothing to do."""
        found, of = self.figures(), 'controller="rootcellar-backupentry"'
        known = sum(value for name, value in found.items() if name.startswith(_KNOWN))
        return (
            found.get("rootcellar_controller_leader") == 1
            and known >= objects
            and found.get(f'rootcellar_controller_reconcile_seconds_count{{{of},result="done"}}', 0)
            >= reconciles
            and self.rests("rootcellar-backupentry", found)
        )

    def rests(self, controller: str, found: dict[str, float] | None = None) -> bool:
        """Nothing is with a controller, or waits for it."""
        shown, of = self.figures() if found is None else found, f'controller="{controller}"'
        waiting = shown[f"rootcellar_controller_queue_depth{{{of}}}"]
        return not waiting and not shown[f"rootcellar_controller_running{{{of}}}"]


@contextmanager
def operator(field: Field, reconciles: int) -> Iterator[tuple[Operator, Watched]]:
    """A new operator, and what it used until it had been through all of its work."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "rootcellar", "operator", "--types=S3", f"--classes={_CLASS}"]
    command += [f"--namespace={field.namespace}", f"--listen={address}"]
    command += [f"--workers={_WORKERS}", "--log-format=json"]
    environment = {**os.environ, "KUBECONFIG": str(field.config)}
    with (
        field.log.open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            running, watched = Operator(process, address, field.log), Watched(process.pid)
            watched.until(lambda: running.is_done(field.objects, reconciles))
            yield running, watched
        finally:
            process.terminate()


def measured(field: Field, idle: float) -> Iterator[Row]:
    """Each figure as it is had."""
    before = bare(field)
    with operator(field, field.objects) as (_, first):
        is_whole = field.succeeded() == field.objects
    after = bare(field)
    yardstick = (before + after) / 2
    yield Row(
        f"bare writes for as many, from {BARE_OBJECTS:,} before and as many after, {_WORKERS} at a time",
        f"{before:.1f} and {after:.1f} s, {yardstick / field.objects * 1e3:.1f} ms each",
    )
    yield Row(
        f"first pass over {field.objects:,} entries that nobody has touched",
        f"{first.taken}, {first.seconds / yardstick:.2f} of the bare writes",
        f"{BARE_RATIO:.1f} of the bare writes",
        is_whole and first.seconds < BARE_RATIO * yardstick,
    )
    with operator(field, 0) as (running, again):
        is_whole = field.succeeded() == field.objects
        yield Row(
            "first pass of an operator over what another has left",
            again.taken,
            f"{PASS_SECONDS:.0f} s",
            is_whole and again.seconds < PASS_SECONDS,
        )
        looked = Watched(running.pid)
        looked.until(lambda: running.rests("rootcellar-backupentry-look"))
        yield Row("the backups of all are looked at behind that", looked.taken)
        versions, still = field.versions(), Watched(running.pid)
        still.rest(idle)
        is_still = field.versions() == versions
    yield Row(
        f"at rest for {idle:.0f} s",
        f"{'no' if is_still else 'some'} writes, {still.share:.2%} of a core",
        f"no writes, {IDLE_SHARE:.0%}",
        is_still and still.share < IDLE_SHARE,
    )
    peak = max(first.memory + again.memory + looked.memory + still.memory)
    yield Row("peak memory", f"{peak:.0f} MiB", f"{PEAK_MIB} MiB", peak < PEAK_MIB)


def main() -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rootcellar-bench-") as name:
        directory = Path(name)
        weed = SeaweedFS(directory / "weed")
        with ControlPlane(directory / "kubernetes") as control_plane:
            try:
                weed.start()
                control_plane.start()
                field = Field(control_plane, weed.new_bucket(), directory, given.objects)
                rows = list(measured(field, given.idle))
            finally:
                weed.kill()
    print(
        f"{os.cpu_count()} cores at a load of {os.getloadavg()[0]:.0f}, Python {platform.python_version()}\n"
    )
    return show(rows)


if __name__ == "__main__":
    sys.exit(main())
