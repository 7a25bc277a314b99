"""Every flag of etcd-backup-restore, declared once, with its default and its place in the configuration file.

A section is what its configuration file groups; `SUBCOMMANDS` says which a subcommand takes.  A flag with
`idle` is known and accepted, and means nothing here: the text says why.  Durations are in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from rootcellar.booleans import go_boolean
from rootcellar.cli.values import choice, go_span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Flag:
    """`parse` raises ValueError with the words that finish "VALUE is ...".  `key` is the name in the file.

    `moot` is the value of an idle flag, beside the default, that asks for what is done anyway.  A `usual`
    one is given by etcd-druid whatever an Etcd says, so that nobody has to be told.
    """

    name: str
    parse: Callable[[str], Any]
    default: str
    key: str
    short: str = ""
    many: bool = False
    idle: str = ""
    moot: str = ""
    usual: bool = False

    @property
    def is_switch(self) -> bool:
        return self.parse is go_boolean


def integer(value: str) -> int:
    """A whole number, which may be negative."""
    try:
        return int(value, 10)
    except ValueError:
        raise ValueError("not a whole number") from None


def tcp_port(value: str) -> int:
    """0 is any that is free."""
    number = integer(value)
    if not 0 <= number <= 65535:
        raise ValueError("not a port from 0 to 65535")
    return number


def several(value: str) -> tuple[str, ...]:
    """Parted by commas; nothing is none."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _flag(name: str, parse: Callable[[str], Any], default: str, key: str, **more: Any) -> Any:
    return field(metadata={"flag": Flag(name, parse, default, key, **more)})


_NO_TEMPORARY = "nothing is written to temporary files on the way"
_NO_EMBEDDED = "a restore runs no etcd"
_OWN_PARTS = "the size and number of parts follow from the object"


@dataclass(frozen=True, slots=True)
class Connection:
    """How etcd is reached."""

    endpoints: tuple[str, ...] = _flag(
        "endpoints", several, "http://127.0.0.1:2379", "endpoints", short="e", many=True
    )
    service_endpoints: tuple[str, ...] = _flag(
        "service-endpoints", several, "", "serviceEndpoints", many=True
    )
    username: str = _flag("etcd-username", str, "", "username")
    password: str = _flag("etcd-password", str, "", "password")
    cert: str = _flag("cert", str, "", "certFile")
    key: str = _flag("key", str, "", "keyFile")
    ca: str = _flag("cacert", str, "", "caFile")
    insecure_transport: bool = _flag("insecure-transport", go_boolean, "true", "insecureTransport")
    insecure_skip_verify: bool = _flag(
        "insecure-skip-tls-verify",
        go_boolean,
        "true",
        "insecureSkipVerify",
        idle="etcd's certificate is always checked: give --cacert",
        moot="false",
    )
    timeout: int = _flag("etcd-connection-timeout", go_span, "30s", "connectionTimeout")
    snapshot_timeout: int = _flag("etcd-snapshot-timeout", go_span, "15m", "snapshotTimeout")
    defrag_timeout: int = _flag("etcd-defrag-timeout", go_span, "8m", "defragTimeout")


@dataclass(frozen=True, slots=True)
class Snapstore:
    """Where backups are; `source-` and `secondary-` go before the flags' names for those."""

    provider: str = _flag("storage-provider", str, "", "provider")
    container: str = _flag("store-container", str, "", "container")
    prefix: str = _flag("store-prefix", str, "", "prefix")
    endpoint: str = _flag("store-endpoint-override", str, "", "endpointOverride")
    max_parallel: int = _flag(
        "max-parallel-chunk-uploads", integer, "5", "maxParallelChunkUploads", idle=_OWN_PARTS
    )
    min_chunk: int = _flag("min-chunk-size", integer, "5242880", "minChunkSize", idle=_OWN_PARTS)
    temporary: str = _flag("snapstore-temp-directory", str, "/tmp", "tempDir", idle=_NO_TEMPORARY, usual=True)  # noqa: S108


@dataclass(frozen=True, slots=True)
class Snapshots:
    """When snapshots are taken, and which are kept."""

    schedule: str = _flag("schedule", str, "0 */1 * * *", "schedule", short="s")
    delta_period: int = _flag("delta-snapshot-period", go_span, "20s", "deltaSnapshotPeriod")
    delta_memory: int = _flag("delta-snapshot-memory-limit", integer, "10485760", "deltaSnapshotMemoryLimit")
    gc_period: int = _flag("garbage-collection-period", go_span, "1m", "garbageCollectionPeriod")
    gc_policy: str = _flag(
        "garbage-collection-policy",
        choice("Exponential", "LimitBased"),
        "Exponential",
        "garbageCollectionPolicy",
    )
    max_backups: int = _flag("max-backups", integer, "7", "maxBackups", short="m")
    delta_retention: int = _flag(
        "delta-snapshot-retention-period", go_span, "0s", "deltaSnapshotRetentionPeriod"
    )


