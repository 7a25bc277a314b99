"""What etcd-druid makes of an Etcd of three: arguments, environment and files, as its inventory lists them.

The values are those of its sample `druid_v1alpha1_etcd_localstack.yaml`; durations are printed as Go does.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

CONFIG, DATA, SECRET = "/var/etcd/config", "/var/etcd/data", "/var/etcd-backup"
TLS, BACKUP_TLS = "/var/etcd/ssl", "/var/etcdbr/ssl"
RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "patch", "update"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["statefulsets"],
        "verbs": ["get", "list", "watch", "patch", "update"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
]
"""The Role of both containers."""


@dataclass
class DruidEtcd:
    """An Etcd.  `provider` is "S3", "Local" or "" for no store; `endpoint` overrides the store's.

    `client_tls` is TLS for clients and for the sidecar, `peer_tls` between members.
    """

    namespace: str
    replicas: int = 3
    provider: str = "S3"
    container: str = "etcd-bucket"
    endpoint: str = ""
    client_tls: bool = False
    peer_tls: bool = False
    name: str = "etcd-test"
    client_port: int = 2379
    peer_port: int = 2380
    backup_port: int = 8080
    wrapper_port: int = 9095

    @property
    def pods(self):
        return [f"{self.name}-{number}" for number in range(self.replicas)]

    def host(self, pod):
        """The pod's name in the headless service."""
        return f"{pod}.{self.name}-peer.{self.namespace}.svc"

    @property
    def local(self):
        """What the pod's hostAliases have for 127.0.0.1."""
        return f"{self.name}-local"

    @property
    def service(self):
        return f"{self.name}-client"

    @property
    def snapshot_leases(self):
        return (f"{self.name}-full-snap", f"{self.name}-delta-snap") if self.provider else ()

    @property
    def scheme(self):
        return "https" if self.client_tls else "http"

    @property
    def peer_scheme(self):
        return "https" if self.peer_tls else "http"

    def peer_url(self, pod):
        return f"{self.peer_scheme}://{self.host(pod)}:{self.peer_port}"

    def configuration(self):
        """The ConfigMap's one key, `etcd.conf.yaml`."""
        clients = {pod: [f"{self.scheme}://{self.host(pod)}:{self.client_port}"] for pod in self.pods}
        values = {
            "name": "etcd-config",
            "data-dir": f"{DATA}/new.etcd",
            "metrics": "basic",
            "snapshot-count": 10000,
            "enable-grpc-gateway": False,
            "quota-backend-bytes": 8589934592,
            "initial-cluster-token": "etcd-cluster",
            "initial-cluster-state": "new",
            "initial-cluster": ",".join(f"{pod}={self.peer_url(pod)}" for pod in self.pods),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "30m",
            "listen-peer-urls": f"{self.peer_scheme}://0.0.0.0:{self.peer_port}",
            "listen-client-urls": f"{self.scheme}://0.0.0.0:{self.client_port}",
            "initial-advertise-peer-urls": {pod: [self.peer_url(pod)] for pod in self.pods},
            "advertise-client-urls": clients,
            "next-cluster-version-compatible": True,
        }
        if self.client_tls:
            values["client-transport-security"] = _security(f"{TLS}/server", f"{TLS}/ca")
        if self.peer_tls:
            values["peer-transport-security"] = {
                **_security(f"{TLS}/peer/server", f"{TLS}/peer/ca"),
                "skip-client-san-verification": False,
            }
        return yaml.safe_dump(values, sort_keys=False)

    def etcd_arguments(self):
        """Of the container `etcd`."""
        yield "start-etcd"
        yield f"--backup-restore-host-port={self.local}:{self.backup_port}"
        yield f"--etcd-server-name={self.local}"
        yield f"--backup-restore-tls-enabled={_go(self.client_tls)}"
        if self.client_tls:
            yield f"--backup-restore-ca-cert-bundle-path={BACKUP_TLS}/ca/ca.crt"
            yield f"--etcd-client-cert-path={TLS}/client/tls.crt"
            yield f"--etcd-client-key-path={TLS}/client/tls.key"
        yield f"--etcd-client-port={self.client_port}"
        yield f"--etcd-wrapper-port={self.wrapper_port}"

    def sidecar_arguments(self):
        """Of the container `backup-restore`."""
        yield "server"
        if self.provider:
            full, delta = self.snapshot_leases
            yield "--enable-snapshot-lease-renewal=true"
            yield f"--full-snapshot-lease-name={full}"
            yield f"--delta-snapshot-lease-name={delta}"
            yield f"--storage-provider={self.provider}"
            yield f"--store-prefix={self.name}"
            if self.endpoint:
                yield f"--store-endpoint-override={self.endpoint}"
            yield "--schedule=0 */24 * * *"
            yield "--delta-snapshot-period=5m0s"
            yield "--garbage-collection-period=12h0m0s"
            yield "--delta-snapshot-memory-limit=1073741824"
            yield "--garbage-collection-policy=Exponential"
            yield "--compress-snapshots=true"
            yield "--compression-policy=gzip"
            yield "--etcd-snapshot-timeout=15m0s"
        yield "--defragmentation-schedule=0 */24 * * *"
        yield "--etcd-defrag-timeout=15m0s"
        yield "--auto-compaction-mode=periodic"
        yield "--auto-compaction-retention=30m"
        if self.client_tls:
            yield f"--cacert={TLS}/ca/ca.crt"
            yield f"--cert={TLS}/client/tls.crt"
            yield f"--key={TLS}/client/tls.key"
        yield f"--insecure-transport={_go(not self.client_tls)}"
        yield f"--insecure-skip-tls-verify={_go(not self.client_tls)}"
        yield f"--endpoints={self.scheme}://{self.local}:{self.client_port}"
        yield f"--service-endpoints={self.scheme}://{self.service}:{self.client_port}"
        if self.client_tls:
            yield f"--server-cert={BACKUP_TLS}/server/tls.crt"
            yield f"--server-key={BACKUP_TLS}/server/tls.key"
        yield f"--data-dir={DATA}/new.etcd"
        yield f"--restoration-temp-snapshots-dir={DATA}/restoration.temp"
        yield f"--snapstore-temp-directory={DATA}/temp"
        yield "--etcd-connection-timeout=5m0s"
        yield "--use-etcd-wrapper=true"
        yield "--embedded-etcd-quota-bytes=8589934592"
        yield "--enable-member-lease-renewal=true"
        yield "--k8s-heartbeat-duration=10s"
        yield "--etcd-connection-timeout-leader-election=5s"
        yield "--reelection-period=5s"
        yield f"--server-port={self.backup_port}"

    def sidecar_environment(self, pod):
        """Of the container `backup-restore`; the other has none."""
        found = {"POD_NAME": pod, "POD_NAMESPACE": self.namespace}
        if self.provider:
            found["STORAGE_CONTAINER"] = self.container
        if self.provider == "S3":
            found["AWS_APPLICATION_CREDENTIALS"] = SECRET
        return found


def _security(server, ca):
    return {
        "cert-file": f"{server}/tls.crt",
        "key-file": f"{server}/tls.key",
        "client-cert-auth": True,
        "trusted-ca-file": f"{ca}/ca.crt",
        "auto-tls": False,
    }


def _go(value):
    return "true" if value else "false"
