"""What the `providerConfig` of a BackupBucket says, for each provider, and what may become of it.  Pure.

The kinds are Gardener's `BackupBucketConfig` of `<provider>.provider.extensions.gardener.cloud/v1alpha1`;
names, formats and rules are those of its provider extensions.  Decoding is strict, as in their controllers: a
field that nobody knows is a typing error that would otherwise leave a bucket without its lock.

The extension for S3 (metal-stack's backup-s3) reads none at all, and its manifests have to be taken as they
are.  So for S3 there is a kind of ours, of a group that nobody else has, with aws's fields; any other is not
read, nor are those of types without a kind (openstack, local), and `ProviderConfig.is_unread` says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores.admin.values import Immutability
from rootcellar.stores.location import check_address

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DAY: Final = timedelta(days=1)
_KIND: Final = "BackupBucketConfig"
CLOUDS: Final = ("AzurePublic", "AzureChina", "AzureGovernment")

_UNITS: Final = MappingProxyType(
    {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
)
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")


class _Kind(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    api_version: str
    kind: str


class _AwsImmutability(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    retention_type: str
    retention_period: str
    mode: str


class _Policy(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Azure's and Google's."""

    retention_type: str
    retention_period: str
    locked: bool = False


class _AlicloudImmutability(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    retention_type: str
    retention_period: int
    locked: bool = False


class _Cloud(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    name: str


class _Rotation(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    rotation_period_days: int
    expiration_period_days: int | None = None


class _GcpStore(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    endpoint_override: str | None = None


class _GcpPlace(msgspec.Struct, frozen=True):
    store: _GcpStore | None = None


class _Aws(_Kind, frozen=True):
    immutability: _AwsImmutability | None = None


class _Azure(_Kind, frozen=True):
    cloud_configuration: _Cloud | None = None
    immutability: _Policy | None = None
    rotation_config: _Rotation | None = None


class _Gcp(_Kind, frozen=True):
    immutability: _Policy | None = None
    store: _GcpStore | None = None


class _Alicloud(_Kind, frozen=True):
    immutability: _AlicloudImmutability | None = None


_TYPES: Final[Mapping[str, type[_Kind]]] = MappingProxyType(
    {"aws": _Aws, "azure": _Azure, "gcp": _Gcp, "alicloud": _Alicloud, "S3": _Aws}
)


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a storage account's keys are replaced, and, where set, when they expire by policy."""

    after: timedelta
    expire: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """What was said, the same for all providers; nothing for no providerConfig.  `is_unread`: there is one
    that is not for us.
    """

    immutability: Immutability | None = None
    cloud: str | None = None
    rotation: Rotation | None = None
    endpoint: str | None = None
    is_unread: bool = False


def decode(provider: str, raw: Any, *, strict: bool = True) -> ProviderConfig:
    """`raw` is the decoded YAML or JSON of `spec.providerConfig`, or None.  Raises ConfigError.

    `strict` False lets pass what nobody knows: for what is stored already, and only compared with.
    """
    if raw is None:
        return ProviderConfig()
    if provider not in _TYPES or (provider == "S3" and not _is_of(raw, provider)):
        return ProviderConfig(is_unread=True)
    kind = _TYPES[provider]
    if strict:
        _refuse_unknown(raw, kind, "providerConfig")
    try:
        said = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"providerConfig: {_lower(str(error))}", hint=_hint(provider)) from error
    if not _is_of(raw, provider):
        raise ConfigError(
            f"providerConfig: {said.kind} of {said.api_version} is not for a bucket of type {provider}",
            hint=_hint(provider),
        )
    match said:
        case _Aws():
            return ProviderConfig(_aws_immutability(said.immutability))
        case _Azure():
            return ProviderConfig(
                _policy(said.immutability, whole_days=True),
                _cloud(said.cloud_configuration),
                _rotation(said.rotation_config),
            )
        case _Gcp():
            endpoint = said.store.endpoint_override if said.store else None
            return ProviderConfig(_policy(said.immutability, whole_days=False), endpoint=_https(endpoint))
        case _Alicloud():
            return ProviderConfig(_days(said.immutability))
    raise AssertionError(said)


def endpoint_of(provider: str, raw: Any) -> str | None:
    """Where the bucket is, by `raw` alone: what else is in it, sensible or not, is for who makes the bucket.
    Raises ConfigError where that cannot be read: to look elsewhere would be to find nothing there.
    """
    if raw is None or provider != "gcp":
        return None
    try:
        said = msgspec.convert(raw, _GcpPlace)
    except msgspec.ValidationError as error:
        raise ConfigError(f"providerConfig: {_lower(str(error))}", hint=_hint(provider)) from error
    return _https(said.store.endpoint_override) if said.store else None


def check_endpoint(endpoint: str | None, allowed: Collection[str]) -> None:
    """ConfigError for an endpoint that the operator's own list does not have: credentials are sent there."""
    known = {each.rstrip("/") for each in allowed}
    if endpoint is not None and endpoint.rstrip("/") not in known:
        raise ConfigError(
            f"providerConfig: the endpoint {endpoint} is not allowed here",
            hint="whoever runs the operator may add it to the allowed endpoints",
        )


def duration(text: str) -> timedelta:
    """Go's way to write a duration, as 24h or 1h30m.  Raises ConfigError."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ConfigError(f"{text!r} is no duration", hint="write it as 24h or 96h")
    return timedelta(seconds=sum(float(part[1]) * _UNITS[part[2]] for part in parts))


def _aws_immutability(said: _AwsImmutability | None) -> Immutability | None:
    if said is None:
        return None
    if said.mode not in {"governance", "compliance"}:
        raise ConfigError(f"providerConfig: mode {said.mode!r} is unknown", hint="governance or compliance")
    period = _period(said.retention_type, said.retention_period, whole_days=True)
    return Immutability(period, locked=said.mode == "compliance")


def _policy(said: _Policy | None, *, whole_days: bool) -> Immutability | None:
    if said is None:
        return None
    period = _period(said.retention_type, said.retention_period, whole_days=whole_days)
    return Immutability(period, locked=said.locked)


def _days(said: _AlicloudImmutability | None) -> Immutability | None:
    if said is None:
        return None
    if said.retention_type != "bucket" or said.retention_period < 1:
        raise _no_period(said.retention_type, f"{said.retention_period} days")
    return Immutability(timedelta(days=said.retention_period), locked=said.locked)


def _period(kind: str, text: str, *, whole_days: bool) -> timedelta:
    found = duration(text)
    if kind != "bucket" or found < DAY or (whole_days and found % DAY):
        raise _no_period(kind, text)
    return found


def _no_period(kind: str, text: str) -> ConfigError:
    return ConfigError(
        f"providerConfig: immutability of type {kind!r} for {text} cannot be had",
        hint="retentionType is bucket; retentionPeriod at least a day, and whole days but on gcp",
    )


def _cloud(said: _Cloud | None) -> str | None:
    if said is None:
        return None
    if said.name not in CLOUDS:
        raise ConfigError(f"providerConfig: unknown cloud {said.name!r}", hint=" or ".join(CLOUDS))
    return said.name


def _rotation(said: _Rotation | None) -> Rotation | None:
    if said is None:
        return None
    after, expire = said.rotation_period_days, said.expiration_period_days
    if after < 2 or (expire is not None and expire <= after):
        raise ConfigError(
            "providerConfig: rotationConfig leaves no time for a new key to be used",
            hint="rotationPeriodDays at least 2, expirationPeriodDays more than that",
        )
    return Rotation(timedelta(days=after), None if expire is None else timedelta(days=expire))


def _https(endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    hint = "write https://HOST"
    try:
        check_address(endpoint, "endpointOverride", hint)
    except UsageError as error:
        raise ConfigError(f"providerConfig: {error.message}", hint=hint) from error
    if not endpoint.startswith("https://"):
        raise ConfigError(f"providerConfig: endpointOverride {endpoint!r} is no https address", hint=hint)
    return endpoint


def _refuse_unknown(raw: Any, kind: type[Any], place: str) -> None:
    """ConfigError for a key that no field of `kind`, or of what it holds, has."""
    if not isinstance(raw, dict):
        return  # the conversion says what is wrong
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in raw.items():
        if name not in fields:
            known = ", ".join(fields)
            raise ConfigError(f"{place}: unknown field {name!r}", hint=f"known are {known}")
        for inner in getattr(fields[name], "__args__", ()):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                _refuse_unknown(value, inner, f"{place}.{name}")


def _is_of(raw: Any, provider: str) -> bool:
    return isinstance(raw, dict) and (raw.get("apiVersion"), raw.get("kind")) == (_version(provider), _KIND)


def _version(provider: str) -> str:
    return f"{provider.lower()}.provider.extensions.gardener.cloud/v1alpha1"


def _hint(provider: str) -> str:
    return f"a {_KIND} of {_version(provider)}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
