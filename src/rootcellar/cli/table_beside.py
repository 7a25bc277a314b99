"""The verbs that work beside a live etcd, in the places of other programs.  See `table`."""

from __future__ import annotations

from rootcellar.cli import defrag_flags as defrag
from rootcellar.cli import flags
from rootcellar.cli import operator_flags as operator
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

ETCDBRCTL = Command(
    "etcdbrctl",
    "be etcd-backup-restore's program",
    """Takes etcd-backup-restore's command line (server, snapshot, restore, initialize, compact, copy) with
    its flags, variables and configuration file, so that a workload made for it can run this image.
    `rootcellar etcdbrctl COMMAND --help` lists flags; docs/as-etcd-backup-restore.md has what differs.""",
    operands=(flags.WORDS,),
    examples=(
        "rootcellar etcdbrctl restore --storage-provider=Local --store-prefix=etcd-main --data-dir=/var/etcd",
    ),
    raw=True,
)

DEFRAG = Command(
    "defrag",
    "have etcd give back the space it does not use",
    """Defragments the members that waste enough, followers first, the leader last, one at a time and only
    while all voters answer; a member answers nothing meanwhile.  A NOSPACE alarm is taken back once its
    member has room again; etcd before 3.6 does not say its quota, so give --quota then.""",
    options=(defrag.WASTE, defrag.LEAST, defrag.EACH, flags.QUOTA, flags.DRY_RUN, *flags.CONNECTION),
    examples=("rootcellar defrag --endpoints http://127.0.0.1:2379 --dry-run",),
)

OPERATOR = Command(
    "operator",
    "serve Gardener's BackupBuckets and BackupEntries in a cluster",
    """Makes buckets and the secrets that etcds back up with, and deletes exactly what is to be deleted, as
    Gardener's provider extensions do.  docs/operator.md says how it is installed, charts/rootcellar does it.
    It speaks to the API server of its pod, or of KUBECONFIG.""",
    options=(*operator.ALL, flags.LOG_FORMAT, flags.CHECK_CONFIG),
    examples=("rootcellar operator --types S3,local --check-config",),
)
