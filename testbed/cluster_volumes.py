"""Volumes for claims of a test cluster: directories of the node, as PersistentVolumes of type `local`.

Those honour fsGroup, so a pod that is not root can write to one; what kube-controller-manager's own
provisioner makes (`hostPath`) does not.  This is an external provisioner as Kubernetes defines one: it
answers claims that the controller manager has marked as its own, and deletes volumes whose claims are gone.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rootcellar.errors import KubeError, RootcellarError
from rootcellar.kube.kinds import untyped

if TYPE_CHECKING:
    from pathlib import Path

    from rootcellar.kube.client import KubeClient

CLASS = "local"
PROVISIONER = "testbed.rootcellar.dev/local"
CLAIMS = untyped("", "v1", "persistentvolumeclaims")
VOLUMES = untyped("", "v1", "persistentvolumes", is_namespaced=False)
CLASSES = untyped("storage.k8s.io", "v1", "storageclasses", is_namespaced=False)
_PACE = 0.25


def storage_class() -> dict[str, Any]:
    """The class that a claim without one gets."""
    return {
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


class Volumes:
    """Gives volumes below `directory` on `node` to claims, in a thread of its own."""

    def __init__(self, client: KubeClient, directory: Path, node: str) -> None:
        self._client, self._directory, self._node = client, directory, node
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="testbed-volumes", daemon=True)
        self._client.create(CLASSES, storage_class())
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(_PACE):
            with suppress(RootcellarError):  # the API server is away; the next round sees the same claims
                self._round()

    def _round(self) -> None:
        volumes = {volume["metadata"]["name"]: volume for volume in self._client.list(VOLUMES)}
        for claim in self._client.list(CLAIMS):
            asked = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/storage-provisioner")
            name = f"pvc-{claim['metadata']['uid']}"
            if asked == PROVISIONER and claim["status"]["phase"] == "Pending" and name not in volumes:
                (self._directory / name).mkdir(parents=True, exist_ok=True)
                self._client.create(VOLUMES, _volume(name, claim, self._directory / name, self._node))
        for name, volume in volumes.items():
            ours = volume["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by")
            released = volume["status"].get("phase") == "Released"
            if (
                ours == PROVISIONER
                and released
                and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
            ):
                # The directory first: a crash in between leaves a volume that the next round deletes.
                shutil.rmtree(self._directory / name, ignore_errors=True)
                with suppress(KubeError):
                    self._client.delete(VOLUMES, name)


def _volume(name: str, claim: dict[str, Any], directory: Path, node: str) -> dict[str, Any]:
    wanted, meta = claim["spec"], claim["metadata"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "accessModes": wanted["accessModes"],
            "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{each: meta[each] for each in ("namespace", "name", "uid")},
            },
            "local": {"path": str(directory)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": wanted["storageClassName"],
        },
    }
