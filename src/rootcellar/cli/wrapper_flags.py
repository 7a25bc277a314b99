"""The options of the `wrapper` verb: those of etcd-wrapper's `start-etcd`, and a few of ours."""

from __future__ import annotations

from rootcellar.booleans import go_boolean
from rootcellar.cli import values
from rootcellar.cli.options import Operand, Option

ACTION = Operand("start-etcd", values.choice("start-etcd"), "the one thing there is to do", optional=True)
SIDECAR = Option(
    "--backup-restore-host-port", values.text, "HOST:PORT", "where the sidecar listens", default=":8080"
)
SIDECAR_TLS = Option(
    "--backup-restore-tls-enabled",
    go_boolean,
    "BOOL",
    "whether the sidecar is asked by HTTPS",
    default="false",
)
SIDECAR_CA = Option(
    "--backup-restore-ca-cert-bundle-path",
    values.maybe_path,
    "FILE",
    "whom the sidecar's certificate must come from",
)
SERVER_NAME = Option(
    "--etcd-server-name",
    values.text,
    "HOST",
    "the host under which our own etcd is asked",
    default="localhost",
)
CLIENT_CERT = Option(
    "--etcd-client-cert-path", values.maybe_path, "FILE", "the certificate to ask our own etcd with"
)
CLIENT_KEY = Option("--etcd-client-key-path", values.maybe_path, "FILE", "its private key")
CLIENT_PORT = Option("--etcd-client-port", values.count, "PORT", "etcd's client port", default="2379")
PORT = Option(
    "--etcd-wrapper-port", values.count, "PORT", "where /readyz and /stop are served", default="9095"
)
READY = Option(
    "--etcd-ready-timeout",
    values.go_span,
    "DURATION",
    "after how long it is logged that etcd is not ready; 0: never",
    default="0",
)
NOTE = Option(
    "--exit-code-file",
    values.path,
    "FILE",
    "where it is noted how etcd ended",
    default="/var/etcd/data/exit_code",
)