@dataclass(frozen=True, slots=True)
class Compression:
    """How snapshots are packed."""

    enabled: bool = _flag("compress-snapshots", go_boolean, "true", "enabled")
    policy: str = _flag("compression-policy", choice("gzip", "lzw", "zlib"), "gzip", "policy")


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restore makes."""

    initial_cluster: str = _flag("initial-cluster", str, "default=http://localhost:2380", "initialCluster")
    token: str = _flag("initial-cluster-token", str, "etcd-cluster", "initialClusterToken")
    data_dir: str = _flag("data-dir", str, "default.etcd", "dataDir", short="d")
    temporary: str = _flag(
        "restoration-temp-snapshots-dir",
        str,
        "default.restoration.tmp",
        "tempDir",
        idle=_NO_TEMPORARY,
        usual=True,
    )
    peer_urls: tuple[str, ...] = _flag(
        "initial-advertise-peer-urls", several, "http://localhost:2380", "initialAdvertisePeerURLs", many=True
    )
    name: str = _flag("name", str, "default", "name")
    skip_hash_check: bool = _flag(
        "skip-hash-check", go_boolean, "false", "skipHashCheck", idle="hashes are always checked"
    )
    max_fetchers: int = _flag(
        "max-fetchers", integer, "6", "maxFetchers", idle="deltas are fetched ahead of their use"
    )
    max_message: int = _flag(
        "max-call-send-message-size", integer, "10485760", "maxCallSendMsgSize", idle=_NO_EMBEDDED
    )
    max_request: int = _flag("max-request-bytes", integer, "10485760", "maxRequestBytes", idle=_NO_EMBEDDED)
    max_operations: int = _flag("max-txn-ops", integer, "10240", "maxTxnOps", idle=_NO_EMBEDDED)
    quota: int = _flag("embedded-etcd-quota-bytes", integer, "8589934592", "embeddedEtcdQuotaBytes")
    compaction_mode: str = _flag(
        "auto-compaction-mode",
        choice("periodic", "revision"),
        "periodic",
        "autoCompactionMode",
        idle=_NO_EMBEDDED,
    )
    compaction_retention: str = _flag(
        "auto-compaction-retention", str, "30m", "autoCompactionRetention", idle=_NO_EMBEDDED
    )
    next_version: bool = _flag(
        "next-cluster-version-compatible",
        go_boolean,
        "true",
        "nextClusterVersionCompatible",
        idle=_NO_EMBEDDED,
    )


_ONE_LEASE = "only the full's lease is renewed: a compaction writes no delta"


@dataclass(frozen=True, slots=True)
class Health:
    """The Kubernetes leases of members and snapshots."""

    snapshot_leases: bool = _flag(
        "enable-snapshot-lease-renewal", go_boolean, "false", "snapshotLeaseRenewalEnabled"
    )
    member_lease: bool = _flag(
        "enable-member-lease-renewal", go_boolean, "false", "memberLeaseRenewalEnabled"
    )
    heartbeat: int = _flag("k8s-heartbeat-duration", go_span, "30s", "heartbeatDuration")
    full_lease: str = _flag(
        "full-snapshot-lease-name", str, "full-snapshot-revisions", "fullSnapshotLeaseName"
    )
    delta_lease: str = _flag(
        "delta-snapshot-lease-name",
        str,
        "delta-snapshot-revisions",
        "deltaSnapshotLeaseName",
    )


@dataclass(frozen=True, slots=True)
class Election:
    """How it is found out who leads."""

    period: int = _flag("reelection-period", go_span, "5s", "reelectionPeriod")
    timeout: int = _flag(
        "etcd-connection-timeout-leader-election",
        go_span,
        "5s",
        "etcdConnectionTimeout",
        idle="a question who leads waits three seconds",
    )


_OWN_PAUSES = "pauses follow from what failed"


@dataclass(frozen=True, slots=True)
class Pauses:
    """What follows a failure."""

    multiplier: int = _flag("backoff-multiplier", integer, "2", "multiplier", idle=_OWN_PAUSES)
    attempts: int = _flag("backoff-attempt-limit", integer, "6", "attemptLimit", idle=_OWN_PAUSES)
    threshold: int = _flag("backoff-threshold-time", go_span, "128s", "thresholdTime", idle=_OWN_PAUSES)


@dataclass(frozen=True, slots=True)
class Http:
    """Where the API is served."""

    port: int = _flag("server-port", tcp_port, "8080", "port", short="p")
    cert: str = _flag("server-cert", str, "", "server-cert")
    key: str = _flag("server-key", str, "", "server-key")
    profiling: bool = _flag(
        "enable-profiling", go_boolean, "false", "enableProfiling", idle="there is no profile to serve"
    )


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What stands outside of the sections of the file."""

    defragmentation: str = _flag("defragmentation-schedule", str, "0 0 */3 * *", "defragmentationSchedule")
    wrapper: bool = _flag("use-etcd-wrapper", go_boolean, "false", "useEtcdWrapper")


