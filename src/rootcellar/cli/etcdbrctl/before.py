"""`restore` and `initialize`: what is done before etcd runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent.etcd_config import EtcdConfig
from rootcellar.agent.initialization import Home, initialize
from rootcellar.agent.members import MemberControl
from rootcellar.agent.validation import Mode
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import restore as carry_out
from rootcellar.cli import recovery
from rootcellar.cli.etcdbrctl import leasing, stores
from rootcellar.cli.etcdbrctl.sections import Connection, Restoration, Snapstore, Validating
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.connection import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli.console import Console
    from rootcellar.cli.etcdbrctl.reading import Configuration

_OWN_CONFIG = "/var/etcd/config/etcd.conf.yaml"


def restore(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """Build a data directory from the newest backup.

    Where there is none it is an error (NothingToRestoreError, 31): the reference says so in its log and ends
    with 0, and etcd starts empty.
    """
    asked = configuration.get(Restoration)
    data_dir = Path(asked.data_dir).absolute()
    store = stores.opened(configuration, environ)
    wish = Wish(
        target=Latest(), token=asked.token, members=(asked.initial_cluster,), quota=asked.quota, announce=True
    )
    plan = plan_restore(read_catalogue(store), store.url, wish)
    own = plan.member(asked.name)
    if set(own.peer_urls) != set(asked.peer_urls):
        raise ConfigError(
            f"--initial-cluster has {', '.join(own.peer_urls)} for {own.name}, and "
            f"--initial-advertise-peer-urls is {', '.join(asked.peer_urls)}",
            hint="etcd would refuse to start: give the same URLs in both",
        )
    for warning in plan.warnings:
        console.warn(warning)
    restored = carry_out(plan, store, {own.name: data_dir})
    if restored is None:
        console.lines(["nothing to do: this very restore is there already"])
        return 0
    for warning in restored.warnings:
        console.warn(warning)
    console.lines(recovery.told_result(plan, restored))
    return 0


def initialize_once(configuration: Configuration, console: Console, environ: Mapping[str, str]) -> int:
    """Make a data directory fit to start etcd on, and say what was done."""
    with client(configuration, service=True) as speaker:
        done = initialize(home(configuration, environ, speaker), Mode(configuration.get(Validating).mode))
    for warning in done.warnings:
        console.warn(warning)
    console.lines([f"{done.plan.deed.value}: {done.plan.reason}"])
    if done.quarantined is not None:
        console.lines([f"the old data is in {done.quarantined}"])
    return 0


def shared_config(environ: Mapping[str, str]) -> EtcdConfig | None:
    """The configuration that all members share, None where there is no file.  Raises ConfigError."""
    path = Path(environ.get("ETCD_CONF") or _OWN_CONFIG)
    if not path.exists() and "ETCD_CONF" not in environ:
        return None
    return EtcdConfig.read(path, environ.get("POD_NAME") or "default")


def home(configuration: Configuration, environ: Mapping[str, str], speaker: EtcdClient) -> Home:
    """Where and as whom etcd starts: by its shared configuration, else by the flags.

    Unlike in the reference nothing has to be known of Kubernetes for it; where members renew leases, these
    say who was alive once.  `speaker` is who is asked about the cluster, where it has several members.
    """
    asked = configuration.get(Restoration)
    has_store = bool(configuration.get(Snapstore).provider)
    shared = shared_config(environ)
    if shared is None:
        flags = EtcdConfig({"initial-cluster": asked.initial_cluster}, asked.name)
        name, clusters, urls = asked.name, flags.initial_cluster, asked.peer_urls
    else:
        name, clusters, urls = shared.member, shared.initial_cluster, shared.peer_urls
    return Home(
        data_dir=Path(asked.data_dir).absolute(),
        name=name,
        initial_cluster=clusters,
        token=asked.token,
        quota=asked.quota,
        store=partial(stores.readable, configuration, environ) if has_store else None,
        control=MemberControl(speaker) if len(clusters) > 1 else None,
        leases=leasing.registered(configuration, environ, clusters),
        namespace=environ.get("POD_NAMESPACE", ""),
        peer_urls=urls,
    )


def client(configuration: Configuration, *, service: bool = False) -> EtcdClient:
    """A client of the endpoints, or (`service`) of the service endpoints where there are some.

    Raises ConfigError.
    """
    said = configuration.get(Connection)
    endpoints = (said.service_endpoints if service else ()) or said.endpoints
    ca, cert, key = (Path(each) if each else None for each in (said.ca, said.cert, said.key))
    tls = TlsFiles(ca, cert, key)
    return EtcdClient(
        endpoints,
        tls=tls if any(each.startswith("https") for each in endpoints) else None,
        user=said.username or None,
        password=said.password or None,
        timeout=min(said.timeout / SECOND, 10.0),
    )
