"""What a test cluster is made of: every file and every command line, from values alone."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.kubernetes_binaries import KubernetesBinaries
    from testbed.tls import Authority, KeyPair

NODE = "node"
BRIDGE = "cni0"
ADDRESS = "10.244.0.1"
"""The node's: of the API server, of DNS, and of what is let in from outside."""
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
PORT = 6443
ISSUER = "https://kubernetes.default.svc.cluster.local"
API_NAMES = (ADDRESS, "10.96.0.1", "localhost", "127.0.0.1", "kubernetes.default.svc", "kubernetes.default")
SOCKET = "/run/containerd/containerd.sock"
PAUSE = "testbed/pause:1"
NAMES_READY = (ADDRESS, 8181)


@dataclass(frozen=True)
class Programs:
    """What runs."""

    kubernetes: KubernetesBinaries
    etcd: Path
    coredns: Path
    system: Path
    """What is laid over /usr: containerd and the tools it calls."""


@dataclass(frozen=True)
class Keys:
    """Who is who."""

    authority: Authority
    server: KeyPair
    admin: KeyPair
    node: KeyPair
    signing: Path
    """The key that signs tokens of service accounts, and the public one beside it."""
    verifying: Path


def kubeconfig(server: str, ca: bytes, pair: KeyPair) -> dict[str, Any]:
    """How to reach `server` as the owner of `pair`, in one document that needs no other file."""
    user = {"client-certificate-data": _encoded(pair.certificate), "client-key-data": _encoded(pair.key)}
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": "testbed", "user": user}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    }


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def files(state: Path, name: str, keys: Keys) -> Mapping[str, str]:
    """The files of a cluster whose cgroup is `name`, by their paths below its state directory."""
    ca = keys.authority.ca.read_bytes()
    url = f"https://{ADDRESS}:{PORT}"
    return {
        "admin.kubeconfig": json.dumps(kubeconfig(url, ca, keys.admin)),
        "kubelet.kubeconfig": json.dumps(kubeconfig(url, ca, keys.node)),
        "containerd.toml": _containerd(state),
        "cni/10-bridge.conflist": json.dumps(_network(state)),
        "kubelet.json": json.dumps(_kubelet(state, name, keys)),
        "Corefile": _corefile(state),
    }


def _containerd(state: Path) -> str:
    # Lowering a score for the kernel's killer is not allowed everywhere: restrict_oom_score_adj.
    return f"""version = 2
root = "{state}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
"""


def _network(state: Path) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "dataDir": f"{state}/addresses",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": True, "hairpinMode": True}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [{**bridge, "ipam": ipam}, ports]}


def _kubelet(state: Path, name: str, keys: Keys) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys.authority.ca)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{name}",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enforceNodeAllocatable": [],
        # A full disk of the machine is no matter of the tests.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "failSwapOn": False,
        "podLogsDir": f"{state}/pod-logs",
        "resolvConf": "",
        "volumePluginDir": f"{state}/volume-plugins",
    }


def _corefile(state: Path) -> str:
    # Two blocks: in one, the answer to everything else would come first and hide the cluster's names.
    return f"""cluster.local in-addr.arpa {{
  bind {ADDRESS}
  errors
  ready {ADDRESS}:{NAMES_READY[1]}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {state}/admin.kubeconfig testbed
    ttl 1
  }}
}}
. {{
  bind {ADDRESS}
  template ANY ANY . {{
    rcode NXDOMAIN
  }}
}}
"""


def node(state: Path, programs: Programs, keys: Keys) -> dict[str, Any]:
    """What `testbed.cluster_node` carries out."""
    of = programs.kubernetes.parts
    config = {"kubeconfig": state / "admin.kubeconfig"}
    first = [
        _part("containerd", ["/usr/bin/containerd", "--config", state / "containerd.toml"]),
        _part("etcd", [programs.etcd, *_flags({"data-dir": state / "etcd"}), "--unsafe-no-fsync"]),
        _part("kube-apiserver", [of["kube-apiserver"], *_flags(_api_server(state, keys))]),
        _part("kubelet", [of["kubelet"], *_flags(_kubelet_flags(state))]),
    ]
    then = [
        _part(
            "kube-controller-manager",
            [of["kube-controller-manager"], *_flags(config | _controller_manager(state, keys))],
        ),
        _part(
            "kube-scheduler",
            [
                of["kube-scheduler"],
                *_flags({**config, "leader-elect": "false", "cert-dir": state / "certificates/scheduler"}),
            ],
        ),
        _part("kube-proxy", [of["kube-proxy"], *_flags(config | _proxy())]),
        _part("coredns", [programs.coredns, "-conf", state / "Corefile"]),
    ]
    return {
        "state": str(state),
        "system": str(programs.system),
        "bridge": BRIDGE,
        "address": f"{ADDRESS}/24",
        "ca": str(keys.authority.ca),
        "groups": [
            {"after": None, "parts": first},
            {"after": f"https://{ADDRESS}:{PORT}/readyz", "parts": then},
        ],
    }


def _part(name: str, command: list[str | Path]) -> dict[str, Any]:
    return {"name": name, "command": [str(word) for word in command], "environment": {}}


def _flags(flags: Mapping[str, str | Path]) -> list[str | Path]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _api_server(state: Path, keys: Keys) -> dict[str, str | Path]:
    return {
        "etcd-servers": "http://127.0.0.1:2379",
        "bind-address": "0.0.0.0",
        "advertise-address": ADDRESS,
        "secure-port": str(PORT),
        "cert-dir": state / "certificates/apiserver",
        "tls-cert-file": keys.server.certificate,
        "tls-private-key-file": keys.server.key,
        "client-ca-file": keys.authority.ca,
        "kubelet-client-certificate": keys.admin.certificate,
        "kubelet-client-key": keys.admin.key,
        # Or logs and exec look for the node's name in DNS.
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": ISSUER,
        "service-account-key-file": keys.verifying,
        "service-account-signing-key-file": keys.signing,
        "service-cluster-ip-range": SERVICES,
        "authorization-mode": "Node,RBAC",
        "allow-privileged": "true",
        "profiling": "false",
    }


def _controller_manager(state: Path, keys: Keys) -> dict[str, str | Path]:
    return {
        "leader-elect": "false",
        "cert-dir": state / "certificates/controller-manager",
        "root-ca-file": keys.authority.ca,
        "service-account-private-key-file": keys.signing,
        "use-service-account-credentials": "true",
        # With the limits that these have by default the first pod waits twice as long.
        "kube-api-qps": "500",
        "kube-api-burst": "1000",
        "node-monitor-period": "1s",
    }


def _kubelet_flags(state: Path) -> dict[str, str | Path]:
    return {
        "config": state / "kubelet.json",
        "kubeconfig": state / "kubelet.kubeconfig",
        "hostname-override": NODE,
        "node-ip": ADDRESS,
        "root-dir": state / "kubelet",
        "cert-dir": state / "certificates/kubelet",
    }


def _proxy() -> dict[str, str | Path]:
    return {
        "hostname-override": NODE,
        "proxy-mode": "iptables",
        "cluster-cidr": PODS,
        # These are the whole machine's.
        "conntrack-max-per-core": "0",
        "conntrack-tcp-timeout-established": "0",
        "conntrack-tcp-timeout-close-wait": "0",
    }
