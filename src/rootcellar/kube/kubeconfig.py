"""A kubeconfig: which cluster, which user, which namespace.

Its format is `Config` of Kubernetes' client-go, `clientcmd/api/v1`.  Paths in it are relative to the file.
What we do not do is refused, not ignored: it would have us speak as somebody else, or to somebody else.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from rootcellar.errors import ConfigError
from rootcellar.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_INSECURE = "insecure-skip-tls-verify"
_OTHERWISE = "use a kubeconfig with a token or a certificate, for one of a service account"
_USERS = {
    "exec": ("has credentials made by a program", "it is not run", _OTHERWISE),
    "auth-provider": ("has credentials made by a program", "it is not run", _OTHERWISE),
    "username": ("has a password", "it is not sent", _OTHERWISE),
    "password": ("has a password", "it is not sent", _OTHERWISE),
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        ("acts as another one", "that is not done", "use a kubeconfig of that other one's own"),
    ),
}
_CLUSTERS = {
    "proxy-url": ("is behind a proxy", "none is used", "use a kubeconfig whose server is reached without one")
}
"""What is refused: what it means, what we do of it, and what to do."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named part with the file it is from."""

    values: dict[str, Any]
    path: Path
    where: str

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if value is not None and (not isinstance(value, str) or "\0" in value):
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
        except ValueError as error:
            raise ConfigError(f"{self.path}: {self.where} has a {name}-data that is no base64") from error

    def refuse(self, told: Mapping[str, tuple[str, str, str]]) -> None:
        for name, (what, answer, hint) in told.items():
            if self.values.get(name):
                raise ConfigError(f"{self.path}: {self.where} {what} ({name}): {answer}", hint=hint)


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
    user.refuse(_USERS)
    ca, is_unverified = cluster.pem("certificate-authority"), cluster.values.get(_INSECURE) is True
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if (certificate is None) != (key is None):
        raise ConfigError(
            f"{user.path}: {user.where} has one of client-certificate and client-key without the other",
            hint="a server takes a certificate from whoever has its key",
        )
    url = _url(cluster, is_tls=is_unverified or ca is not None or certificate is not None)
    cluster.refuse(_CLUSTERS)
    return Access(
        url,
        namespace=chosen.text("namespace") or "default",
        ca=ca,
        certificate=certificate,
        key=key,
        # In the clear nobody is told a token, as with kubectl: `kubectl proxy` wants none.
        token=(user.file("tokenFile") or user.text("token") or None) if url.startswith("https:") else None,
        server_name=_server_name(cluster),
        is_unverified=is_unverified,
    )


def _url(cluster: _Entry, *, is_tls: bool) -> str:
    """The server's, with a scheme in small letters.  A host with a port alone is spoken to by TLS where the
    kubeconfig says anything of certificates, as client-go's `rest` does it, and else not at all.
    """
    text = cluster.text("server").rstrip("/")
    if not text:
        raise ConfigError(f"{cluster.path}: {cluster.where} has no server")
    scheme, mark, rest = text.partition("://")
    if not mark and is_tls and "/" not in text:
        return f"https://{text}"
    if not mark or scheme.lower() not in ("https", "http"):
        raise ConfigError(
            f"{cluster.path}: {cluster.where} has a server that begins neither with https:// nor with http://",
            hint="https://HOST:PORT",
        )
    return f"{scheme.lower()}://{rest}"


def _server_name(cluster: _Entry) -> str | None:
    name = cluster.text("tls-server-name")
    try:
        name.encode("idna")  # as Python's `ssl` does
    except UnicodeError as error:
        raise ConfigError(f"{cluster.path}: {cluster.where} has a tls-server-name that is none") from error
    return name or None


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
        entries = file.get(f"{kind}s") or []
        if not isinstance(entries, list):
            raise ConfigError(f"{path} has {kind}s that are no list")
        for each in entries:
            if isinstance(each, dict) and each.get("name") == name:
                values = each.get(kind)
                return _Entry(values if isinstance(values, dict) else {}, path, f"{kind} {name!r}")
    raise ConfigError(f"{files[0][0]} has no {kind} {name!r}", hint="kubectl config view shows what there is")
