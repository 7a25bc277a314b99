"""Stores as a person names them, and how they are opened.

    file:///var/backups/etcd            a directory; a plain path is one too
    s3://BUCKET/PREFIX?region=eu-west-1
    s3://BUCKET/PREFIX?endpoint=https://s3.example.org&addressing=path&ca=/etc/ssl/s3.pem

What an S3 URL may say: `endpoint`, `region`, `addressing` (path, virtual, auto), `ca` (a PEM file),
`insecure` (true: any certificate), `checksum` (when_required, when_supported), `sse` (AES256, aws:kms),
`kms-key`, `part-size` (bytes, or with KiB, MiB, GiB).  A credential in a URL is refused: URLs end up in
logs.

    azure://ACCOUNT/CONTAINER/PREFIX
    azure://ACCOUNT/CONTAINER/PREFIX?endpoint=http://127.0.0.1:10000/ACCOUNT
    gs://BUCKET/PREFIX
    gs://BUCKET/PREFIX?endpoint=https://storage.me-central2.rep.googleapis.com

Both know `endpoint`, `ca` and `part-size`.  Azure's endpoint is the whole address of the account's blob
service (`BlobEndpoint` of a connection string); without one it is ACCOUNT.DOMAIN, with the `domain` of the
credentials or blob.core.windows.net.  ACCOUNT may be left out (azure:///CONTAINER/PREFIX) where the
credentials name it. Google's endpoint is what comes before `/storage/v1`; to one of plain http, an
emulator's, no credential is sent.

    swift://CONTAINER/PREFIX?auth=https://keystone.example.org:5000/v3&region=RegionOne
    oss://BUCKET/PREFIX?endpoint=https://oss-eu-central-1.aliyuncs.com

What a Swift URL may say: `auth` (keystone, or what ends in `/v1.0` for Swift's own authentication), `region`,
`ca` and `part-size`.  An OSS URL may say what an S3 URL may: Alibaba's OSS is reached through its S3
interface.
"""

from __future__ import annotations

import contextlib
import os
import re
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_to_bytes, urlsplit

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores import oss
from rootcellar.stores.azure.options import AzureOptions
from rootcellar.stores.credentials import AMBIENT, Credentials, complete, flag
from rootcellar.stores.file import FileStore
from rootcellar.stores.following import FollowingStore
from rootcellar.stores.gcs.options import GcsOptions
from rootcellar.stores.retry import RetryingStore
from rootcellar.stores.s3.options import Encryption, S3Options, customer_key
from rootcellar.stores.swift.options import SwiftOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.protocol import Store

