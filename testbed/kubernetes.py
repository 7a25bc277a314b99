"""A Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, and no node.

It is shared by the tests of a run, which have it as a `RunningControlPlane`; a test has a namespace of its
own, and one that stops a server or writes behind its back a `ControlPlane` of its own.  `KUBEBUILDER_ASSETS`
names a directory with the programs.
"""

from __future__ import annotations

import base64
import shutil
import time
import urllib.error
import urllib.request
from contextlib import suppress
from itertools import count, product
from typing import TYPE_CHECKING

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from rootcellar.errors import KubeError, KubeNotFoundError
from rootcellar.kube import kubeconfig
from rootcellar.kube.client import KubeClient
from rootcellar.kube.kinds import untyped
from testbed import binaries
from testbed.etcd import Etcds
from testbed.ports import free_port
from testbed.server import Server, unique
from testbed.tls import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from rootcellar.kube.access import Access
    from testbed.etcd import Etcd
    from testbed.kubernetes_binaries import KubernetesBinaries

NAMESPACES = untyped("", "v1", "namespaces", is_namespaced=False)
SERVICE_ACCOUNTS = untyped("", "v1", "serviceaccounts")
ROLES = untyped("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = untyped("rbac.authorization.k8s.io", "v1", "rolebindings")
_REVIEWS = untyped("authorization.k8s.io", "v1", "subjectaccessreviews", is_namespaced=False)
ISSUER = "https://kubernetes.default.svc.cluster.local"
_TOKEN_SECONDS = 3600
_PACE = 0.05
_SECONDS = 60

Rule = dict[str, list[str]]
"""A rule of RBAC: apiGroups, resources, verbs and, where it is about some objects, resourceNames."""


class ApiServer(Server):
    """kube-apiserver on the port that is its own from start to start."""

    def __init__(self, programs: KubernetesBinaries, directory: Path, tls: Authority, etcd: Etcd) -> None:
        super().__init__("kube-apiserver", directory)
        self.url = f"https://127.0.0.1:{free_port()}"
        self._programs, self._tls, self._etcd = programs, tls, etcd
        self._context = tls.context()
        directory.mkdir(parents=True, exist_ok=True)
        self.signing_key = directory / "service-accounts.key"
        self._public_key = directory / "service-accounts.pub"
        write_signing_key(self.signing_key, self._public_key)

    def start(self) -> None:
        """Start it, or start it again, and wait until it is ready."""
        pair = self._tls.server
        flags: dict[str, str | Path] = {
            "etcd-servers": self._etcd.endpoint,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",  # it takes no loopback address for one
            "secure-port": self.url.rpartition(":")[2],
            "cert-dir": self.directory / "certificates",
            "tls-cert-file": pair.certificate,
            "tls-private-key-file": pair.key,
            "client-ca-file": self._tls.ca,
            "service-account-issuer": ISSUER,
            "service-account-key-file": self._public_key,
            "service-account-signing-key-file": self.signing_key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "Node,RBAC",
            "profiling": "false",
        }
        self.launch([self._programs.apiserver, *_written(flags)])
        self.wait_until(self.answers, "ready", seconds=120)

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=self._context).close()
        except OSError:  # an HTTPError is one
            return False
        return True


class ControllerManager(Server):
    """kube-controller-manager: garbage collection, service accounts, namespaces that end, workloads."""

    def __init__(
        self, programs: KubernetesBinaries, directory: Path, api_server: ApiServer, config: Path, ca: Path
    ) -> None:
        super().__init__("kube-controller-manager", directory)
        self._programs, self._api_server, self._config, self._ca = programs, api_server, config, ca

    def start(self) -> None:
        flags: dict[str, str | Path] = {
            "kubeconfig": self._config,
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
            "secure-port": str(free_port()),
            "cert-dir": self.directory / "certificates",
            "root-ca-file": self._ca,
            "service-account-private-key-file": self._api_server.signing_key,
            "use-service-account-credentials": "true",
            "kube-api-qps": "500",
            "kube-api-burst": "1000",
        }
        self.launch([self._programs.controller_manager, *_written(flags)])


