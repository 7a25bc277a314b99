"""Certificates for servers on loopback and for their clients, from an authority made for one test run."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Root:
    """An authority's own certificate and key, as PEM: all that another process needs to be the same one."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class KeyPair:
    """PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in `directory`: `ca` for those who shall trust it, one server
    certificate for localhost, 127.0.0.1 and ::1, and client certificates by common name.  With a `root` it is
    one that was made before, with files of its own.
    """

    def __init__(self, directory: Path, root: Root | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA.from_pem(root.certificate, root.key) if root else trustme.CA()
        self.ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.server = self._issue("server", "localhost", "127.0.0.1", "::1")

    def root(self) -> Root:
        return Root(self._authority.cert_pem.bytes(), self._authority.private_key_pem.bytes())

    def client(self, common_name: str = "rootcellar", *, organization: str | None = None) -> KeyPair:
        """A client certificate.  etcd takes its common name for the user's; so does Kubernetes, and the
        organization for a group.
        """
        identity = f"{common_name}@localhost"
        return self._issue(
            f"client-{common_name}", identity, common_name=common_name, organization=organization
        )

    def serving(self, name: str, *identities: str) -> KeyPair:
        """One more server's certificate, for these names and addresses."""
        return self._issue(name, *identities)

    def _issue(
        self, name: str, *identities: str, common_name: str | None = None, organization: str | None = None
    ) -> KeyPair:
        pair = KeyPair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        issued = self._authority.issue_cert(
            *identities, common_name=common_name, organization_name=organization
        )
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(pair.key))
        pair.key.chmod(0o600)
        return pair

    def context(self, client: KeyPair | None = None) -> ssl.SSLContext:
        """What a Python client needs to talk to servers of this authority."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client:
            context.load_cert_chain(client.certificate, client.key)
        return context
