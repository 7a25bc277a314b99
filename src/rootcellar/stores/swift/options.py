"""How a Swift store is reached: everything that is not a secret."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from rootcellar.errors import UsageError
from rootcellar.stores import location
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
        location.check_prefix(self.prefix)
        if self.auth is not None:
            checked_auth(self.auth)
        if not SMALLEST_PART <= self.part_size <= LARGEST_PART:
            raise UsageError(f"a part of {self.part_size} bytes is not allowed", hint="1 MiB to 5 GiB")

    @property
    def base(self) -> str:
        """What every name in the container begins with: the prefix as whole path segments."""
        return location.base(self.prefix)

    @property
    def url(self) -> str:
        shown = {"auth": self.auth, "region": self.region}
        return location.url(f"swift://{quote(self.container)}", self.prefix, shown)


def checked_auth(auth: str) -> str:
    """`auth` itself, if tokens can be asked for there; else UsageError."""
    location.check_address(auth, "auth", "write https://HOST:5000/v3")
    return auth
