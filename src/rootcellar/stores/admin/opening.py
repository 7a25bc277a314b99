"""A bucket as its URL names it, for those who manage it.

The URLs are those of stores (`rootcellar.stores.url`), without a prefix.  In Azure what is managed beside the
container is a whole storage account, which is made with an identity of its own: that is
`rootcellar.stores.admin.azure`, and an `azure://` URL manages a container in an account that is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.errors import UsageError
from rootcellar.stores.azure.options import AzureOptions
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.gcs.options import GcsOptions
from rootcellar.stores.s3.options import S3Options
from rootcellar.stores.swift.options import SwiftOptions
from rootcellar.stores.url import lacking, located

if TYPE_CHECKING:
    from rootcellar.stores.admin.protocol import BucketAdmin
    from rootcellar.stores.backoff import Backoff


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
