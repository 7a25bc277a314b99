"""The Kubernetes leases of an agent, out of the configuration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rootcellar.agent.settings import LeaseSettings
from rootcellar.cli.configuration import reveal
from rootcellar.cli.values import SECOND, span
from rootcellar.errors import ConfigError
from rootcellar.kube import discovery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.cli import schema
    from rootcellar.kube.client import KubeClient

_PATIENCE = 10.0


def client(environ: Mapping[str, str]) -> KubeClient:
    """A client for leases.  Raises ConfigError."""
    try:
        from rootcellar.kube.client import KubeClient  # noqa: PLC0415  an extra brings what it needs
    except ImportError as error:
        raise ConfigError("urllib3 is not installed", hint="pip install 'rootcellar[kube]'") from error
    return KubeClient(discovery.find(environ), timeout=_PATIENCE)


def leases(
    written: schema.Leases | None, endpoints: tuple[str, ...], environ: Mapping[str, str]
) -> LeaseSettings | None:
    """What the agent is to renew, None for nothing.  Raises ConfigError."""
    if written is None:
        return None
    if written.member is not None and len(endpoints) != 1:
        raise ConfigError(
            "agent.leases.member is one member's, and etcd has several endpoints here",
            hint="give the agent the endpoint of the member beside it alone",
        )
    where = written.namespace
    return LeaseSettings(
        partial(client, environ),
        reveal(where) if where is not None else discovery.find(environ).namespace,
        full=reveal(written.full or ""),
        delta=reveal(written.delta or ""),
        member=reveal(written.member or ""),
        heartbeat=max(span(written.heartbeat) / SECOND, 1.0),
    )
