"""Which API server this process is to speak to: a pod's own, or a kubeconfig's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.errors import ConfigError
from rootcellar.kube import kubeconfig
from rootcellar.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Mapping

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet mounts the files `token`, `ca.crt` and `namespace` of a pod's service account."""


def find(environ: Mapping[str, str], *, mounted: Path = MOUNTED) -> Access:
    """The access that this process has, in the order of Kubernetes' own tools: `KUBECONFIG`, what a pod has
    mounted, `~/.kube/config`.  Raises ConfigError.
    """
    if named := environ.get("KUBECONFIG"):
        return kubeconfig.read([Path(each) for each in named.split(os.pathsep) if each])
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ, mounted=mounted)
    own = Path(environ.get("HOME") or "/") / ".kube" / "config"
    if own.exists():
        return kubeconfig.read([own])
    raise ConfigError(
        "no Kubernetes API server is known here",
        hint="run in a pod with a service account whose token is mounted, or set KUBECONFIG",
    )


def in_cluster(environ: Mapping[str, str], *, mounted: Path = MOUNTED) -> Access:
    """A pod's own.  Raises ConfigError where this is no pod, or its token is not mounted."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("this is no pod: KUBERNETES_SERVICE_HOST is not set", hint="set KUBECONFIG")
    token = mounted / "token"
    if not token.exists():
        raise ConfigError(
            f"there is no {token}",
            hint="let the service account's token be mounted (automountServiceAccountToken)",
        )
    space = mounted / "namespace"
    return Access(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=space.read_text("utf-8").strip() if space.exists() else "default",
        ca=mounted / "ca.crt",
        token=token,
    )