class ServiceAccount:
    """A service account with rights, and `directory` with its files as kubelet mounts them."""

    def __init__(
        self, client: KubeClient, ca: bytes, namespace: str, name: str, directory: Path, rules: Sequence[Rule]
    ) -> None:
        self.namespace, self.name, self.directory = namespace, name, directory
        self._client, self._ca = client, ca
        self._turns = count(1)
        self._create()
        self.set_rules(rules)
        self.rotate()

    def _create(self) -> None:
        self._client.create(SERVICE_ACCOUNTS, {"metadata": {"name": self.name}}, self.namespace)

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """What it may do in its namespace, from now on."""
        role = {"metadata": {"name": self.name}, "rules": list(rules)}
        try:
            self._client.merge_patch(ROLES, self.name, {"rules": list(rules)}, self.namespace)
        except KubeNotFoundError:
            self._client.create(ROLES, role, self.namespace)
            group = "rbac.authorization.k8s.io"
            subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
            binding = {
                "metadata": {"name": self.name},
                "roleRef": {"apiGroup": group, "kind": "Role", "name": self.name},
                "subjects": [subject],
            }
            self._client.create(ROLE_BINDINGS, binding, self.namespace)
        wait_for_rights(self._client, self.namespace, self.name, rules, self.namespace)

    def rotate(self) -> None:
        """Exchange the token as kubelet does: a new directory, and a link that changes in one step."""
        body = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        token = self._client.create_below(SERVICE_ACCOUNTS, self.name, "token", body, self.namespace)
        turn = self.directory / f"..turn-{next(self._turns)}"
        turn.mkdir(parents=True)
        (turn / "token").write_text(token["status"]["token"])
        (turn / "namespace").write_text(self.namespace)
        (turn / "ca.crt").write_bytes(self._ca)
        link = self.directory / "..data_tmp"
        link.symlink_to(turn.name)
        link.rename(self.directory / "..data")
        for name in ("token", "namespace", "ca.crt"):
            with suppress(FileExistsError):
                (self.directory / name).symlink_to(f"..data/{name}")

    def revoke(self) -> None:
        """Have the tokens so far refused: they are of an account that is deleted, and made anew."""
        self._client.delete(SERVICE_ACCOUNTS, self.name, self.namespace)
        self._create()


