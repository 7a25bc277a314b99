"""The options of the `operator` verb."""

from __future__ import annotations

from rootcellar.cli import values
from rootcellar.cli.options import Option, switch

_class = values.choice("shoot", "seed", "garden")


def _classes(value: str) -> tuple[str, ...]:
    return tuple(_class(each) for each in values.names(value))


CONTROLLERS = Option(
    "--controllers",
    values.names,
    "NAME,...",
    "contracts that are served, such as backupentry; all without it",
    env=True,
    setting="operator.controllers",
)
TYPES = Option(
    "--types",
    values.names,
    "TYPE,...",
    "provider types (spec.type) that are served",
    env=True,
    setting="operator.types",
    default="aws,azure,gcp,openstack,alicloud,local,S3",
)
CLASSES = Option(
    "--classes",
    _classes,
    "CLASS,...",
    "classes (spec.class) that are served: shoot, seed, garden",
    env=True,
    setting="operator.classes",
    default="shoot",
)
NAMESPACE = Option(
    "--namespace",
    values.text,
    "NAME",
    "where the Lease is; by default this pod's namespace",
    env=True,
    setting="operator.namespace",
)
LEASE = Option(
    "--lease-name",
    values.text,
    "NAME",
    "the Lease by which one process of several works; of each operator in a namespace another",
    env=True,
    setting="operator.lease-name",
    default="rootcellar-operator",
)
LISTEN = Option(
    "--listen",
    values.address,
    "[HOST]:PORT",
    "where probes and metrics are served",
    env=True,
    setting="operator.listen",
    default=":8080",
)
WORKERS = Option(
    "--workers",
    values.count,
    "N",
    "objects of one kind that are worked on at once",
    env=True,
    setting="operator.workers",
    default="5",
)
LEADER_ELECTION = switch("--leader-election", "one process of several works (the default)")
NO_LEADER_ELECTION = switch("--no-leader-election", "work at once: there must be no other process")
IGNORE_ANNOTATION = switch(
    "--ignore-operation-annotation", "act on every change of a spec, not only on gardener.cloud/operation"
)
TAKE_OVER = switch(
    "--take-over", "work although a Gardener extension for the same types is alive: its controllers are off"
)
HEARTBEAT = switch("--heartbeat", "renew the Lease gardener-extension-heartbeat, which gardenlet looks at")
GRACE = Option(
    "--entry-deletion-grace",
    values.span,
    "DURATION",
    "how long the objects of a deleted BackupEntry are kept",
    env=True,
    setting="operator.entry-deletion-grace",
    default="0s",
)
ENDPOINTS = Option(
    "--allowed-endpoints",
    values.names,
    "URL,...",
    "store endpoints that a providerConfig may name",
    env=True,
    setting="operator.allowed-endpoints",
)
DIRECTORY = Option(
    "--local-directory",
    values.path,
    "DIR",
    "where buckets of the type local are",
    env=True,
    setting="operator.local-directory",
    default="/etc/gardener/local-backupbuckets",
)
HOST_PATH = Option(
    "--local-mount-path",
    values.text,
    "DIR",
    "where that directory is mounted beside an etcd",
    env=True,
    setting="operator.local-mount-path",
    default="/etc/gardener/local-backupbuckets",
)

ALL: tuple[Option[object], ...] = (
    CONTROLLERS,
    TYPES,
    CLASSES,
    NAMESPACE,
    LEASE,
    LISTEN,
    WORKERS,
    LEADER_ELECTION,
    NO_LEADER_ELECTION,
    IGNORE_ANNOTATION,
    TAKE_OVER,
    HEARTBEAT,
    GRACE,
    ENDPOINTS,
    DIRECTORY,
    HOST_PATH,
)