@dataclass(frozen=True, slots=True)
class SecondSite:
    """The copy to a second store."""

    enabled: bool = _flag("secondary-backup-sync-enabled", go_boolean, "false", "backupSyncEnabled")
    period: int = _flag("secondary-backup-sync-period", go_span, "1h", "backupSyncPeriod")


@dataclass(frozen=True, slots=True)
class Validating:
    """How much `initialize` looks at."""

    mode: str = _flag("validation-mode", choice("full", "sanity"), "full", "validationMode")


@dataclass(frozen=True, slots=True)
class Compacting:
    """What `compact` has beside the rest."""

    defragment: bool = _flag(
        "defragment", go_boolean, "true", "defragment", idle="what is written has no holes anyway"
    )
    snapshot_timeout: int = _flag(
        "etcd-snapshot-timeout", go_span, "30m", "snapshotTimeout", idle=_NO_EMBEDDED
    )
    defrag_timeout: int = _flag("etcd-defrag-timeout", go_span, "8m", "defragTimeout", idle=_NO_EMBEDDED)
    snapshot_leases: bool = _flag(
        "enable-snapshot-lease-renewal", go_boolean, "false", "snapshotLeaseRenewalEnabled"
    )
    full_lease: str = _flag(
        "full-snapshot-lease-name", str, "full-snapshot-revisions", "fullSnapshotLeaseName"
    )
    delta_lease: str = _flag(
        "delta-snapshot-lease-name",
        str,
        "delta-snapshot-revisions",
        "deltaSnapshotLeaseName",
        idle=_ONE_LEASE,
    )
    scrape_wait: int = _flag(
        "metrics-scrape-wait-duration",
        go_span,
        "0s",
        "metricsScrapeWaitDuration",
        idle="a compaction serves no metrics",
    )


@dataclass(frozen=True, slots=True)
class Copying:
    """What `copy` takes."""

    max_backups: int = _flag("max-backups-to-copy", integer, "-1", "maxBackups")
    max_age: int = _flag("max-backup-age", integer, "-1", "maxBackupAge")
    parallel: int = _flag("max-parallel-copy-operations", integer, "10", "maxParallelCopyOperations")
    wait: bool = _flag("wait-for-final-snapshot", go_boolean, "false", "waitForFinalSnapshot")
    wait_timeout: int = _flag("wait-for-final-snapshot-timeout", go_span, "0s", "waitForFinalSnapshotTimeout")


@dataclass(frozen=True, slots=True)
class Common:
    """What every subcommand takes.  A level of 5 and above tells more."""

    log_level: int = _flag("log-level", integer, "4", "")


@dataclass(frozen=True, slots=True)
class FromFile:
    """The file in the place of all flags."""

    config_file: str = _flag("config-file", str, "", "")


@dataclass(frozen=True, slots=True)
class Placed:
    """A section of a subcommand: `key` is its name in the configuration file, "" for its top."""

    section: type[Any]
    key: str = ""
    before: str = ""

    def flags(self) -> Iterator[tuple[str, Flag]]:
        """The attribute and the flag of each value, the flag under its full name."""
        for each in fields(self.section):
            flag: Flag = each.metadata["flag"]
            name = f"{self.before}{flag.name}"
            yield each.name, replace(flag, name=name)


_CONNECTION = Placed(Connection, "etcdConnectionConfig")
_STORE = Placed(Snapstore, "snapstoreConfig")
_RESTORATION = Placed(Restoration, "restorationConfig")
_SNAPSHOTS = Placed(Snapshots, "snapshotterConfig")
_COMPRESSION = Placed(Compression, "compressionConfig")
_UPKEEP = Placed(Upkeep)
_COMMON = Placed(Common)

SUBCOMMANDS: dict[str, tuple[Placed, ...]] = {
    "server": (
        _CONNECTION,
        Placed(Http, "serverConfig"),
        _SNAPSHOTS,
        _STORE,
        Placed(Snapstore, "secondarySnapstoreConfig", "secondary-"),
        Placed(SecondSite, "secondarySnapstoreConfig"),
        _COMPRESSION,
        _RESTORATION,
        Placed(Health, "healthConfig"),
        Placed(Election, "leaderElectionConfig"),
        Placed(Pauses, "exponentialBackoffConfig"),
        _UPKEEP,
        Placed(FromFile),
        _COMMON,
    ),
    "snapshot": (_CONNECTION, _STORE, _SNAPSHOTS, _COMPRESSION, _UPKEEP, _COMMON),
    "restore": (_STORE, _RESTORATION, _COMMON),
    "initialize": (_CONNECTION, _STORE, _RESTORATION, Placed(Validating), _COMMON),
    "compact": (_STORE, _RESTORATION, Placed(Compacting), _COMMON),
    "copy": (_STORE, Placed(Snapstore, "", "source-"), Placed(Copying), _COMMON),
}