Options = S3Options | AzureOptions | GcsOptions | SwiftOptions
"""How a bucket of one of the providers is reached."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET = re.compile(r"secret|token|passw|access.?key|credential|signature", re.IGNORECASE)
_S3_KEYS = ("endpoint", "region", "addressing", "ca", "insecure", "checksum", "sse", "kms-key", "part-size")
_REST_KEYS = {"endpoint": "endpoint", "ca": "ca_file", "part-size": "part_size"}
_SWIFT_KEYS = {"auth": "auth", "region": "region", "ca": "ca_file", "part-size": "part_size"}
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def open_store(url: str, *, credentials: Credentials = AMBIENT, backoff: Backoff | None = None) -> Store:
    """The store at `url`, with retries.  Nothing is asked of it yet.  What the credentials say is followed.

    Raises UsageError for a URL that cannot be meant, ConfigError for credentials that cannot be read.
    """
    place = _place(url)
    if isinstance(place, Path):
        return RetryingStore(FileStore(place), backoff)
    bucket = FollowingStore(
        credentials, lambda: _bucket(place, credentials), lambda found: _provider(*found, backoff)
    )
    return RetryingStore(bucket, backoff)


def located(url: str, credentials: Credentials) -> tuple[Path | Options, Credentials]:
    """What `url` names: a directory, or how a bucket is reached, and the credentials by the names that its
    provider reads.  Raises as `open_store`.
    """
    place = _place(url)
    return (place, credentials) if isinstance(place, Path) else _bucket(place, credentials)


def _place(url: str) -> Path | SplitResult:
    scheme = _SCHEME.match(url)
    if scheme is None:
        if not url or url.startswith("@"):
            raise UsageError(f"{url!r} is no store", hint="write a path, or a URL like s3://BUCKET/PREFIX")
        return _directory(url)
    parts = _split(url)
    if parts.scheme == "file":
        return _path(parts)
    if parts.scheme not in _READERS:
        known = ", ".join(f"{scheme}://" for scheme in ("file", *_READERS))
        raise UsageError(f"there is no store of kind {parts.scheme}", hint=f"known are {known}")
    if not _is_text(url):
        raise UsageError("the store's URL is no text in UTF-8")
    return parts


def _bucket(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    options, found = _READERS[parts.scheme](parts, credentials)
    _readable(options.ca_file)
    return options, found


def _provider(options: Options, found: Credentials, backoff: Backoff | None) -> Store:
    # botocore takes a third of a second, urllib3 a tenth: only who needs one imports it.
    with lacking(options):
        match options:
            case S3Options():
                from rootcellar.stores.s3.store import S3Store  # noqa: PLC0415 - see above

                return S3Store(options, found, backoff=backoff)
            case AzureOptions():
                from rootcellar.stores.azure.store import AzureStore  # noqa: PLC0415 - see above

                return AzureStore(options, found, backoff=backoff)
            case GcsOptions():
                from rootcellar.stores.gcs.store import GcsStore  # noqa: PLC0415 - see above

                return GcsStore(options, found, backoff=backoff)
            case SwiftOptions():
                from rootcellar.stores.swift.store import SwiftStore  # noqa: PLC0415 - see above

                return SwiftStore(options, found, backoff=backoff)


def _s3(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    return _s3_options(_s3_values(parts), credentials)


def _oss(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    found = oss.credentials(credentials)
    return _s3_options(oss.completed(_s3_values(parts), found.load()), found)


def _s3_options(url: Mapping[str, Any], credentials: Credentials) -> tuple[Options, Credentials]:
    values = credentials.load()
    complete(values)
    return _from_both(url, values), credentials


def _azure(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    values = credentials.load()
    options = _rest_values(parts, "an Azure")
    account = parts.netloc or values.get("storageAccount", "")
    if values.get("storageAccount") not in {None, "", account}:
        raise ConfigError(
            f"the credentials are of the account {values['storageAccount']}, not of {account}",
            hint="correct the URL, or leave the account out of it",
        )
    container, _, prefix = unquote(parts.path).strip("/").partition("/")
    if values.get("domain"):
        options["domain"] = values["domain"]
    return AzureOptions(account, container, prefix, **options), credentials


def _gcs(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    values = credentials.load()
    options = _rest_values(parts, "a Google")
    if values.get("storageAPIEndpoint"):
        options.setdefault("endpoint", values["storageAPIEndpoint"])
    return GcsOptions(parts.netloc, unquote(parts.path).strip("/"), **options), credentials


def _rest_values(
    parts: SplitResult, kind: str, keys: Mapping[str, str] = MappingProxyType(_REST_KEYS)
) -> dict[str, Any]:
    """What the URL says, as arguments of the options."""
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name) or name == "sig":
            raise UsageError(
                "the store's URL holds a credential", hint="give credentials apart, and change this one"
            )
        if name not in keys:
            known = ", ".join(keys)
            raise UsageError(f"{kind} store has no option {name!r}", hint=f"known are {known}")
        if keys[name] in options:
            raise UsageError(f"{name} is given twice")
        options[keys[name]] = _size(value) if name == "part-size" else value
    return options


def _readable(ca_file: str | None) -> None:
    if ca_file is not None and not os.access(ca_file, os.R_OK):
        raise ConfigError(f"cannot read the certificate authority in {ca_file}")


@contextlib.contextmanager
def lacking(options: Options) -> Iterator[None]:
    """ConfigError where the library that such a store needs is not installed."""
    libraries, extra = _NEEDS[type(options)]
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in libraries:
            raise
        raise ConfigError(
            f"{libraries[0]} is not installed", hint=f"pip install 'rootcellar[{extra}]'"
        ) from error


def _swift(parts: SplitResult, credentials: Credentials) -> tuple[Options, Credentials]:
    credentials.load()
    options = _rest_values(parts, "a Swift", _SWIFT_KEYS)
    return SwiftOptions(unquote(parts.netloc), unquote(parts.path).strip("/"), **options), credentials


_READERS = {"s3": _s3, "azure": _azure, "gs": _gcs, "swift": _swift, "oss": _oss}
_NEEDS: Mapping[type, tuple[tuple[str, ...], str]] = {
    S3Options: (("botocore",), "s3"),
    AzureOptions: (("urllib3",), "azure"),
    GcsOptions: (("urllib3",), "gcs"),
    SwiftOptions: (("urllib3",), "swift"),
}


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError("the store's URL cannot be read", hint="write s3://BUCKET/PREFIX") from error
    if "@" in parts.netloc:
        raise UsageError(
            "the store's URL holds a credential", hint="give credentials apart, and change this one"
        )
    if parts.fragment:
        raise UsageError("the store's URL has a # in it", hint="write it as %23")
    return parts


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:  # bytes of a command line that are none
        return False
    return True


def _path(parts: SplitResult) -> Path:
    if parts.query:
        raise UsageError("a file store has no options", hint="write a ? in a path as %3F")
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise UsageError("a file store has no host", hint="write file:///path with three slashes")
    return _directory(os.fsdecode(unquote_to_bytes(os.fsencode(parts.path))))


def _directory(path: str) -> Path:
    if "\0" in path:
        raise UsageError("a path holds a null byte")
    return Path(path)


def _s3_values(parts: SplitResult) -> dict[str, Any]:
    values: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name):
            raise UsageError(
                "the store's URL holds a credential", hint="give credentials apart, and change this one"
            )
        if name not in _S3_KEYS:
            raise UsageError(f"an S3 store has no option {name!r}", hint=f"known are {', '.join(_S3_KEYS)}")
        if name in values:
            raise UsageError(f"{name} is given twice")
        values[name] = value
    options: dict[str, Any] = {"bucket": parts.netloc, "prefix": unquote(parts.path).strip("/")}
    options |= {
        name: values[name] for name in ("endpoint", "region", "addressing", "checksum") if name in values
    }
    if "ca" in values:
        options["ca_file"] = values["ca"]
    if "insecure" in values:
        options["insecure"] = _yes_or_no(values["insecure"])
    if "part-size" in values:
        options["part_size"] = _size(values["part-size"])
    if "sse" in values or "kms-key" in values:
        options["encryption"] = _encryption(values.get("sse"), values.get("kms-key"))
    return options


def _encryption(algorithm: str | None, kms_key: str | None) -> Encryption:
    algorithm = algorithm or "aws:kms"
    if algorithm not in {"AES256", "aws:kms", "aws:kms:dsse"}:
        raise UsageError(f"unknown encryption {algorithm!r}", hint="AES256 or aws:kms")
    if kms_key is not None and algorithm == "AES256":
        raise UsageError("AES256 takes no kms-key", hint="sse=aws:kms")
    return Encryption(algorithm, kms_key)


def _from_both(url: Mapping[str, Any], values: Mapping[str, str]) -> S3Options:
    """What the URL says, completed by what the credentials' layout says beside the keys."""
    options: dict[str, Any] = {
        "region": values.get("region") or None,
        "endpoint": values.get("endpoint") or None,
        "insecure": flag(values, "insecureSkipVerify") or False,
        "ca_pem": values.get("trustedCaCert") or None,
        "checksum": values.get("requestChecksumCalculation", "").lower() or None,
        "response_checksum": values.get("responseChecksumValidation", "").lower() or None,
        "addressing": _addressing(values, url.get("endpoint")),
    }
    if "sseCustomerKey" in values:
        algorithm = values.get("sseCustomerAlgorithm", "AES256")
        options["encryption"] = Encryption(algorithm, customer_key=customer_key(values["sseCustomerKey"]))
    if "checksum" in url:
        options["response_checksum"] = None  # the URL's word is for both
    try:
        S3Options(bucket="checked-apart", **options)
    except UsageError as error:
        raise ConfigError(f"the credentials: {error.message}", hint=error.hint) from error
    return S3Options(**{**options, **url})


def _addressing(values: Mapping[str, str], endpoint: str | None) -> str:
    """The Go SDK, for which the layout was made, uses virtual hosts unless told otherwise or the host is a
    number.
    """
    path_style = flag(values, "s3ForcePathStyle")
    if path_style is not None:
        return "path" if path_style else "virtual"
    if endpoint is not None or not values.get("endpoint"):
        return "auto"
    try:
        ip_address(urlsplit(values["endpoint"]).hostname or "")
    except ValueError:
        return "virtual"
    return "path"


def _yes_or_no(text: str) -> bool:
    if text not in {"true", "false"}:
        raise UsageError(f"insecure={text!r} is neither true nor false")
    return text == "true"


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d{1,18})(|KiB|MiB|GiB)", text, re.ASCII)
    if found is None:
        raise UsageError(f"{text!r} is no size", hint="write bytes, or a number with KiB, MiB or GiB")
    return int(found[1]) * _UNITS[found[2]]
