"""Kubernetes leases, as the flags and variables of etcd-backup-restore name them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from rootcellar.agent.lease_plan import Reached, renew_full
from rootcellar.agent.leases import KubeMemberLeases, renew
from rootcellar.agent.settings import LeaseSettings
from rootcellar.cli.etcdbrctl.sections import Compacting, Health
from rootcellar.cli.leasing import client
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError, KubeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rootcellar.cli.etcdbrctl.reading import Configuration


def leases(configuration: Configuration, environ: Mapping[str, str], member: str) -> LeaseSettings | None:
    """What `server` is to renew, None for nothing; the member's lease has its name.  Raises ConfigError."""
    asked = configuration.get(Health)
    if not (asked.snapshot_leases or asked.member_lease):
        return None
    if asked.member_lease and not member:
        raise ConfigError(
            "neither POD_NAME nor an etcd configuration tells the member's name, which its lease has",
            hint="set POD_NAME from the pod's metadata.name (fieldRef)",
        )
    return LeaseSettings(
        partial(client, environ),
        _namespace(environ),
        full=asked.full_lease if asked.snapshot_leases else "",
        delta=asked.delta_lease if asked.snapshot_leases else "",
        member=member if asked.member_lease else "",
        heartbeat=max(asked.heartbeat / SECOND, 1.0),
    )


def registered(
    configuration: Configuration, environ: Mapping[str, str], members: Iterable[str]
) -> KubeMemberLeases | None:
    """Who says which members were alive once, None where they renew no leases.  Raises ConfigError."""
    if configuration.command != "server" or not configuration.get(Health).member_lease:
        return None
    return KubeMemberLeases(partial(client, environ), _namespace(environ), members)


def renew_for_folded(
    configuration: Configuration, environ: Mapping[str, str], reached: Reached, captured_at: float
) -> str:
    """Have the full's lease say what a compaction came to; why that could not be, or nothing.

    No error: the compaction is in the store, and the next one renews it, though it finds nothing to fold.
    """
    asked = configuration.get(Compacting)
    if not asked.snapshot_leases:
        return ""
    plan = partial(renew_full, reached=reached, captured_at=datetime.fromtimestamp(captured_at, UTC))
    try:
        with client(environ) as opened:
            return renew(opened, _namespace(environ), asked.full_lease, plan).why
    except (KubeError, ConfigError) as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message


def _namespace(environ: Mapping[str, str]) -> str:
    found = environ.get("POD_NAMESPACE")
    if not found:
        raise ConfigError(
            "POD_NAMESPACE is not set, and leases are to be renewed in it",
            hint="set it from the pod's metadata.namespace (fieldRef)",
        )
    return found
