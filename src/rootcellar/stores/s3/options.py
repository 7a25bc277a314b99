"""How an S3 store is reached: everything that is not a key."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Literal, get_args

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores import location

Addressing = Literal["path", "virtual", "auto"]
Checksums = Literal["when_required", "when_supported"]

MIB = 1 << 20
PART_SIZE = 8 * MIB
SMALLEST_PART = 5 * MIB
LARGEST_PART = 5 << 30


@dataclass(frozen=True, slots=True)
class Encryption:
    """Server-side encryption: `AES256`, `aws:kms` with or without a key id, or a customer's own 32 byte
    key.
    """

    algorithm: str = "AES256"
    kms_key: str | None = None
    customer_key: bytes | None = field(default=None, repr=False)

    def for_write(self) -> dict[str, str | bytes]:
        """Arguments of PutObject and CreateMultipartUpload."""
        if self.customer_key is not None:
            return self.for_read()
        arguments: dict[str, str | bytes] = {"ServerSideEncryption": self.algorithm}
        if self.kms_key is not None:
            arguments["SSEKMSKeyId"] = self.kms_key
        return arguments

    def for_read(self) -> dict[str, str | bytes]:
        """Arguments of GetObject, HeadObject and UploadPart: only a customer's key must be shown again."""
        if self.customer_key is None:
            return {}
        return {"SSECustomerAlgorithm": self.algorithm, "SSECustomerKey": self.customer_key}


@dataclass(frozen=True, slots=True)
class S3Options:
    """A bucket, a prefix in it, and the way there.

    `addressing` "auto" is the path style for a custom endpoint and the virtual one for AWS.  `checksum` is,
    for a custom endpoint, "when_required" unless said: older S3-compatible servers choke on the trailing
    checksums that AWS has made the default.  Then Content-MD5, which all of them check, goes with every
    upload instead. `timeout` is in seconds without any byte.  `create_header` is a header that a store wants
    to be set to "true" where S3 has `If-None-Match: *`; `scheme` is how its URLs begin.
    """

    bucket: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    addressing: Addressing = "auto"
    ca_file: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    insecure: bool = False
    encryption: Encryption | None = None
    checksum: Checksums | None = None
    response_checksum: Checksums | None = None
    part_size: int = PART_SIZE
    connect_timeout: float = 10.0
    timeout: float = 60.0
    create_header: str | None = None
    scheme: str = "s3"

    def __post_init__(self) -> None:
        if not self.bucket or "/" in self.bucket:
            raise UsageError(f"{self.bucket!r} is no bucket", hint=f"write {self.scheme}://BUCKET/PREFIX")
        location.check_prefix(self.prefix)
        location.check_endpoint(self.endpoint)
        if self.addressing not in get_args(Addressing):
            raise UsageError(f"unknown addressing {self.addressing!r}", hint="path, virtual or auto")
        for checksum in (self.checksum, self.response_checksum):
            if checksum not in {None, *get_args(Checksums)}:
                raise UsageError(
                    f"unknown checksum mode {checksum!r}", hint="when_required or when_supported"
                )
        if not SMALLEST_PART <= self.part_size <= LARGEST_PART:
            raise UsageError(f"a part of {self.part_size} bytes is not allowed", hint="5 MiB to 5 GiB")

    @property
    def request_checksums(self) -> Checksums:
        return self.checksum or ("when_required" if self.endpoint else "when_supported")

    @property
    def response_checksums(self) -> Checksums:
        return self.response_checksum or self.request_checksums

    @property
    def base(self) -> str:
        """What every key in the bucket begins with: the prefix as whole path segments."""
        return location.base(self.prefix)

    @property
    def url(self) -> str:
        shown = {"endpoint": self.endpoint, "region": self.region}
        return location.url(f"{self.scheme}://{self.bucket}", self.prefix, shown)


def customer_key(text: str) -> bytes:
    """A customer's encryption key: 32 characters as they are, or 32 bytes in base64."""
    raw = text.encode()
    if len(raw) != 32:
        try:
            raw = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
    if len(raw) != 32:
        raise ConfigError(
            "the customer's encryption key is not 32 bytes long",
            hint="write 32 characters without a line end, or 32 bytes in base64",
        )
    return raw
