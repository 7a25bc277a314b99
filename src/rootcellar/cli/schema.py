"""The configuration file: its types are its schema, its reference page and its checks.

Keys are written with dashes.  `${file:/path}` and `${env:NAME}` may stand in any text that has no pattern,
and are replaced where it is used.  What this version does not act on yet says so in its description.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
SPAN = r"^\d+(\.\d+)?(ms|s|m|h|d|w)(\d+(\.\d+)?(ms|s|m|h|d|w))*$"
SIZE = r"^\d+(\.\d+)?([kKmMgGtT]i?)?[bB]?$"
RATE = SIZE.removesuffix("$") + "/s$"
STANDBY = "-standby"
"""What follows the name of a mirror in that of the place where its own chain lies."""

Text = Annotated[str, Meta(min_length=1)]
Span = Annotated[str, Meta(pattern=SPAN)]
Size = Annotated[str, Meta(pattern=SIZE)]
Rate = Annotated[str, Meta(pattern=RATE)]
Name = Annotated[str, Meta(pattern=NAME)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """What every part of the file has."""


class Credentials(Table, frozen=True):
    """Where a store's keys come from; exactly one of these, and never the keys themselves."""

    dir: Annotated[
        Text | None,
        Meta(description="a directory with a file per value (accessKeyID, ...), as a Secret is mounted"),
    ] = None
    file: Annotated[Text | None, Meta(description="a JSON file with the same names")] = None
    env_prefix: Annotated[
        Text | None, Meta(description="how the variables begin: MAIN_ for MAIN_ACCESS_KEY_ID and its like")
    ] = None
    ambient: Annotated[
        bool, Meta(description="what the provider's own library finds: profile, machine or pod identity")
    ] = False

    def __post_init__(self) -> None:
        if sum((self.dir is not None, self.file is not None, self.env_prefix is not None, self.ambient)) != 1:
            raise ValueError("needs exactly one of dir, file, env-prefix, ambient")


class Generations(Table, frozen=True):
    """Of how many of the newest hours, days, ... (UTC) to keep the newest full."""

    hourly: Count = 0
    daily: Count = 0
    weekly: Count = 0
    monthly: Count = 0
    yearly: Count = 0

    def __post_init__(self) -> None:
        if not any((self.hourly, self.daily, self.weekly, self.monthly, self.yearly)):
            raise ValueError("keeps nothing: at least one of its numbers must be above 0")


class Retention(Table, frozen=True):
    """Which backups `prune` keeps; exactly one policy.  docs/retention.md explains them."""

    gfs: Annotated[Generations | None, Meta(description="grandfather, father, son")] = None
    exponential: Annotated[bool, Meta(description="etcd-backup-restore's Exponential")] = False
    limit: Annotated[Positive | None, Meta(description="etcd-backup-restore's LimitBased: so many fulls")] = (
        None
    )
    deltas: Annotated[
        Span | None,
        Meta(description="for how long every second can be restored; default: as long as the full is kept"),
    ] = None
    minimum: Annotated[
        Positive, Meta(description="newest provable chains that are kept whatever the policy says")
    ] = 1

    def __post_init__(self) -> None:
        if sum((self.gfs is not None, self.exponential, self.limit is not None)) != 1:
            raise ValueError("needs exactly one of gfs, exponential, limit")


class Encryption(Table, frozen=True):
    """Client-side encryption: what is written can be read with the private keys of these alone."""

    recipients: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, description="public keys (age1...), of which each one's owner can restore"),
    ]


class Identities(Table, frozen=True):
    """Where the private keys are that open what is encrypted; only who reads backups needs them."""

    file: Annotated[Text | None, Meta(description="a file of `key new` or age-keygen, mode 0600")] = None
    dir: Annotated[Text | None, Meta(description="a directory of such files, as a Secret is mounted")] = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.dir is None):
            raise ValueError("needs exactly one of file, dir")


class Limits(Table, frozen=True):
    """Bandwidth that a store may take."""

    upload: Annotated[Rate | None, Meta(description="such as 50MiB/s")] = None
    download: Annotated[Rate | None, Meta(description="such as 50MiB/s")] = None


class Store(Table, frozen=True):
    """A store, `@name` on the command line.  The first is meant where a verb is given none."""

    name: Annotated[str, Meta(pattern=NAME, description="what @name on the command line refers to")]
    url: Annotated[Text, Meta(description="file:///path or s3://bucket/prefix?..., without a credential")]
    credentials: Credentials = Credentials(ambient=True)
    retention: Retention | None = None
    compression: Annotated[
        Literal["gzip", "zlib", "none", "zstd"] | None,
        Meta(description="gzip, zlib, none or zstd; default gzip, and zstd where it is encrypted"),
    ] = None
    encryption: Encryption | None = None
    identities: Identities | None = None
    limits: Limits = Limits()
    mirror_of: Annotated[
        Name | None,
        Meta(
            description="the store whose backups the agent copies here; while that one takes nothing, it"
            " writes beside them (docs/several-stores.md)"
        ),
    ] = None


