"""Where the bucket of an extension object is, and the keys to it: Gardener's provider types as our stores.

    aws, S3      s3://        any S3: with the `endpoint` of the secret, the `region` of the spec
    azure        azure://     the storage account that the (generated) secret names
    gcp          gs://
    openstack    swift://
    alicloud     oss://
    local        file://      a directory below the one that the operator was given

Another type is added by a package that offers a `Locate` under its name as an entry point of the group
`rootcellar.types`; `rootcellar operator --types` then knows it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import msgspec

from rootcellar.errors import ConfigError, UsageError
from rootcellar.operator.shared.identity import configured
from rootcellar.stores.credentials import AMBIENT, NAMES, Credentials

if TYPE_CHECKING:
    from rootcellar.operator.shared.secrets import Secret

GROUP: Final = "rootcellar.types"
_GOOGLE_FILE, _CONFIG, _TOKEN = "serviceaccount.json", "credentialsConfig", "token"


@dataclass(frozen=True, slots=True)
class Asked:
    """A bucket as an object names it.  `directory` is for buckets of the type `local`; in `tokens` lie tokens
    of workload identities, for libraries that want a file.  `endpoint` is what a providerConfig says of it.
    """

    bucket: str
    region: str
    secret: Secret
    directory: Path
    tokens: Path
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """What `open_store` and `open_admin` take."""

    url: str
    credentials: Credentials

    def below(self, prefix: str) -> str:
        """The URL of a prefix in the bucket."""
        base, mark, query = self.url.partition("?")
        return f"{base}/{quote(prefix)}{mark}{query}"


Locate = Callable[[Asked], Place]


def located(type_: str, asked: Asked) -> Place:
    """Where it is.  Nothing is asked of the store yet.

    Raises UsageError for a type that nobody here knows, ConfigError for a secret that lacks what is needed.
    """
    if type_ in _LOCATE:
        return _LOCATE[type_](asked)
    for found in entry_points(group=GROUP, name=type_):
        locate: Locate = found.load()
        return locate(asked)
    raise _unknown(type_)


def require_types(types: Iterable[str]) -> None:
    """Raises UsageError for a type that nobody here knows: an operator for it would serve nothing."""
    for each in types:
        if each not in _LOCATE and not entry_points(group=GROUP, name=each):
            raise _unknown(each)


def _unknown(type_: str) -> UsageError:
    return UsageError(
        f"there is no provider type {type_!r}",
        hint=f"known are {', '.join(_LOCATE)}; a package can add one as an entry point of {GROUP}",
    )


@dataclass(frozen=True, slots=True)
class SecretCredentials:
    """The values of a secret under the names that stores read; a new version of it is a new source."""

    values: Mapping[str, str]
    version: str

    def load(self) -> Mapping[str, str]:
        return self.values

    def stamp(self) -> object:
        return self.version


def _credentials(asked: Asked, **more: str) -> SecretCredentials:
    values = {**_texts(asked.secret), **more}
    known = {name: value for name, value in values.items() if name in NAMES and value}
    return SecretCredentials(known, asked.secret.metadata.resource_version)


def principal(asked: Asked) -> SecretCredentials:
    """Who may make storage accounts in Azure: a service principal, or a workload identity.

    Raises ConfigError for an identity that is not ready.
    """
    secret = asked.secret
    names = ("clientID", "clientSecret", "subscriptionID", "tenantID")
    if secret.is_identity:
        config = configured(secret)
        values = {name: str(config.get(name, "")) for name in names if name != "clientSecret"}
        values["tokenPath"] = str(_token_file(asked))
    else:
        texts = _texts(secret)
        values = {name: texts.get(name, "") for name in names}
    known = {name: value for name, value in values.items() if value}
    return SecretCredentials(known, secret.metadata.resource_version)


def _texts(secret: Secret) -> dict[str, str]:
    try:
        return {name: value.decode().strip() for name, value in secret.data.items()}
    except UnicodeDecodeError as error:
        raise ConfigError(f"the secret {secret.metadata.key} holds what is no text") from error


def _url(scheme: str, asked: Asked, **query: str) -> str:
    said = {name: value for name, value in query.items() if value}
    return f"{scheme}://{quote(asked.bucket)}{'?' + urlencode(said, safe=':/') if said else ''}"


def _s3(asked: Asked) -> Place:
    region = asked.region or _texts(asked.secret).get("region", "")
    if not asked.secret.is_identity:
        return Place(_url("s3", asked, region=region), _credentials(asked))
    role = str(configured(asked.secret).get("roleARN", ""))
    token = _token_file(asked)
    return Place(_url("s3", asked, region=region), _credentials(asked, roleARN=role, tokenPath=str(token)))


def _azure(asked: Asked) -> Place:
    return Place(f"azure:///{quote(asked.bucket)}", _credentials(asked))


def _gcp(asked: Asked) -> Place:
    if asked.secret.is_identity:
        config = configured(asked.secret).get(_CONFIG)
        if not isinstance(config, dict):
            raise ConfigError(f"the workload identity {asked.secret.metadata.key} has no {_CONFIG}")
        source = {"file": str(_token_file(asked)), "format": {"type": "text"}}
        written = msgspec.json.encode({**config, "credential_source": source}).decode()
    else:
        written = _texts(asked.secret).get(_GOOGLE_FILE, "")
    return Place(_url("gs", asked, endpoint=asked.endpoint), _credentials(asked, googleCredentials=written))


def _openstack(asked: Asked) -> Place:
    return Place(_url("swift", asked, region=asked.region), _credentials(asked))


def _alicloud(asked: Asked) -> Place:
    endpoint = f"https://oss-{asked.region}.aliyuncs.com"
    said = "storageEndpoint" in asked.secret.data
    return Place(_url("oss", asked), _credentials(asked, **({} if said else {"storageEndpoint": endpoint})))


def _local(asked: Asked) -> Place:
    if asked.bucket in {"", ".", ".."} or "/" in asked.bucket:
        raise UsageError(f"{asked.bucket!r} is no name of a directory")
    return Place(f"file://{quote(str(asked.directory / asked.bucket))}", AMBIENT)


_LOCATE: dict[str, Locate] = {
    "aws": _s3,
    "azure": _azure,
    "gcp": _gcp,
    "openstack": _openstack,
    "alicloud": _alicloud,
    "local": _local,
    "S3": _s3,
}
TYPES: Final = tuple(_LOCATE)
"""The types that are known without any other package."""


def _token_file(asked: Asked) -> Path:
    """The token of a workload identity as a file; replaced in one step, so that nobody reads half of one."""
    meta = asked.secret.metadata
    token = asked.secret.data.get(_TOKEN)
    if not token:
        raise ConfigError(
            f"the workload identity {meta.key} has no token yet",
            hint="whoever renews it puts one there; this is tried again",
        )
    path = asked.tokens / f"{meta.namespace}.{meta.name}"
    if not path.is_file() or path.read_bytes() != token:
        handle, new = tempfile.mkstemp(dir=asked.tokens)
        with os.fdopen(handle, "wb") as file:
            file.write(token)
        Path(new).replace(path)
    return path
