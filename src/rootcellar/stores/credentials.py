"""Where the keys to a store come from: never from its URL, so that no log and no process list shows them.

The names and the layouts are those of etcd-backup-restore, so that a Secret made for it works unchanged:
one file per name in a directory, or one JSON object with the same names.  A directory that holds a `*.json`
file is read as that file.  Unlike there, surrounding white space is dropped (an editor's line end is no
part of a key).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rootcellar.booleans import go_boolean
from rootcellar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NAMES = (
    "accessKeyID",
    "secretAccessKey",
    "sessionToken",
    "region",
    "endpoint",
    "s3ForcePathStyle",
    "insecureSkipVerify",
    "trustedCaCert",
    "sseCustomerKey",
    "sseCustomerAlgorithm",
    "requestChecksumCalculation",
    "responseChecksumValidation",
    "roleARN",
    "tokenPath",
    "storageAccount",
    "storageKey",
    "sasToken",
    "domain",
    "googleCredentials",
    "projectID",
    "storageAPIEndpoint",
    "authURL",
    "domainName",
    "tenantName",
    "username",
    "password",
    "applicationCredentialID",
    "applicationCredentialName",
    "applicationCredentialSecret",
    "storageEndpoint",
    "accessKeySecret",
    "disableSSL",
)
"""What a layout may say.  `token`, a file in a directory layout, is known by its path as `tokenPath`;
`googleCredentials` is the JSON text that Google hands out for a service account or an external account.
"""

_GOOGLE = {"service_account", "external_account"}


class Credentials(Protocol):
    """A source of names and values.  It is read again when it may have changed (`stamp`)."""

    def load(self) -> Mapping[str, str]:
        """Names of `NAMES` with their values; unknown ones are left out.  Raises ConfigError."""
        ...

    def stamp(self) -> object:
        """Something that compares unequal once the values may have changed."""
        ...


@dataclass(frozen=True, slots=True)
class AmbientCredentials:
    """Whatever the provider's own library finds: environment, profile, instance or pod identity."""

    def load(self) -> Mapping[str, str]:
        return {}

    def stamp(self) -> object:
        return None


@dataclass(frozen=True, slots=True)
class DirectoryCredentials:
    """One file per name, as a mounted Secret looks."""

    path: Path

    def load(self) -> Mapping[str, str]:
        json_file = self._json_file()
        if json_file is not None:
            return FileCredentials(json_file).load()
        values = {name: _read(self.path / name) for name in NAMES if (self.path / name).is_file()}
        if (self.path / "token").is_file():
            values["tokenPath"] = str(self.path / "token")
        if not values:
            raise ConfigError(
                f"no credentials in {self.path}",
                hint=f"it should hold files named {NAMES[0]}, {NAMES[1]}, ...",
            )
        return _trimmed(values)

    def stamp(self) -> object:
        """The times of all files: a mounted Secret is swapped as a whole, a person edits one file.  A link
        to nothing, as editors lock with, is left out.
        """
        try:
            return sorted(filter(None, map(_dated, self.path.iterdir())))
        except OSError:
            return None  # in the middle of a swap; load says what is wrong

    def _json_file(self) -> Path | None:
        try:
            config = self.path / "credentialsConfig"  # an external account of Google, by Gardener's name
            found = (path for path in self.path.glob("*.json") if path.is_file())
            return min(found, default=config if config.is_file() else None)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class FileCredentials:
    """One JSON object."""

    path: Path

    def load(self) -> Mapping[str, str]:
        try:
            found = json.loads(_read(self.path))
        except ValueError as error:
            raise ConfigError(f"{self.path} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{self.path} holds no JSON object")
        if found.get("type") in _GOOGLE:
            return _google(self.path, found)
        values = {name: _text(found[name]) for name in NAMES if found.get(name) is not None}
        if not values and found.get("type"):  # as Google's files have, also gcloud's own for a person
            kinds = " or ".join(sorted(_GOOGLE))
            raise ConfigError(f"{self.path}: credentials of type {found['type']} are not taken", hint=kinds)
        if not values:
            raise ConfigError(
                f"no credentials in {self.path}", hint=f"it should name {', '.join(NAMES[:2])}, ..."
            )
        return _trimmed(values)

    def stamp(self) -> object:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class EnvironmentCredentials:
    """Variables that begin with `prefix`: for `MAIN_`, MAIN_ACCESS_KEY_ID, MAIN_REGION and so on."""

    prefix: str

    def load(self) -> Mapping[str, str]:
        variables = {name: f"{self.prefix}{variable(name)}" for name in NAMES}
        values = {name: os.environ[found] for name, found in variables.items() if found in os.environ}
        if not values:
            raise ConfigError(
                f"no environment variable begins with {self.prefix}",
                hint=f"set {variables[NAMES[0]]}, {variables[NAMES[1]]}, ...",
            )
        return _trimmed(values)

    def stamp(self) -> object:
        return None


@dataclass(frozen=True, slots=True)
class RewrittenCredentials:
    """Another source, its values put into the names that a store reads.  It is re-read when that one is."""

    source: Credentials
    rewrite: Callable[[Mapping[str, str]], Mapping[str, str]]

    def load(self) -> Mapping[str, str]:
        return self.rewrite(self.source.load())

    def stamp(self) -> object:
        return self.source.stamp()


AMBIENT = AmbientCredentials()

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def variable(name: str) -> str:
    """The environment's way to write a name: accessKeyID is ACCESS_KEY_ID, s3ForcePathStyle
    S3_FORCE_PATH_STYLE.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def flag(values: Mapping[str, str], name: str) -> bool | None:
    """A yes or no, as etcd-backup-restore reads it; None where nothing is said.  Raises ConfigError."""
    text = values.get(name)
    if not text:
        return None
    try:
        return go_boolean(text)
    except ValueError as error:
        raise ConfigError(f"{name} is {text!r}", hint="write true or false") from error


def _dated(path: Path) -> tuple[str, int] | None:
    try:
        return path.name, path.stat().st_mtime_ns
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text") from error


def _google(path: Path, found: Mapping[str, object]) -> dict[str, str]:
    """Google's own file, and what the reference's layout puts beside it."""
    values = {"googleCredentials": json.dumps(found)}
    for name in ("projectID", "storageAPIEndpoint"):
        if (path.parent / name).is_file():
            values[name] = _read(path.parent / name)
    if (path.parent / "token").is_file():
        values["tokenPath"] = str(path.parent / "token")
    return _trimmed(values)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _trimmed(values: Mapping[str, str]) -> dict[str, str]:
    # An encryption key may be any 32 characters, also blanks.
    return {name: value if name == "sseCustomerKey" else value.strip() for name, value in values.items()}


def sendable(values: Mapping[str, str], *names: str) -> None:
    """ConfigError where one of these cannot stand in a header; the library's own words would show it."""
    for name in names:
        if _CONTROL.search(values.get(name, "")):
            raise ConfigError(f"{name} holds a line end or another control character", hint="write it anew")


def complete(values: Mapping[str, str]) -> None:
    """ConfigError where half a key pair is given, or half a role."""
    for pair in (("accessKeyID", "secretAccessKey"), ("roleARN", "tokenPath")):
        given = [bool(values.get(name)) for name in pair]
        if any(given) and not all(given):
            lacking = pair[given.index(False)]
            raise ConfigError(f"the credentials lack {lacking}", hint=f"give {' and '.join(pair)} together")