class Tls(Table, frozen=True):
    """PEM files for a TLS connection to etcd."""

    ca: Annotated[Text | None, Meta(description="whom etcd's certificate must come from")] = None
    cert: Annotated[Text | None, Meta(description="our client certificate")] = None
    key: Annotated[Text | None, Meta(description="its private key")] = None
    server_name: Annotated[
        Text | None, Meta(description="the name to expect in etcd's certificate instead of the host")
    ] = None


class Etcd(Table, frozen=True):
    """The etcd that is backed up."""

    endpoints: Annotated[tuple[Text, ...], Meta(description="such as https://10.0.0.1:2379")] = ()
    tls: Tls = Tls()
    user: Text | None = None
    password: Annotated[
        Text | None,
        Meta(
            description="best as ${file:/path} or ${env:NAME}",
            extra_json_schema={"writeOnly": True},
        ),
    ] = None
    quota: Annotated[
        Size | None, Meta(description="etcd's --quota-backend-bytes, which a restore must not exceed")
    ] = None


class Schedule(Table, frozen=True):
    """When the agent runs something.  A run that was missed is made up for once."""

    cron: Annotated[Text, Meta(description="minute, hour, day, month, weekday")]
    timezone: Text = "UTC"
    jitter: Annotated[Span | None, Meta(description="begin up to so much later, each time the same")] = None
    suspend: bool = False


class FullSchedule(Schedule, frozen=True):
    """When the agent takes a full."""

    skip_unchanged: Annotated[bool, Meta(description="none where nothing was written since the last one")] = (
        False
    )


class ProofSchedule(Schedule, frozen=True):
    """When the agent proves the newest chain to one level."""

    scratch: Annotated[Text | None, Meta(description="where to build what is only looked at")] = None


class VerifySchedule(ProofSchedule, frozen=True):
    """When the agent proves the newest chain; `proofs` has a schedule for each level."""

    level: Annotated[int, Meta(ge=1, le=5, description="as --level of `verify`")] = 4


class Proofs(Table, frozen=True):
    """When the agent proves the newest chain, level by level; each level tries those before it, too.

    A tick that a stronger proof has already served is left out.
    """

    hash: Annotated[
        ProofSchedule | None, Meta(description="read all of it again and hold the hashes to the records")
    ] = None
    structure: Annotated[
        ProofSchedule | None, Meta(description="and look at every page and every revision")
    ] = None
    replay: Annotated[ProofSchedule | None, Meta(description="restore it to scratch, compare HashKV")] = None
    boot: Annotated[ProofSchedule | None, Meta(description="and start a real etcd on that")] = None


class DeltaSchedule(Table, frozen=True):
    """How often the agent stores what changed."""

    every: Span = "5m"
    bytes: Annotated[
        Size | None, Meta(description="or earlier, once so much has come together; default 16MiB")
    ] = None
    suspend: bool = False


class CompactSchedule(Schedule, frozen=True):
    """When the agent looks whether the newest chain is to be folded; always, where no bound is given."""

    deltas: Annotated[Positive | None, Meta(description="fold once it has so many deltas")] = None
    bytes: Annotated[Size | None, Meta(description="fold once its deltas take so much in the store")] = None
    scratch: Annotated[Text | None, Meta(description="where to build what is folded")] = None


class DefragSchedule(Schedule, frozen=True):
    """When the agent has etcd give back space: followers first, the leader last, where it pays."""

    waste: Annotated[
        int, Meta(ge=0, le=100, description="only members that waste such a percentage of their file")
    ] = 30
    least: Annotated[Size, Meta(description="and at least so much")] = "64MiB"
    each: Annotated[Span, Meta(description="how long one member may take")] = "8m"


class Schedules(Table, frozen=True):
    """What the agent runs when."""

    full: FullSchedule = FullSchedule(cron="0 */6 * * *", jitter="5m")
    delta: DeltaSchedule = DeltaSchedule()
    verify: Annotated[
        VerifySchedule | None, Meta(description="one level; older than `proofs`, and not beside it")
    ] = None
    proofs: Proofs = Proofs()
    prune: Annotated[
        Schedule, Meta(description="where the store has `retention`; nothing is deleted without")
    ] = Schedule(cron="25 * * * *", jitter="10m")
    compact: CompactSchedule | None = None
    defrag: DefragSchedule | None = None
    mirror: Annotated[
        Schedule | None,
        Meta(description="when stores with `mirror-of` are filled; default: after each capture"),
    ] = None

    def __post_init__(self) -> None:
        if self.verify is not None and self.proofs != Proofs():
            raise ValueError(
                "verify and proofs exclude each other: its level 4 is proofs.replay, its level 5 proofs.boot"
            )


