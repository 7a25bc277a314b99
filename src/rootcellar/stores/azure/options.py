"""How a container of Azure Blob Storage is reached: everything that is not a key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from rootcellar.errors import UsageError
from rootcellar.stores import location

MIB = 1 << 20
PART_SIZE = 8 * MIB
LARGEST_PART = 4000 * MIB
PUBLIC = "blob.core.windows.net"

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER = re.compile(r"\$root|[a-z0-9](?:-?[a-z0-9]){2,62}")


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """A container, a prefix in it, and the way there.

    `endpoint` is the address of the account's blob service, as `BlobEndpoint` of a connection string has it
    (for Azurite `http://127.0.0.1:10000/ACCOUNT`); without one it is `https://ACCOUNT.DOMAIN`.  A block has
    `part_size` bytes; `timeout` is in seconds without any byte.
    """

    account: str
    container: str
    prefix: str = ""
    domain: str = PUBLIC
    endpoint: str | None = None
    ca_file: str | None = None
    part_size: int = PART_SIZE
    connect_timeout: float = 10.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not _ACCOUNT.fullmatch(self.account):
            raise UsageError(
                f"{self.account!r} is no storage account", hint="write azure://ACCOUNT/CONTAINER"
            )
        if not _CONTAINER.fullmatch(self.container):
            raise UsageError(f"{self.container!r} is no container", hint="write azure://ACCOUNT/CONTAINER")
        location.check_prefix(self.prefix)
        if not re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", self.domain):
            raise UsageError(f"{self.domain!r} is no domain", hint=f"write it as {PUBLIC}")
        location.check_address(f"https://{self.domain}", "the domain", f"write it as {PUBLIC}")
        location.check_endpoint(self.endpoint)
        if not 1 <= self.part_size <= LARGEST_PART:
            raise UsageError(f"a part of {self.part_size} bytes is not allowed", hint="up to 4000 MiB")

    @property
    def address(self) -> str:
        """Of the container."""
        service = self.endpoint or f"https://{self.account}.{self.domain}"
        return f"{service.rstrip('/')}/{quote(self.container, safe='$')}"

    @property
    def base(self) -> str:
        """What every key in the container begins with: the prefix as whole path segments."""
        return location.base(self.prefix)

    @property
    def url(self) -> str:
        place = f"azure://{self.account}/{self.container}"
        return location.url(place, self.prefix, {"endpoint": self.endpoint})

    def where(self, key: str) -> str:
        """A key, as messages name it."""
        return f"azure://{self.account}/{self.container}/{self.base}{key}"
