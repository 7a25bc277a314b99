"""The botocore client of one store, made at its first request.

botocore's own retries are off: what may be tried again, and for how long, is decided in one place
(`rootcellar.stores.backoff`), and a conditional put must not be repeated by somebody who does not know that
it is one.
"""

from __future__ import annotations

import functools
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleWithWebIdentityCredentialFetcher,
    DeferredRefreshableCredentials,
    ReadOnlyCredentials,
)
from botocore.credentials import Credentials as CoreCredentials
from botocore.loaders import Loader, create_loader

from rootcellar.errors import ConfigError
from rootcellar.stores.credentials import Credentials, complete, sendable
from rootcellar.stores.headers import md5
from rootcellar.stores.meaning import flat
from rootcellar.stores.once import Once
from rootcellar.stores.rotation import Rotating
from rootcellar.stores.s3.errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_s3.client import S3Client

    from rootcellar.stores.s3.options import S3Options

_CONNECTIONS = 32
_CHECKSUMMED = ("DeleteObjects", "PutObjectRetention", "PutObjectLegalHold")


class ClientSource:
    """Makes the client once, for all threads."""

    def __init__(self, options: S3Options, credentials: Credentials) -> None:
        self._options = options
        self._credentials = credentials
        self._client: Once[S3Client] = Once()

    def __call__(self) -> S3Client:
        with translated("open", self._options.url):
            return self._client.get(self._make)

    def _make(self) -> S3Client:
        options = self._options
        core = botocore.session.get_session()
        core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
        region = options.region or core.get_config_variable("region") or "us-east-1"
        keys = _keys(self._credentials, core, region)
        if keys is not None:
            core.register_component("credential_provider", _Resolver(keys))
        config = Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.timeout,
            retries={"total_max_attempts": 1},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
            s3={"addressing_style": options.addressing},
            request_checksum_calculation=options.request_checksums,
            response_checksum_validation=options.response_checksums,
            user_agent_extra="rootcellar",
        )
        try:
            made = core.create_client(
                "s3", region_name=region, endpoint_url=options.endpoint, verify=self._verify(), config=config
            )
        except ValueError as error:  # its own idea of a host: without an underscore
            raise ConfigError(
                f"{options.url}: not for botocore: {flat(error)}", hint="look at the endpoint and the region"
            ) from error
        client = cast("S3Client", made)
        if options.request_checksums == "when_required":
            for operation in _CHECKSUMMED:
                client.meta.events.register_last(f"before-call.s3.{operation}", _md5_instead)
        if options.create_header is not None:
            spare = functools.partial(_create_instead, options.create_header)
            for operation in ("PutObject", "CompleteMultipartUpload"):
                client.meta.events.register_last(f"before-call.s3.{operation}", spare)
        return client

    def _verify(self) -> bool | str | None:
        options = self._options
        if options.insecure:
            return False
        if options.ca_pem is not None:
            kept = tempfile.NamedTemporaryFile("w", prefix="rootcellar-ca-")  # noqa: SIM115 - kept below
            weakref.finalize(self, kept.close)  # botocore reads it again for each new connection
            kept.write(options.ca_pem)
            kept.flush()
            return kept.name
        return options.ca_file


@functools.cache
def _loader(data_path: str | None) -> Loader:
    """What S3 is to botocore, read once: for a session of its own, each store would take 0.2 s to read it."""
    return create_loader(data_path)


def _md5_instead(params: dict[str, Any], **_: Any) -> None:
    """Where S3 demands a checksum, botocore sends CRC32, which older servers take for none at all."""
    params["context"].get("checksum", {}).pop("request_algorithm", None)
    params["headers"]["Content-MD5"] = md5(params["body"])


def _create_instead(header: str, params: dict[str, Any], **_: Any) -> None:
    """A store that spares what is there by a header of its own: before the request is signed."""
    if params["headers"].get("If-None-Match") == "*":
        del params["headers"]["If-None-Match"]
        params["headers"][header] = "true"


def _keys(credentials: Credentials, core: Any, region: str) -> Any:
    """Our source as botocore's credentials object; None for botocore's own search."""
    values = credentials.load()
    complete(values)
    if values.get("roleARN") or values.get("tokenPath"):
        return _web_identity(values, core, region)
    if not any(values.get(name) for name in ("accessKeyID", "secretAccessKey")):
        return None
    return RotatingCredentials(credentials)


class RotatingCredentials(CoreCredentials):
    """Asked by botocore for each request, so that a rotated Secret is used without a restart."""

    def __init__(self, source: Credentials) -> None:
        self._rotating = Rotating(source, _frozen)
        first = self._rotating.current()
        super().__init__(first.access_key or "", first.secret_key or "", first.token)

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        return self._rotating.current()


def _frozen(values: Mapping[str, str]) -> ReadOnlyCredentials:
    complete(values)
    sendable(values, "accessKeyID", "sessionToken")
    if not values.get("accessKeyID"):
        raise ConfigError("the credentials lack accessKeyID and secretAccessKey")
    return ReadOnlyCredentials(values["accessKeyID"], values["secretAccessKey"], values.get("sessionToken"))


def _web_identity(values: Mapping[str, str], core: Any, region: str) -> Any:
    def client_creator(service: str, **arguments: Any) -> Any:
        return core.create_client(service, region_name=region, **arguments)

    fetcher = AssumeRoleWithWebIdentityCredentialFetcher(
        client_creator=client_creator,
        web_identity_token_loader=functools.partial(_identity, Path(values["tokenPath"])),
        role_arn=values["roleARN"],
        extra_args={"RoleSessionName": "rootcellar"},
    )
    return DeferredRefreshableCredentials(
        method="assume-role-with-web-identity", refresh_using=fetcher.fetch_credentials
    )


def _identity(path: Path) -> str:
    """Read each time that the role is assumed."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token in {path}", hint="look at what renews it") from error


class _Resolver:
    """What botocore asks for credentials."""

    def __init__(self, keys: Any) -> None:
        self._keys = keys

    def load_credentials(self) -> Any:
        return self._keys
