"""Pods as etcd-druid makes them: a sidecar and a wrapper each, in a network of their own, and what Kubernetes
does for them: it starts what has ended, asks whether a pod is ready, has names and services follow.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path

import trustme

import rootcellar
from rootcellar.kube.kinds import LEASES
from testbed import binaries
from tests.agent.druid_manifest import BACKUP_TLS, CONFIG, DATA, RULES, SECRET, TLS, DruidEtcd
from tests.agent.sandbox import NOBODY, Container, Network, within

HOME = "/home/nonroot"
API_PORT, STORE_PORT = 6443, 8333
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_PACE = 0.05
_GRACE = 30.0
_COMMANDS = {
    "backup-restore": (sys.executable, "-m", "rootcellar", "etcdbrctl"),
    "etcd": (sys.executable, "-m", "rootcellar", "wrapper"),
}
"""The entry points of the images that take the places of etcdbrctl's and etcd-wrapper's."""


class Pod:
    """One member: a volume that stays, and while it runs a sandbox with two containers."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.directory = cluster.directory / name
        self.volume = self.directory / "volume"
        self.directory.mkdir()
        self.new_volume()
        self.sandbox = None
        self.is_ready = False
        self.restarts = 0
        self.containers = {each: Container(each, self.directory) for each in _COMMANDS}

    def new_volume(self):
        """An empty one, as the kubelet hands it to a pod with an fsGroup."""
        shutil.rmtree(self.volume, ignore_errors=True)
        self.volume.mkdir()
        self.own_volume()

    def own_volume(self):
        """Give it and what is in it to the pod's group and user."""
        for path in self.volume.rglob("*"):
            os.lchown(path, NOBODY, NOBODY)
        os.chown(self.volume, 0, NOBODY)
        self.volume.chmod(0o2775)

    @property
    def data_dir(self):
        return self.volume / "new.etcd"

    @property
    def address(self):
        return self.sandbox.address

    def start(self):
        """As a new pod: on the volume that is there, at a new address."""
        cluster = self.cluster
        sandbox = cluster.network.pod(self.name, cluster.mounts(self))
        cluster.publish(self, sandbox.address)
        self.sandbox, self.is_ready = sandbox, False
        for name in self.containers:
            self.run(name)
        cluster.watch(self)

    def run(self, name):
        etcd = self.cluster.etcd
        arguments = etcd.sidecar_arguments() if name == "backup-restore" else etcd.etcd_arguments()
        environ = {
            "HOME": HOME,
            "PATH": f"{self.cluster.programs.etcd.parent}:/usr/bin:/bin",
            "PYTHONPATH": str(Path(rootcellar.__file__).parents[1]),
            **self.cluster.api_environ,
            **(etcd.sidecar_environment(self.name) if name == "backup-restore" else {}),
        }
        self.containers[name].run(self.sandbox, [*_COMMANDS[name], *arguments], environ)

    def delete(self):
        """As `kubectl delete pod` does: told to end, and killed after the grace."""
        self._end("terminate")

    def crash(self):
        """As a node that loses power does."""
        self._end("kill")

    def _end(self, how):
        self.cluster.unwatch(self)
        self.is_ready = False
        processes = [each._process for each in self.containers.values() if each.running]  # noqa: SLF001
        for process in processes:
            getattr(process, how)()
        for process in processes:
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:  # and then the kubelet kills it
                process.kill()
                process.wait()
        self.cluster.publish(self, None)
        self.sandbox.kill()

    def kill(self, name):
        """One container; it is started again."""
        self.containers[name].kill()

    def quarantines(self):
        """Members that were taken aside, oldest first."""
        return sorted(self.data_dir.glob(".rootcellar-quarantine/*/member"))

    # what is asked of it

    def forget_logs(self):
        for container in self.containers.values():
            container.log.unlink(missing_ok=True)

    def log(self, name):
        with suppress(FileNotFoundError):
            return self.containers[name].log.read_text(errors="replace")
        return ""

    def exec(self, *command):
        """What a command says, run in the pod."""
        container = Container("exec", self.directory / f"exec-{next(self.cluster.turns)}")
        paths = binaries_on_path(self.cluster.programs)
        container.run(self.sandbox, [paths[command[0]], *command[1:]], {"ETCDCTL_API": "3", "HOME": HOME})
        code = container._process.wait(60)  # noqa: SLF001
        said = container.log.read_text()
        assert code == 0, said
        return said

    def etcdctl(self, *words):
        etcd = self.cluster.etcd
        return self.exec(
            "etcdctl",
            f"--endpoints={etcd.scheme}://{etcd.local}:{etcd.client_port}",
            *self.cluster.trust,
            *words,
        )

    def etcdctl_json(self, *words):
        return json.loads(self.etcdctl(*words, "--write-out=json").splitlines()[-1])

    def put(self, key, value="v"):
        self.etcdctl("put", key, value)

    def get(self, key):
        return self.etcdctl("get", key, "--print-value-only").strip()

    def members(self):
        """(name, learner) of each, as this member lists them."""
        listed = self.etcdctl_json("member", "list")["members"]
        return sorted((each.get("name", ""), each.get("isLearner", False)) for each in listed)

    def hash_kv(self):
        """The member's own hash and the revision it is of."""
        (answer,) = self.etcdctl_json("endpoint", "hashkv")
        found = answer["HashKV"]
        return found["hash"], found["header"]["revision"]

    def cluster_id(self):
        (answer,) = self.etcdctl_json("endpoint", "status")
        return answer["Status"]["header"]["cluster_id"]

    def ask(self, path, port=None, method="GET"):
        """(code, body) of the sidecar, or of whoever has that port."""
        url = f"{self.cluster.etcd.scheme}://{self.address}:{port or self.cluster.etcd.backup_port}{path}"
        return within(self.sandbox.net, lambda: _ask(url, method))


