"""A bucket as its URL names it, for those who manage it.

The URLs are those of stores (`rootcellar.stores.url`), without a prefix.  In Azure what is managed beside the
container is a whole storage account, which is made with an identity of its own: that is
`rootcellar.stores.admin.azure`, and an `azure://` URL manages a container in an account that is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores.azure.options import AzureOptions
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.gcs.options import GcsOptions
from rootcellar.stores.s3.options import S3Options
from rootcellar.stores.swift.options import SwiftOptions
from rootcellar.stores.url import lacking, located

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.admin.protocol import BucketAdmin
    from rootcellar.stores.backoff import Backoff

_GOOGLE: Final = ("serviceaccount.json", "credentialsConfig")

_SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {"aws": "s3", "S3": "s3", "gcp": "gs", "openstack": "swift", "alicloud": "oss"}
)
"""Gardener's provider types that are reached by a URL with the bucket as its host."""


@dataclass(frozen=True, slots=True)
class SecretCredentials:
    """The data of a Kubernetes Secret, by Gardener's names, which are ours but for Google's two."""

    data: Mapping[str, bytes]

    def load(self) -> Mapping[str, str]:
        values: dict[str, str] = {}
        for name, raw in self.data.items():
            try:
                values["googleCredentials" if name in _GOOGLE else name] = raw.decode().strip()
            except UnicodeDecodeError as error:
                raise ConfigError(f"{name} of the secret is no text") from error
        return values

    def stamp(self) -> object:
        return None


def open_admin(
    url: str, *, credentials: Credentials = AMBIENT, backoff: Backoff | None = None
) -> BucketAdmin:
    """The bucket at `url`.  Nothing is asked of it yet.

    Raises UsageError for a URL that cannot be meant or has a prefix, ConfigError for credentials that cannot
    be read.
    """
    options, found = located(url, credentials)
    if isinstance(options, Path):
        from rootcellar.stores.admin.local import LocalAdmin  # noqa: PLC0415 - as those below

        return LocalAdmin(options, backoff=backoff)
    if options.prefix:
        raise UsageError(
            f"{options.url}: a bucket is managed as a whole", hint=f"leave out the prefix {options.prefix!r}"
        )
    # Each brings its provider's library, which takes a while: only who needs one imports it.
    with lacking(options):
        match options:
            case S3Options():
                from rootcellar.stores.admin.s3.admin import S3Admin  # noqa: PLC0415 - see above

                return S3Admin(options, found, backoff=backoff)
            case AzureOptions():
                from rootcellar.stores.admin.azure.container import ContainerAdmin  # noqa: PLC0415 - see above

                return ContainerAdmin(options, found, backoff=backoff)
            case GcsOptions():
                from rootcellar.stores.admin.gcs import GcsAdmin  # noqa: PLC0415 - see above

                return GcsAdmin(options, found, backoff=backoff)
            case SwiftOptions():
                from rootcellar.stores.admin.swift import SwiftAdmin  # noqa: PLC0415 - see above

                return SwiftAdmin(options, found, backoff=backoff)


def bucket_url(
    provider: str, bucket: str, region: str, *, endpoint: str | None = None, directory: Path | None = None
) -> str:
    """The URL of the bucket of a Gardener provider type; for `local`, in `directory`.  What a Secret says
    (endpoint, authURL, storageEndpoint) need not be repeated here.  Raises UsageError for another type; azure
    is one, because nobody but its management knows the account.
    """
    if provider == "local":
        if directory is None or not bucket or "/" in bucket or bucket.startswith("."):
            raise UsageError(f"{bucket!r} is no local bucket", hint="a name, in a directory for buckets")
        return f"file://{quote(str(directory / bucket))}"
    if provider not in _SCHEMES:
        known = ", ".join((*_SCHEMES, "local"))
        raise UsageError(f"no URL for a bucket of type {provider}", hint=f"known are {known}")
    scheme = _SCHEMES[provider]
    asked = {"region": region if scheme != "gs" else None, "endpoint": endpoint}
    query = urlencode({name: value for name, value in asked.items() if value}, safe=":/")
    return f"{scheme}://{quote(bucket)}{'?' if query else ''}{query}"
