"""Alibaba Cloud OSS, through its S3 interface.

Chosen over the vendor's own library because all of it but one header runs against real S3 servers in our
tests, and that library could be run against nothing.  What differs from S3: buckets are hosts, never paths; a
create is asked for by `x-oss-forbid-overwrite`, and refused with 409 FileAlreadyExists; nothing replaces by
etag.  Whether a bucket honours the header is found out by the store's probe, as with every S3.

Source: Alibaba's pages "Accessing OSS with the AWS SDK", "Compatibility with Amazon S3" and, for the header,
"Prevent objects from being overwritten" and error 0042-00000214.  Not run against the real service.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores import location
from rootcellar.stores.credentials import RewrittenCredentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.credentials import Credentials

FORBID_OVERWRITE = "x-oss-forbid-overwrite"

_PUBLIC = re.compile(r"(?:s3\.)?oss-([a-z0-9-]+?)(-internal)?\.aliyuncs\.com")
_VARIABLES = {
    "accessKeyID": "OSS_ACCESS_KEY_ID",
    "accessKeySecret": "OSS_ACCESS_KEY_SECRET",
    "sessionToken": "OSS_SESSION_TOKEN",
}


def credentials(source: Credentials) -> Credentials:
    """`source` under the names of S3; the variables of Alibaba's own tools where it says nothing.  Loading
    raises ConfigError where no key is to be had: Amazon's variables are not tried.
    """
    return RewrittenCredentials(source, _renamed)


def _renamed(values: Mapping[str, str]) -> Mapping[str, str]:
    found = dict(values)
    if not found.get("accessKeyID"):
        found |= {name: os.environ[each] for name, each in _VARIABLES.items() if os.environ.get(each)}
    if found.get("accessKeySecret"):
        found["secretAccessKey"] = found.pop("accessKeySecret")
    if not found.get("accessKeyID") or not found.get("secretAccessKey"):
        raise ConfigError("the credentials lack accessKeyID or accessKeySecret", hint="OSS has no others")
    if found.get("storageEndpoint"):
        try:
            found["endpoint"] = address(found.pop("storageEndpoint"))
        except UsageError as error:
            raise ConfigError(f"the credentials: {error.message}", hint=error.hint) from error
        found.setdefault("region", region(found["endpoint"]))
    return found


def completed(url: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of S3Options for what an OSS URL says.  Raises ConfigError where no endpoint is known."""
    options = {**url, "scheme": "oss", "create_header": FORBID_OVERWRITE}
    if "endpoint" not in url and "region" in url and not values.get("endpoint"):
        options["endpoint"] = f"https://oss-{url['region']}.aliyuncs.com"
    if "endpoint" in options:
        options["endpoint"] = address(options["endpoint"])
        options.setdefault("region", region(options["endpoint"]))
        options.setdefault("addressing", "path" if _is_number(options["endpoint"]) else "virtual")
    elif not values.get("endpoint"):
        raise ConfigError(
            "nothing says where this OSS is", hint="endpoint=..., region=... or storageEndpoint"
        )
    return options


def address(endpoint: str) -> str:
    """Where the S3 interface of an OSS endpoint is; a host without a scheme is one too.  Raises
    UsageError.
    """
    whole = endpoint if "://" in endpoint else f"https://{endpoint}"
    location.check_endpoint(whole)
    parts = urlsplit(whole)
    if _PUBLIC.fullmatch(parts.netloc) and not parts.netloc.startswith("s3."):
        return f"{parts.scheme}://s3.{parts.netloc}"
    return whole


def region(endpoint: str) -> str:
    """What requests are signed for, from the endpoint's name; OSS takes any where it is its own."""
    found = _PUBLIC.fullmatch(urlsplit(endpoint).netloc)
    return found[1] if found else "us-east-1"


def _is_number(endpoint: str) -> bool:
    try:
        ip_address(urlsplit(endpoint).hostname or "")
    except ValueError:
        return False
    return True
