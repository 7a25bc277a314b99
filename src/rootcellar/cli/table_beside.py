"""The verbs that work beside a live etcd, in the places of other programs.  See `table`."""

from __future__ import annotations

from rootcellar.cli import flags
from rootcellar.cli import wrapper_flags as wrapper
from rootcellar.cli.options import Command

WRAPPER = Command(
    "wrapper",
    "run etcd as etcd-wrapper does",
    """Has a sidecar (this program's, or etcd-backup-restore's) make the data directory fit, fetches etcd's
    configuration from it, runs etcd, answers /readyz and POST /stop, and notes how etcd ended.  It takes the
    flags of etcd-wrapper's start-etcd.  docs/as-etcd-backup-restore.md has what differs.""",
    operands=(wrapper.ACTION,),
    options=(
        wrapper.SIDECAR,
        wrapper.SIDECAR_TLS,
        wrapper.SIDECAR_CA,
        wrapper.SERVER_NAME,
        wrapper.CLIENT_CERT,
        wrapper.CLIENT_KEY,
        wrapper.CLIENT_PORT,
        wrapper.PORT,
        wrapper.READY,
        wrapper.NOTE,
        flags.ETCD,
    ),
    examples=("rootcellar wrapper start-etcd --backup-restore-host-port=etcd-main-local:8080",),
)