class RunningControlPlane:
    """One that somebody runs, as the administrator whose kubeconfig is given.  Leaving it removes the
    namespaces that were made by it.
    """

    def __init__(self, config: Path) -> None:
        self._config = config
        self._made: list[str] = []

    def start(self) -> None:
        """Have `client` speak to it."""
        self.access: Access = kubeconfig.read([self._config])
        self.client = KubeClient(self.access)
        self.url, ca = self.access.url, self.access.ca
        self.ca = ca if isinstance(ca, bytes) else ca.read_bytes() if ca else b""

    def kubeconfig(self, path: Path) -> Path:
        """Write the administrator's kubeconfig there."""
        shutil.copy(self._config, path)
        return path

    def new_namespace(self) -> str:
        """One that nobody else uses."""
        name = unique(f"test-{time.time_ns() // 1000 % 10**9}")
        self.client.create(NAMESPACES, {"metadata": {"name": name}})
        self._made.append(name)
        return name

    def service_account(
        self, namespace: str, rules: Sequence[Rule], directory: Path, name: str = "tested"
    ) -> ServiceAccount:
        """An account that may do what `rules` say in its namespace, with its files below `directory`."""
        return ServiceAccount(self.client, self.ca, namespace, name, directory, rules)

    def environ(self) -> Mapping[str, str]:
        """What kubelet sets in a pod, so that it finds this API server."""
        host, _, port = self.url.rpartition("/")[2].rpartition(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._made:
            with suppress(KubeError):
                self.client.delete(NAMESPACES, name)


class ControlPlane(RunningControlPlane):
    """One of our own.  Without `controllers` nothing is made of workloads, and nothing is collected: that is
    enough for a test that stops the API server.
    """

    etcd: Etcd
    """What has its objects, to be written to."""
    api_server: ApiServer
    """To be stopped and started."""

    def __init__(self, directory: Path, *, controllers: bool = True) -> None:
        super().__init__(directory / "admin.kubeconfig")
        self.directory = directory
        self._has_controllers = controllers
        self.servers: list[Server] = []
        """Those that run, in the order of their start."""

    def start(self) -> None:
        """Start everything, and wait until a namespace can be used.  Raises UnavailableError, ServerError."""
        programs = binaries.kubernetes()
        tls = Authority(self.directory / "tls")
        self.etcd = Etcds(self.directory).make("3.6", "kubernetes")
        self.servers.append(self.etcd)
        self.etcd.start()
        self.api_server = ApiServer(programs, self.directory, tls, self.etcd)
        self.servers.append(self.api_server)
        self.api_server.start()
        self._write_config(tls)
        super().start()
        if self._has_controllers:
            controllers = ControllerManager(programs, self.directory, self.api_server, self._config, tls.ca)
            self.servers.append(controllers)
            controllers.start()
            controllers.wait_until(lambda: _has_account(self.client, "default"), "at work")

    def _write_config(self, tls: Authority) -> None:
        ca = base64.b64encode(tls.ca.read_bytes()).decode()
        cluster = {"server": self.api_server.url, "certificate-authority-data": ca}
        admin = tls.client("admin", organization="system:masters")
        user = {"client-certificate": str(admin.certificate), "client-key": str(admin.key)}
        context = {"cluster": "testbed", "user": "admin"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "testbed", "context": context}],
        }
        self._config.write_text(yaml.safe_dump(config))

    def answers(self) -> bool:
        return self.api_server.answers()

    def reach(self) -> Path:
        """For a `RunningControlPlane`."""
        return self._config

    def kill(self) -> None:
        for server in reversed(self.servers):
            server.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _has_account(client: KubeClient, namespace: str) -> bool:
    try:
        client.get(SERVICE_ACCOUNTS, "default", namespace)
    except KubeNotFoundError:
        return False
    return True


def is_allowed(
    client: KubeClient,
    namespace: str,
    account: str,
    verb: str,
    group: str,
    resource: str,
    place: str = "",
    name: str = "",
) -> bool:
    """Whether a service account may do it, in the namespace `place` or, without one, in all."""
    resource, _, below = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": below}
    user = f"system:serviceaccount:{namespace}:{account}"
    body = {"spec": {"user": user, "resourceAttributes": {**asked, "namespace": place, "name": name}}}
    return bool(client.create(_REVIEWS, body)["status"]["allowed"])


def wait_for_rights(
    client: KubeClient, namespace: str, account: str, rules: Sequence[Rule], place: str = ""
) -> None:
    """Until all that the rules say is allowed: the API server hears of roles by watches of its own, in no
    order and a moment after they were written.
    """
    until = time.monotonic() + _SECONDS
    for rule in rules:
        for asked in product(
            rule["verbs"], rule["apiGroups"], rule["resources"], [place], rule.get("resourceNames", [""])
        ):
            while not is_allowed(client, namespace, account, *asked):
                if time.monotonic() > until:
                    raise TimeoutError(f"{namespace}/{account} has no right to {asked}")
                time.sleep(_PACE)


def write_signing_key(private: Path, public: Path) -> None:
    """Make the pair of keys that tokens of service accounts are signed and verified with."""
    key = ec.generate_private_key(ec.SECP256R1())
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    private.chmod(0o600)
    form = PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, form))


def _written(flags: Mapping[str, str | Path]) -> Iterator[str]:
    return (f"--{name}={value}" for name, value in flags.items())
