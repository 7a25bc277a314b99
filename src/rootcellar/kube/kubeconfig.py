"""A kubeconfig: which cluster, which user, which namespace.

Its format is `Config` of Kubernetes' client-go, `clientcmd/api/v1`.  Paths in it are relative to the file.
Programs that make credentials (`exec`, `auth-provider`) are not run; this is told.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.errors import ConfigError
from rootcellar.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named part with the file it is from."""

    values: dict[str, Any]
    path: Path
    where: str

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{self.path}: {self.where} has a {name} that is no text")
        return value or ""

    def file(self, name: str) -> Path | None:
        value = self.text(name)
        return self.path.parent / value if value else None

    def pem(self, name: str) -> Path | bytes | None:
        """What is in the file counts before a path, as in kubectl."""
        inline = self.text(f"{name}-data")
        if not inline:
            return self.file(name)
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{self.path}: {self.where} has a {name}-data that is no base64") from error


def read(paths: Sequence[Path], context: str | None = None) -> Access:
    """What the current or the named context says.  Of several files the first that has an entry counts, and
    one that does not exist is skipped, as kubectl does.  Raises ConfigError.
    """
    files = [(path, _parsed(path)) for path in paths if path.exists()]
    if not files:
        raise ConfigError(f"there is no kubeconfig {', '.join(map(str, paths))}", hint="see KUBECONFIG")
    name = context or next((text for _, each in files if (text := each.get("current-context"))), None)
    if not name:
        raise ConfigError(f"{files[0][0]} has no current-context", hint="kubectl config use-context NAME")
    chosen = _entry(files, "context", name)
    cluster = _entry(files, "cluster", chosen.text("cluster"))
    user = _entry(files, "user", chosen.text("user"))
    for unknown in ("exec", "auth-provider"):
        if user.values.get(unknown):
            raise ConfigError(
                f"{user.path}: {user.where} has credentials made by a program ({unknown}): it is not run",
                hint="use a kubeconfig with a token or a certificate, for one of a service account",
            )
    if not cluster.text("server"):
        raise ConfigError(f"{cluster.path}: {cluster.where} has no server")
    return Access(
        cluster.text("server").rstrip("/"),
        namespace=chosen.text("namespace") or "default",
        ca=cluster.pem("certificate-authority"),
        certificate=user.pem("client-certificate"),
        key=user.pem("client-key"),
        token=user.file("tokenFile") or user.text("token") or None,
        server_name=cluster.text("tls-server-name") or None,
        is_unverified=cluster.values.get("insecure-skip-tls-verify") is True,
    )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"the kubeconfig {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the kubeconfig {path} holds no mapping")
    return found


def _entry(files: Sequence[tuple[Path, dict[str, Any]]], kind: str, name: str) -> _Entry:
    for path, file in files:
        for each in file.get(f"{kind}s") or ():
            if isinstance(each, dict) and each.get("name") == name:
                values = each.get(kind)
                return _Entry(values if isinstance(values, dict) else {}, path, f"{kind} {name!r}")
    raise ConfigError(f"{files[0][0]} has no {kind} {name!r}", hint="kubectl config view shows what there is")