class Cluster(AbstractContextManager["Cluster"]):
    """All pods of an Etcd.  `line` is etcd's; `bucket` is what is behind the store, where that is S3."""

    def __init__(self, directory, control_plane, *, line="3.5", bucket=None, **how):
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.programs = binaries.etcd(line)
        self.control_plane = control_plane
        self.turns = count(1)
        self.trust = ()
        namespace = control_plane.new_namespace()
        self.network = Network(directory / "network")
        self.api_environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(API_PORT)}
        self.bucket, self._store_end = bucket, None
        endpoint = f"http://{_store_host()}:{STORE_PORT}" if bucket else ""
        if bucket:
            how = {"provider": "S3", "container": bucket.name, "endpoint": endpoint, **how}
        self.etcd = DruidEtcd(namespace, **how)
        self.account = control_plane.service_account(namespace, RULES, directory / "token")
        self._make_leases()
        self._make_files()
        if bucket:
            self.open_store()
        self.pods = [Pod(self, name) for name in self.etcd.pods]
        self.network.name(self.etcd.local, "127.0.0.1")
        ports = (self.etcd.client_port, self.etcd.peer_port, self.etcd.backup_port)
        self.network.service(self.etcd.service, ports, self.ready_addresses)
        self._watched = {}
        self._ending = threading.Event()
        self._kubelet = threading.Thread(target=self._keep, name="kubelet", daemon=True)
        self._kubelet.start()

    def _make_leases(self):
        for each in (*self.etcd.pods, *self.etcd.snapshot_leases):
            self.control_plane.client.create(LEASES, {"metadata": {"name": each}}, self.etcd.namespace)

    def _make_files(self):
        self.config = self.directory / "config"
        self.config.mkdir()
        self.write_config()
        self.secret = self.directory / "secret"
        self.secret.mkdir()
        if self.bucket:
            files = {
                "accessKeyID": self.bucket.access_key,
                "secretAccessKey": self.bucket.secret_key,
                "region": self.bucket.region,
                "s3ForcePathStyle": "true",
                "bucketName": f"{self.bucket.name}\n",
            }
            for name, text in files.items():
                (self.secret / name).write_text(text)
        self.tls = self.directory / "tls"
        if self.etcd.client_tls:
            self._make_certificates()
            self.trust = tuple(
                f"--{flag}={TLS}/{file}"
                for flag, file in (
                    ("cacert", "ca/ca.crt"),
                    ("cert", "client/tls.crt"),
                    ("key", "client/tls.key"),
                )
            )
        self.local_store = self.directory / "local-store"
        self.local_store.mkdir()
        os.chown(self.local_store, NOBODY, NOBODY)

    def _make_certificates(self):
        """One authority for all; the names are those that Gardener has in its certificates."""
        authority, etcd = trustme.CA(), self.etcd
        names = (etcd.local, etcd.service, f"*.{etcd.name}-peer.{etcd.namespace}.svc")
        for place, own in {
            "ssl/server": names,
            "ssl/client": ("etcd-client",),
            "ssl/peer/server": names,
            "backup/server": names,
        }.items():
            directory = self.tls / place
            directory.mkdir(parents=True)
            issued = authority.issue_cert(*own)
            issued.cert_chain_pems[0].write_to_path(directory / "tls.crt")
            issued.private_key_pem.write_to_path(directory / "tls.key")
            os.chown(directory / "tls.key", 0, NOBODY)
            (directory / "tls.key").chmod(0o640)
        for place in ("ssl/ca", "ssl/peer/ca", "backup/ca"):
            (self.tls / place).mkdir()
            authority.cert_pem.write_to_path(self.tls / place / "ca.crt")

    def write_config(self):
        """The ConfigMap as the Etcd is now."""
        (self.config / "etcd.conf.yaml").write_text(self.etcd.configuration())

    def mounts(self, pod):
        home = pod.directory / f"home-{next(self.turns)}"  # the image's, new for each pod
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        found = {HOME: home, DATA: pod.volume, CONFIG: self.config, _TOKEN: self.account.directory}
        if self.etcd.provider == "S3":
            found[SECRET] = self.secret
        if self.etcd.client_tls:
            found |= {TLS: self.tls / "ssl", BACKUP_TLS: self.tls / "backup"}
        if self.etcd.provider == "Local":
            found[f"{HOME}/{self.etcd.container}"] = self.local_store
        return found

    # the store

    def open_store(self):
        port = int(self.bucket.endpoint.rpartition(":")[2])
        network = self.network
        self._store_end = network.let_in(network.node, _store_host(), STORE_PORT, ("127.0.0.1", port))

    def close_store(self):
        """Nobody answers there any more."""
        self._store_end()
        self._store_end = None

    # what Kubernetes does

    def publish(self, pod, address):
        self.network.name(self.etcd.host(pod.name), address)

    def ready_addresses(self):
        return [pod.address for pod in self.pods if pod.is_ready]

    def watch(self, pod):
        port = int(self.control_plane.url.rpartition(":")[2])
        end = self.network.let_in(pod.sandbox, "127.0.0.1", API_PORT, ("127.0.0.1", port))
        self._watched[pod] = end

    def unwatch(self, pod):
        end = self._watched.pop(pod, None)
        if end is not None:
            end()

    def _keep(self):
        while not self._ending.wait(0.2):
            for pod in list(self._watched):
                for name, container in pod.containers.items():
                    if not container.running and pod in self._watched:
                        pod.restarts += 1
                        pod.run(name)
                pod.is_ready = pod in self._watched and self._probe(pod)

    def _probe(self, pod):
        try:
            return pod.ask("/readyz", self.etcd.wrapper_port)[0] == 200
        except OSError:
            return False

    # what a test does

    def scale(self, replicas):
        """More members: their leases, the ConfigMap and the StatefulSet; the new pods, not started."""
        new = self.etcd.pods
        self.etcd.replicas = replicas
        new = self.etcd.pods[len(new) :]
        for each in new:
            self.control_plane.client.create(LEASES, {"metadata": {"name": each}}, self.etcd.namespace)
        self.write_config()
        pods = [Pod(self, name) for name in new]
        self.pods += pods
        return pods

    def new_leases(self):
        """Those of an Etcd that is made anew."""
        for each in (*self.etcd.pods, *self.etcd.snapshot_leases):
            self.control_plane.client.delete(LEASES, each, self.etcd.namespace)
        self._make_leases()

    def tls_annotations(self):
        found = (self.lease(pod.name).metadata.annotations for pod in self.pods)
        return [each.get("member.etcd.gardener.cloud/tls-enabled") for each in found]

    def start(self, *pods):
        for pod in pods or self.pods:
            pod.start()

    def wait(self, condition, what, seconds=240):
        """Until it holds; the logs are told where it does not."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(AssertionError, OSError, ValueError):
                if found := condition():
                    return found
            if time.monotonic() > deadline:
                error = AssertionError(f"not within {seconds} s: {what}")
                for pod in self.pods:
                    for name in pod.containers:
                        error.add_note(f"--- {pod.name} {name}\n{pod.log(name)[-6000:]}")
                raise error
            threading.Event().wait(_PACE)

    def wait_ready(self, *pods):
        pods = pods or self.pods
        self.wait(lambda: all(pod.is_ready for pod in pods), f"{', '.join(pod.name for pod in pods)} ready")

    def wait_whole(self):
        """Until all are ready and vote."""
        self.wait_ready()
        whole = sorted((pod.name, False) for pod in self.pods)
        self.wait(lambda: self.pods[0].members() == whole, "everybody votes")

    def wait_told(self, pod, name, text, seconds=240):
        self.wait(lambda: text in pod.log(name), f"{text!r} in the log of {pod.name} {name}", seconds)

    def lease(self, name):
        return self.control_plane.client.get(LEASES, name, self.etcd.namespace)

    def holders(self):
        return [self.lease(pod.name).spec.holder_identity for pod in self.pods]

    def __exit__(self, *_):
        self._ending.set()
        self._kubelet.join(30)
        for pod in self.pods:
            for container in pod.containers.values():
                container.kill()
            self.unwatch(pod)
        if self._store_end is not None:
            self.close_store()
        self.network.__exit__()


def binaries_on_path(programs):
    return {"etcdctl": programs.etcdctl, "etcdutl": programs.etcdutl or programs.etcdctl}


def _store_host():
    return "10.231.0.1"


def _ask(url, method):
    request = urllib.request.Request(url, method=method)
    context = ssl.create_default_context()  # kubelet's probes trust everybody
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
