"""Where etcd-backup-restore would find its store: from its provider's name, flags and environment to our URL
and credentials.

The names are those of its `--storage-provider`, `--store-container`, `--store-prefix` and
`--store-endpoint-override`; a copy's source and a second site have the same variables with `SOURCE_` and
`SECONDARY_` before them.  For each provider that has them, a `..._JSON` variable names one JSON file, the
variable without it a directory, in which a `*.json` file comes before single files.  The files are read
again when they change.

Unlike there: surrounding white space in the files is dropped; the second site's credentials are used for
Google too; and without variables S3 and Google use what their own surroundings offer (instance profile,
workload identity), also for taking snapshots.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from rootcellar.errors import ConfigError, UsageError
from rootcellar.stores.credentials import (
    AMBIENT,
    Credentials,
    DirectoryCredentials,
    FileCredentials,
    RewrittenCredentials,
    flag,
)
from rootcellar.stores.swift.access import from_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_CONTAINER = "default.bkp"
ECS_REGION = "US-Standard"

_ECS = {
    "endpoint": "ECS_ENDPOINT",
    "accessKeyID": "ECS_ACCESS_KEY_ID",
    "secretAccessKey": "ECS_SECRET_ACCESS_KEY",
    "disableSSL": "ECS_DISABLE_SSL",
    "insecureSkipVerify": "ECS_INSECURE_SKIP_VERIFY",
}


@dataclass(frozen=True, slots=True)
class Located:
    """What `open_store` takes."""

    url: str
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class _Asked:
    """The flags, and the environment with the prefix of its variables."""

    container: str
    prefix: str
    endpoint: str | None
    environment: Mapping[str, str]
    variables: str

    def url(self, scheme: str, *, endpoint: str | None = None) -> str:
        """The account of Azure is left out: the credentials name it."""
        path = "/".join(quote(part, safe="/$") for part in (self.container, self.prefix) if part)
        query = "?" + urlencode({"endpoint": endpoint}, safe=":/") if endpoint else ""
        return f"{scheme}://{'/' if scheme == 'azure' else ''}{path}{query}"

    def layout(self, variable: str) -> Credentials | None:
        """The files that the environment names; None where it names none."""
        if file := self.environment.get(f"{self.variables}{variable}_JSON"):
            return FileCredentials(Path(file))
        if directory := self.environment.get(f"{self.variables}{variable}"):
            return DirectoryCredentials(Path(directory))
        return None

    def needed(self, variable: str) -> Credentials:
        """As `layout`.  Raises ConfigError."""
        found = self.layout(variable)
        if found is None:
            name = f"{self.variables}{variable}"
            raise ConfigError(f"neither {name} nor {name}_JSON is set", hint="one of them names the files")
        return found


def located(
    provider: str,
    container: str,
    prefix: str,
    *,
    environment: Mapping[str, str],
    endpoint: str | None = None,
    variables: str = "",
) -> Located:
    """The store that etcd-backup-restore means.  `variables` is "", "SOURCE_" or "SECONDARY_"; `endpoint`
    overrides what the credentials say, for S3, GCS and ABS (as there).

    Raises UsageError for a provider that it does not know, ConfigError for variables that are missing.
    """
    if provider not in _PROVIDERS:
        known = ", ".join(each for each in _PROVIDERS if each)
        raise UsageError(f"there is no storage provider {provider!r}", hint=f"known are {known}")
    container = container or environment.get(f"{variables}STORAGE_CONTAINER", "")
    if not container and provider not in {"", "Local"}:
        raise ConfigError(
            "no container is given", hint=f"--store-container, or the variable {variables}STORAGE_CONTAINER"
        )
    asked = _Asked(container, _joined(prefix), endpoint or None, environment, variables)
    return _PROVIDERS[provider](asked)


def _joined(prefix: str) -> str:
    """A prefix as Go's `path.Join` leaves it: `a//b/./c` is `a/b/c`."""
    joined = posixpath.normpath(prefix.strip("/"))
    return "" if joined == "." else joined


