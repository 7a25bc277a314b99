"""The operator in pods, as its chart installs it: from a bucket to backups that are deleted."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from rootcellar.errors import KubeNotFoundError
from rootcellar.kube.kinds import untyped
from testbed.kubernetes import NAMESPACES
from testbed.s3 import ACCESS_KEY, REGION, SECRET_KEY, Bucket
from tests.agent.agents import wait_until
from tests.e2e.pods import PODS, execute
from tests.stores.places import s3_store

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "etcd-with-agent.yaml"
CHART = ROOT / "charts" / "rootcellar"
GARDENER = "extensions.gardener.cloud"
BUCKETS = untyped(GARDENER, "v1alpha1", "backupbuckets", is_namespaced=False)
ENTRIES = untyped(GARDENER, "v1alpha1", "backupentries", is_namespaced=False)
SECRETS = untyped("", "v1", "secrets")
LEASES = untyped("coordination.k8s.io", "v1", "leases")
ROLES = untyped("rbac.authorization.k8s.io", "v1", "clusterroles", is_namespaced=False)
OURS = "app.kubernetes.io/component=operator"


class Seed:
    """A cluster with the operator in it, and what gardenlet and etcd-druid would do there."""

    def __init__(self, cluster, seaweed):
        self.cluster, self.client = cluster, cluster.client
        self.namespace = cluster.new_namespace()
        self.endpoint = cluster.let_in(seaweed.port)
        self.bucket = Bucket(f"backups-{self.namespace}", seaweed.endpoint, None)
        keys = {
            "accessKeyID": ACCESS_KEY,
            "secretAccessKey": SECRET_KEY,
            "region": REGION,
            "endpoint": f"http://{self.endpoint}",
            "s3ForcePathStyle": "true",
        }
        data = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
        self.client.create(SECRETS, {"metadata": {"name": "keys"}, "data": data}, self.namespace)

    def install(self):
        port = self.endpoint.rpartition(":")[2]
        chosen = f"types={{S3}},networkPolicy.egressPorts={{443,6443,{port}}}"
        where = ("--namespace", self.namespace)
        self.cluster.helm("install", "rc", CHART, *where, "--set", chosen, "--wait", "--timeout", "4m")

    def ask(self, kind, name, **spec):
        """Create an object as gardenlet does, and wait until it is there."""
        body = {
            "apiVersion": f"{GARDENER}/v1alpha1",
            "kind": {"backupbuckets": "BackupBucket", "backupentries": "BackupEntry"}[kind.plural],
            "metadata": {"name": name, "annotations": {"gardener.cloud/operation": "reconcile"}},
            "spec": {
                "type": "S3",
                "region": REGION,
                "secretRef": {"name": "keys", "namespace": self.namespace},
                **spec,
            },
        }
        self.client.create(kind, body)
        wait_until(lambda: self.last(kind, name).get("state") == "Succeeded", f"{name} is ready", 120)

    def last(self, kind, name):
        return self.client.get(kind, name).get("status", {}).get("lastOperation", {})

    def is_gone(self, kind, name, namespace=""):
        try:
            self.client.get(kind, name, namespace)
        except KubeNotFoundError:
            return True
        return False

    def new_entry(self, letter):
        """A control plane's namespace with an entry; the names of both."""
        shoot = f"shoot--{self.namespace}--{letter}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.client.create(NAMESPACES, {"metadata": {"name": shoot, "labels": labels}})
        entry = f"{shoot}--0a1b2c"
        self.ask(ENTRIES, entry, bucketName=self.bucket.name)
        return shoot, entry

    def start_etcd(self, shoot, entry):
        """An etcd with an agent that has nothing but the secret of the entry."""
        manifest = MANIFEST.read_text()
        for there, wanted in (
            ("s3://backups/prod/etcd-main", f"s3://{self.bucket.name}/{entry}/etcd-main"),
            ("--store-container=backups", f"--store-container={self.bucket.name}"),
            ("--store-prefix=prod/etcd-main", f"--store-prefix={entry}/etcd-main"),
        ):
            assert there in manifest
            manifest = manifest.replace(there, wanted)
        self.cluster.kubectl("apply", "--filename=-", stdin=manifest, namespace=shoot)

    def back_up(self, shoot):
        """Write a key and have a full taken."""
        run = (self.cluster, shoot, "etcd-0")
        written = ("etcdctl", "put", "of", shoot)
        wait_until(lambda: execute(*run, "etcd", *written) == "OK\n", f"etcd of {shoot} is there", 180)
        taken = ("rootcellar", "snapshot", "full")
        wait_until(lambda: execute(*run, "agent", *taken) is not None, f"a full of {shoot} is stored", 120)

    def stop_etcd(self, shoot):
        self.cluster.kubectl("delete", "statefulset", "etcd", "--wait=false", namespace=shoot)
        wait_until(lambda: self.is_gone(PODS, "etcd-0", shoot), f"the pod of {shoot} ends", 120)

    def objects(self, entry):
        """What lies below an entry's prefix, byte for byte."""
        store = s3_store(self.bucket, entry)
        return {info.key: b"".join(store.get(info.key)) for info in store.list()}

    def logs(self):
        """Of all containers of the operator that run, or ran last."""
        try:
            return self.cluster.kubectl("logs", "--selector", OURS, "--tail=-1", namespace=self.namespace)
        except subprocess.CalledProcessError:  # one that is only being made has none
            return ""


