"""An etcd in a pod with its agent: the manifests as shipped, and what the page tells a person to type."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import rootcellar
from testbed import image_ours
from testbed.s3 import ACCESS_KEY, REGION, SECRET_KEY, Bucket, SeaweedFS
from tests.agent.agents import wait_until
from tests.e2e.pods import execute, is_ready

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "agent-beside-etcd-in-a-pod.md"
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


class Walk:
    """Follows the page in a namespace of its own, with a bucket of its own."""

    def __init__(self, cluster, namespace, endpoint):
        self.cluster, self.namespace = cluster, namespace
        self.words = {"REGION": REGION, "ENDPOINT": endpoint, "KEY": ACCESS_KEY, "SECRET": SECRET_KEY}

    def follow(self, heading, **words):
        """Carry out a section's kubectl commands; what each printed."""
        section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
        lines = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).replace("\\\n", " ").splitlines()
        assert lines
        return [self.kubectl(*self._real(line, words)) for line in lines]

    def _real(self, line, words):
        program, *arguments = shlex.split(line)
        assert program == "kubectl"
        for placeholder, real in {**self.words, **words}.items():
            arguments = [re.sub(rf"={placeholder}$", f"={real}", word) for word in arguments]
        return [word.replace("deploy/", f"{ROOT}/deploy/") for word in arguments]

    def kubectl(self, *arguments):
        return self.cluster.kubectl(*arguments, namespace=self.namespace)

    def etcdctl(self, *arguments):
        return execute(self.cluster, self.namespace, "etcd-0", "etcd", "etcdctl", *arguments)

    def rootcellar(self, *arguments):
        return self.kubectl("exec", "etcd-0", "-c", "agent", "--", "rootcellar", *arguments)

    def snapshot(self, kind):
        """Have the agent take one, as soon as it has opened its session: that is a moment after it leads."""
        taken = ("rootcellar", "snapshot", kind)
        wait_until(
            lambda: execute(self.cluster, self.namespace, "etcd-0", "agent", *taken) is not None,
            f"a {kind} is stored",
            120,
        )

    def hash_kv(self, revision):
        (answer,) = json.loads(self.etcdctl("endpoint", "hashkv", "--rev", str(revision), "-w", "json"))
        return answer["HashKV"]["hash"]

    def listed(self):
        return json.loads(self.rootcellar("ls", "--output", "json"))

    def keys(self):
        return self.etcdctl("get", "", "--prefix", "--keys-only").split()

    def revision(self):
        return json.loads(self.etcdctl("get", "none", "-w", "json"))["header"]["revision"]


@pytest.fixture
def walk(cluster, tmp_path):
    """At the end of step 3: etcd and its agent run."""
    with_bucket = SeaweedFS(tmp_path / "store")
    try:
        with_bucket.start()
        bucket = Bucket("backups", with_bucket.endpoint, None)
        bucket.client().create_bucket(Bucket=bucket.name)
        walk = Walk(cluster, cluster.new_namespace(), f"http://{cluster.let_in(with_bucket.port)}")
        walk.follow("2. The keys of the bucket")
        *_, status = walk.follow("3. Start it")
        assert "leader" in status
        walk.snapshot("delta")
        yield walk
        walk.kubectl("delete", "statefulset", "etcd", "--cascade=orphan")
        walk.kubectl("delete", "pod", "etcd-0", "--grace-period=0", "--force")
    finally:
        with_bucket.kill()


def test_a_lost_volume_is_restored_with_what_was_written_last(walk):
    walk.etcdctl("put", "in-the-full", "1")
    *_, said = walk.follow("4. The first proven backup")
    assert said.startswith("ROOTCELLAR OK"), said
    walk.etcdctl("put", "in-a-delta", "2")
    walk.snapshot("delta")
    walk.etcdctl("put", "just-before-the-end", "3")
    revision = walk.revision()
    before = walk.hash_kv(revision)

    *_, log = walk.follow("The volume is lost")

    assert "restore from the store" in log
    assert walk.keys() == ["in-a-delta", "in-the-full", "just-before-the-end"]
    assert walk.hash_kv(revision) == before
    walk.etcdctl("put", "after", "4")
    walk.snapshot("delta")
    assert walk.rootcellar("check").startswith("ROOTCELLAR OK")


def test_a_killed_pod_comes_back_with_its_volume_and_the_chain_goes_on(walk, cluster):
    walk.etcdctl("put", "before", "1")
    walk.snapshot("full")
    chains = len(walk.listed()["chains"])
    walk.kubectl("delete", "pod", "etcd-0", "--grace-period=0", "--force")

    wait_until(lambda: walk.etcdctl("get", "before", "--print-value-only") == "1\n", "etcd is back", 120)
    walk.kubectl("rollout", "status", "statefulset", "etcd", "--timeout=3m")
    walk.etcdctl("put", "after", "2")
    walk.snapshot("delta")

    assert is_ready(cluster, walk.namespace, "etcd-0")
    assert "start on the data that is there" in walk.kubectl("logs", "etcd-0", "-c", "initialize")
    assert walk.listed()["problems"] == []
    assert len(walk.listed()["chains"]) == chains
    assert walk.rootcellar("get", "@main", "after") == "2"


def test_a_person_takes_the_volume_back_to_a_moment(walk):
    walk.etcdctl("put", "good", "1")
    walk.snapshot("full")
    walk.etcdctl("put", "good", "2")
    walk.snapshot("delta")
    moment = datetime.now(UTC)
    wait_until(lambda: (datetime.now(UTC) - moment).total_seconds() > 2, "the mistake comes later")
    walk.etcdctl("del", "good")
    walk.snapshot("delta")

    walk.follow("Back to a moment before the mistake", TIME=moment.strftime("%Y-%m-%dT%H:%M:%SZ"))

    assert walk.etcdctl("get", "good", "--print-value-only") == "2\n"
    walk.etcdctl("put", "new", "3")
    walk.snapshot("delta")
    assert len(walk.listed()["timelines"]) == 2


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_manifests_name_the_images_of_this_version(manifest):
    images = set(re.findall(r"image: (\S+)", manifest.read_text()))
    assert images <= {f"rootcellar:{rootcellar.__version__}", image_ours.ETCD_NAME}
    assert image_ours.NAME in images


def test_the_restore_job_is_for_the_volume_the_store_and_the_member_of_the_manifest():
    found = {}
    for manifest in MANIFESTS:
        for document in yaml.safe_load_all(manifest.read_text()):
            found[document["kind"]] = document
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    job = found["Job"]["spec"]["template"]["spec"]
    (claim,) = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    mounted = {each["name"]: each for each in job["volumes"]}

    assert mounted["data"]["persistentVolumeClaim"]["claimName"] == f"{claim['metadata']['name']}-etcd-0"
    assert [mounted["keys"], mounted["config"]] == [
        next(each for each in pod["volumes"] if each["name"] == name) for name in ("keys", "config")
    ]
    assert job["securityContext"] == pod["securityContext"]
    initialize, etcd = pod["initContainers"]
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in etcd["command"][1:])
    given = dict(flag.removeprefix("--").split("=", 1) for flag in initialize["args"][2:])
    assert {name: flags[name] for name in ("name", "data-dir", "initial-cluster")} == {
        name: given[name] for name in ("name", "data-dir", "initial-cluster")
    }
    (store,) = yaml.safe_load(found["ConfigMap"]["data"]["config.yaml"])["stores"]
    assert store["url"] == f"s3://{given['store-container']}/{given['store-prefix']}"