def _local(asked: _Asked) -> Located:
    home = asked.environment.get("HOME")
    if not home:
        raise ConfigError("HOME is not set", hint="the provider Local keeps its container there")
    path = Path(home) / (asked.container or DEFAULT_CONTAINER).strip("/") / asked.prefix
    return Located(f"file://{quote(str(path))}", AMBIENT)


def _s3(asked: _Asked) -> Located:
    credentials = asked.layout("AWS_APPLICATION_CREDENTIALS") or AMBIENT
    endpoint = asked.endpoint
    if endpoint is not None:
        # Not into the URL: hosts or paths for buckets is then decided as the Go SDK does for the layout's
        # own.
        credentials = RewrittenCredentials(credentials, lambda values: {**values, "endpoint": endpoint})
    return Located(asked.url("s3"), credentials)


def _abs(asked: _Asked) -> Located:
    credentials = asked.needed("AZURE_APPLICATION_CREDENTIALS")
    return Located(asked.url("azure", endpoint=asked.endpoint), credentials)


def _gcs(asked: _Asked) -> Located:
    file = asked.environment.get(f"{asked.variables}GOOGLE_APPLICATION_CREDENTIALS")
    endpoint = asked.endpoint.rstrip("/").removesuffix("/storage/v1") if asked.endpoint else None
    return Located(asked.url("gs", endpoint=endpoint), FileCredentials(Path(file)) if file else AMBIENT)


def _swift(asked: _Asked) -> Located:
    credentials = asked.layout("OPENSTACK_APPLICATION_CREDENTIALS")
    if credentials is None:
        if not asked.environment.get(f"{asked.variables}OS_AUTH_URL"):
            name = f"{asked.variables}OPENSTACK_APPLICATION_CREDENTIALS"
            raise ConfigError(f"neither {name} nor {asked.variables}OS_AUTH_URL is set", hint="set one")
        credentials = _from_variables(lambda: from_environment(asked.environment, asked.variables))
    return Located(asked.url("swift"), credentials)


def _oss(asked: _Asked) -> Located:
    return Located(asked.url("oss"), asked.needed("ALICLOUD_APPLICATION_CREDENTIALS"))


def _ocs(asked: _Asked) -> Located:
    credentials = asked.needed("OPENSHIFT_APPLICATION_CREDENTIALS")
    return Located(asked.url("s3"), RewrittenCredentials(credentials, _by_path))


def _ecs(asked: _Asked) -> Located:
    """Its variables have no prefix, whatever the store is for."""

    def read() -> Mapping[str, str]:
        found = {name: asked.environment[each] for name, each in _ECS.items() if asked.environment.get(each)}
        lacking = [_ECS[name] for name in ("endpoint", "accessKeyID", "secretAccessKey") if name not in found]
        if lacking:
            raise ConfigError(f"{' and '.join(lacking)} are not set", hint="ECS has no other way")
        return _by_path({**found, "region": ECS_REGION})

    return Located(asked.url("s3"), _from_variables(read))


def _from_variables(read: Callable[[], Mapping[str, str]]) -> Credentials:
    return RewrittenCredentials(AMBIENT, lambda _: read())


def _by_path(values: Mapping[str, str]) -> Mapping[str, str]:
    """OpenShift's and Dell's S3: buckets in paths, and a switch for plain HTTP, which counts where the
    endpoint has no scheme.
    """
    endpoint = values.get("endpoint", "")
    if not endpoint:
        raise ConfigError("the credentials lack endpoint")
    if "://" not in endpoint:
        endpoint = f"{'http' if flag(values, 'disableSSL') else 'https'}://{endpoint}"
    return {**values, "endpoint": endpoint, "s3ForcePathStyle": "true"}


_PROVIDERS: dict[str, Callable[[_Asked], Located]] = {
    "": _local,
    "Local": _local,
    "S3": _s3,
    "ABS": _abs,
    "GCS": _gcs,
    "Swift": _swift,
    "OSS": _oss,
    "OCS": _ocs,
    "ECS": _ecs,
}