@pytest.fixture(scope="module")
def seed(cluster, seaweed):
    seed = Seed(cluster, seaweed)
    seed.install()
    yield seed
    cluster.helm("uninstall", "rc", "--namespace", seed.namespace)


@pytest.mark.timeout(900)  # it also starts the cluster
def test_a_deleted_entry_takes_its_own_backups_along_and_leaves_the_others_byte_for_byte(seed):
    seed.ask(BUCKETS, seed.bucket.name)
    (one, its), (other, others) = seed.new_entry("a"), seed.new_entry("b")
    seed.start_etcd(one, its)
    seed.back_up(one)
    seed.stop_etcd(one)
    kept = seed.objects(its)
    assert any("/v2/Full-" in f"/{key}" for key in kept), sorted(kept)
    store = s3_store(seed.bucket, others)
    for key, content in kept.items():
        store.put(key, [content])

    seed.client.delete(ENTRIES, its)
    wait_until(lambda: seed.is_gone(ENTRIES, its), "the entry is gone", 180)

    assert seed.objects(its) == {}
    assert seed.objects(others) == kept
    assert seed.is_gone(SECRETS, "etcd-backup", one)
    assert not seed.is_gone(SECRETS, "etcd-backup", other)

    seed.client.delete(ENTRIES, others)
    wait_until(lambda: seed.is_gone(ENTRIES, others), "the other entry is gone", 180)
    seed.client.delete(BUCKETS, seed.bucket.name)
    wait_until(lambda: seed.is_gone(BUCKETS, seed.bucket.name), "the bucket is gone", 180)
    names = [each["Name"] for each in seed.bucket.client().list_buckets()["Buckets"]]
    assert seed.bucket.name not in names


def test_a_right_that_was_taken_away_is_named_in_the_log(seed):
    role = "rc-rootcellar-backupentry"
    rules = seed.client.get(ROLES, role)["rules"]
    fewer = [rule for rule in rules if rule["resources"] != ["backupentries/status"]]
    assert len(fewer) == len(rules) - 1
    seed.client.merge_patch(ROLES, role, {"rules": fewer})
    seed.cluster.kubectl("delete", "pods", "--selector", OURS, "--wait=false", namespace=seed.namespace)

    told = "this service account may not patch backupentries/status (to tell how they are)"
    wait_until(lambda: told in seed.logs(), "the log names it", 120)

    seed.client.merge_patch(ROLES, role, {"rules": rules})
    lease = json.dumps(seed.client.get(LEASES, "rc-rootcellar", seed.namespace)["spec"])
    seed.cluster.kubectl("delete", "pods", "--selector", OURS, "--wait=false", namespace=seed.namespace)
    wait_until(
        lambda: json.dumps(seed.client.get(LEASES, "rc-rootcellar", seed.namespace)["spec"]) != lease,
        "it works again",
        120,
    )
