"""How a bucket of Google Cloud Storage is reached: everything that is not a key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rootcellar.errors import UsageError
from rootcellar.stores import location

UNIT = 256 << 10
"""Bytes that all requests of a resumable upload but the last must be a multiple of."""

PART_SIZE = 8 << 20
PUBLIC = "https://storage.googleapis.com"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """A bucket, a prefix in it, and the way there.

    `endpoint` is what comes before `/storage/v1` (which may be written too).  Over plain http, which only an
    emulator speaks, no credential is sent.  `part_size` is in bytes; `timeout` in seconds without any byte.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    ca_file: str | None = None
    part_size: int = PART_SIZE
    connect_timeout: float = 10.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise UsageError(f"{self.bucket!r} is no bucket", hint="write gs://BUCKET/PREFIX")
        location.check_prefix(self.prefix)
        location.check_endpoint(self.endpoint)
        if self.part_size < UNIT or self.part_size % UNIT:
            raise UsageError(
                f"a part of {self.part_size} bytes is not allowed", hint="a multiple of 256 KiB (262144)"
            )

    @property
    def service(self) -> str:
        """The address that the paths of both APIs, reads and uploads, are appended to."""
        return (self.endpoint or PUBLIC).rstrip("/").removesuffix("/storage/v1")

    @property
    def base(self) -> str:
        """What every key in the bucket begins with: the prefix as whole path segments."""
        return location.base(self.prefix)

    @property
    def url(self) -> str:
        return location.url(f"gs://{self.bucket}", self.prefix, {"endpoint": self.endpoint})

    def where(self, key: str) -> str:
        """A key, as messages name it."""
        return f"gs://{self.bucket}/{self.base}{key}"
