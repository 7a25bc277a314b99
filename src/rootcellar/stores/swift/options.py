"""How a Swift store is reached: everything that is not a secret."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from rootcellar.errors import UsageError
from rootcellar.stores.s3.options import LARGEST_PART, MIB

PART_SIZE = 8 * MIB
SMALLEST_PART = 1 * MIB


@dataclass(frozen=True, slots=True)
class SwiftOptions:
    """A container, a prefix in it, and the way there.

    `auth` is where tokens are had: keystone (with or without `/v3`), or what ends in `/v1.0` for Swift's own
    authentication; None where the credentials say it.  `region` chooses among a catalogue's object stores.
    `timeout` is in seconds without any byte.
    """

    container: str
    prefix: str = ""
    auth: str | None = None
    region: str | None = None
    ca_file: str | None = None
    part_size: int = PART_SIZE
    connect_timeout: float = 10.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not self.container or "/" in self.container:
            raise UsageError(f"{self.container!r} is no container", hint="write swift://CONTAINER/PREFIX")
        if self.prefix != self.prefix.strip("/") or "//" in self.prefix:
            raise UsageError(f"{self.prefix!r} is no prefix", hint="parts joined by single slashes")
        if self.auth is not None:
            checked_auth(self.auth)
        if not SMALLEST_PART <= self.part_size <= LARGEST_PART:
            raise UsageError(f"a part of {self.part_size} bytes is not allowed", hint="1 MiB to 5 GiB")

    @property
    def base(self) -> str:
        """What every name in the container begins with: the prefix as whole path segments."""
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def url(self) -> str:
        shown = {"auth": self.auth, "region": self.region}
        query = urlencode({name: value for name, value in shown.items() if value}, safe=":/")
        return f"swift://{self.container}/{quote(self.prefix)}{'?' if query else ''}{query}"


def checked_auth(address: str) -> str:
    """`address` itself, if tokens can be asked for there; else UsageError."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise UsageError("auth is no address", hint="write https://HOST:5000/v3")
    if parts.username is not None or parts.password is not None:
        raise UsageError("auth holds a credential", hint="give credentials apart")
    return address