class Http(Table, frozen=True):
    """The HTTP API of the agent.  Without TLS it should stay on loopback."""

    listen: Annotated[Text, Meta(description="ADDRESS:PORT; port 0 is any that is free")] = "127.0.0.1:0"
    cert: Annotated[Text | None, Meta(description="a PEM certificate, to speak TLS")] = None
    key: Annotated[Text | None, Meta(description="its private key")] = None
    client_ca: Annotated[
        Text | None, Meta(description="whose client certificates are taken in the place of the token")
    ] = None
    token_file: Annotated[Text | None, Meta(description="holds the token; default: a new one each time")] = (
        None
    )

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("needs both of cert and key, or neither")
        if self.client_ca is not None and self.cert is None:
            raise ValueError("client-ca needs cert and key: client certificates come with TLS")


class Leases(Table, frozen=True):
    """Kubernetes leases that the agent renews, as etcd-druid reads them.  It makes none."""

    namespace: Annotated[
        Text | None, Meta(description="default: the pod's own, or that of the kubeconfig's context")
    ] = None
    full: Annotated[Text | None, Meta(description="the lease that tells of the newest full")] = None
    delta: Annotated[Text | None, Meta(description="the one of the newest delta")] = None
    member: Annotated[Text | None, Meta(description="the one that says that the member is alive")] = None
    heartbeat: Annotated[Span, Meta(description="how often the member's is renewed")] = "30s"

    def __post_init__(self) -> None:
        if not (self.full or self.delta or self.member):
            raise ValueError("names no lease: give full, delta, member, or several of them")


class Agent(Table, frozen=True):
    """The process beside etcd."""

    lead: Annotated[
        Literal["auto", "follow", "always"],
        Meta(
            description="who writes backups: the agent beside etcd's leader (follow), this one (always);"
            " auto: follow with one endpoint, always with several"
        ),
    ] = "auto"
    poll: Annotated[Span, Meta(description="how often etcd is asked who leads")] = "5s"
    grace: Annotated[Span, Meta(description="for a last delta when it is told to stop")] = "20s"
    standby_after: Annotated[
        Span, Meta(description="how long the store may take nothing before the first mirror's standby does")
    ] = "15m"
    full_endpoints: Annotated[
        tuple[Text, ...], Meta(description="members that fulls are streamed from; may be learners")
    ] = ()
    state_dir: Annotated[
        Text | None, Meta(description="where commands on this machine find the running agent")
    ] = None
    http: Http = Http()
    leases: Leases | None = None


class Policy(Table, frozen=True):
    """What `check` calls too old."""

    backup_age: Annotated[Span | None, Meta(description="of the newest backup; default 1d")] = None
    proof_age: Annotated[Span | None, Meta(description="of the newest replay or boot; default 7d")] = None


class Operator(Table, frozen=True):
    """What `operator` serves in a cluster; what is not here has the default of its option."""

    controllers: Annotated[tuple[Text, ...], Meta(description="contracts that are served; all if none")] = ()
    types: Annotated[tuple[Text, ...], Meta(description="provider types that are served")] = ()
    classes: Annotated[tuple[Text, ...], Meta(description="shoot, seed, garden")] = ()
    namespace: Annotated[Text | None, Meta(description="where its Lease is")] = None
    lease_name: Annotated[Text | None, Meta(description="that of its Lease")] = None
    listen: Annotated[Text | None, Meta(description="where probes and metrics are served")] = None
    workers: Annotated[Positive | None, Meta(description="objects of one kind worked on at once")] = None
    leader_election: Annotated[bool, Meta(description="false: there is no other process")] = True
    ignore_operation_annotation: Annotated[bool, Meta(description="act on every change of a spec")] = False
    take_over: Annotated[bool, Meta(description="work although a peer lives")] = False
    heartbeat: Annotated[bool, Meta(description="renew the Lease that gardenlet looks at")] = False
    entry_deletion_grace: Annotated[
        Span | None, Meta(description="how long the objects of a deleted BackupEntry are kept")
    ] = None
    allowed_endpoints: Annotated[
        tuple[Text, ...], Meta(description="store endpoints that a providerConfig may name")
    ] = ()
    local_directory: Annotated[Text | None, Meta(description="where buckets of the type local are")] = None
    local_mount_path: Annotated[
        Text | None, Meta(description="where that directory is mounted beside an etcd")
    ] = None


class File(Table, frozen=True):
    """The configuration of rootcellar."""

    stores: tuple[Store, ...] = ()
    etcd: Etcd = Etcd()
    schedules: Schedules = Schedules()
    agent: Agent = Agent()
    policy: Policy = Policy()
    operator: Operator = Operator()

    def __post_init__(self) -> None:
        names = [store.name for store in self.stores]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two stores are called {name}")
        mirrors = {store.name: store.mirror_of for store in self.stores if store.mirror_of is not None}
        for name, origin in mirrors.items():
            if origin not in names or origin in mirrors:
                raise ValueError(f"store {name} mirrors {origin}, which is no store that is written to")
            if f"{name}{STANDBY}" in names:
                raise ValueError(f"{name}{STANDBY} is what the standby of {name} is called")
