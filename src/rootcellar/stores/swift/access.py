"""Tokens: from keystone (v3) with a password or an application credential, or from Swift's own v1
authentication (TempAuth and what imitates it).

A token is used until shortly before its end, until the credentials change, or until Swift refuses it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rootcellar.errors import ConfigError, NotFoundError, StoreError, TransientError, UsageError
from rootcellar.stores.credentials import sendable
from rootcellar.stores.identity import SPARE
from rootcellar.stores.rotation import Rotating
from rootcellar.stores.swift.errors import refusal
from rootcellar.stores.swift.options import checked_auth
from rootcellar.stores.wire import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.swift.options import SwiftOptions
    from rootcellar.stores.wire import Answer, Wire

_EARLY = 60.0  # seconds before its end that a token is replaced
_NEVER = float("inf")

_VARIABLES = {
    "authURL": ("OS_AUTH_URL",),
    "domainName": ("OS_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_NAME"),
    "tenantName": ("OS_PROJECT_NAME", "OS_TENANT_NAME"),
    "region": ("OS_REGION_NAME",),
    "username": ("OS_USERNAME",),
    "password": ("OS_PASSWORD",),
    "applicationCredentialID": ("OS_APPLICATION_CREDENTIAL_ID",),
    "applicationCredentialName": ("OS_APPLICATION_CREDENTIAL_NAME",),
    "applicationCredentialSecret": ("OS_APPLICATION_CREDENTIAL_SECRET",),
}


def from_environment(environment: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """What OpenStack's own variables say, by our names; each variable begins with `prefix`."""
    found = {
        name: next((environment[prefix + each] for each in variables if environment.get(prefix + each)), "")
        for name, variables in _VARIABLES.items()
    }
    return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Access:
    """A token, the account it is for, and its end in seconds of `time.time`."""

    token: str
    account: str
    ends: float


def access(options: SwiftOptions, credentials: Credentials, wire: Wire) -> Rotating[Access]:
    """What `credentials` let in.  Its `current` raises DeniedError, ConfigError, or TransientError where the
    identity service is away.
    """
    return Rotating(
        credentials,
        lambda values: _fetched(options, values or from_environment(os.environ), wire),
        lambda found: found.ends - _EARLY >= time.time(),
        lambda found: found.ends - SPARE >= time.time(),
    )


def _fetched(options: SwiftOptions, values: Mapping[str, str], wire: Wire) -> Access:
    address = options.auth or values.get("authURL")
    if not address:
        raise ConfigError("nothing says where tokens are had", hint="auth=https://HOST:5000/v3, or authURL")
    try:
        parts = urlsplit(checked_auth(address))
    except UsageError as error:
        raise ConfigError(f"authURL: {error.message}", hint=error.hint) from error
    if parts.path.rstrip("/").rsplit("/", 1)[-1] in {"v1", "v1.0"}:
        return _version_1(wire, address, values)
    return _keystone(wire, address, values, options.region or values.get("region"))


def _version_1(wire: Wire, address: str, values: Mapping[str, str]) -> Access:
    _need(values, "username", "password")
    user = values["username"]
    if values.get("tenantName") and ":" not in user:
        user = f"{values['tenantName']}:{user}"
    sendable(values, "tenantName", "username", "password")
    headers = {"X-Auth-User": _utf8(user), "X-Auth-Key": _utf8(values["password"])}
    answer = _sent(wire, Request("GET", address, "log in", address, headers))
    token, account = answer.headers.get("X-Auth-Token"), answer.headers.get("X-Storage-Url")
    if not token or not account:
        raise TransientError(f"{address}: an answer without a token", operation="log in")
    lasts = answer.headers.get("X-Auth-Token-Expires", "")
    return Access(token, account.rstrip("/"), time.time() + int(lasts) if lasts.isdecimal() else _NEVER)


def _utf8(text: str) -> str:
    """As Swift reads a header; the library below writes each character as one byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _keystone(wire: Wire, address: str, values: Mapping[str, str], region: str | None) -> Access:
    url = f"{_version_3(address)}/auth/tokens"
    body = json.dumps({"auth": _identity(values)}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = _sent(wire, Request("POST", url, "log in", url, headers, body))
    try:
        token = json.loads(answer.body)["token"]
        ends = datetime.fromisoformat(token["expires_at"]).timestamp() if token.get("expires_at") else _NEVER
        return Access(answer.headers["X-Subject-Token"], _account(token.get("catalog", []), region), ends)
    except (ValueError, KeyError, TypeError) as error:
        raise TransientError(f"{url}: an answer that cannot be read", operation="log in") from error


def _version_3(address: str) -> str:
    address = address.rstrip("/")
    head, _, last = address.rpartition("/")
    if last == "v3":
        return address
    return f"{head if last in {'v2.0', 'v2'} else address}/v3"


def _identity(values: Mapping[str, str]) -> dict[str, Any]:
    """An application credential has its project with it; a password needs one named."""
    domain = {"name": values.get("domainName") or "Default"}
    if values.get("applicationCredentialSecret"):
        credential: dict[str, Any] = {"secret": values["applicationCredentialSecret"]}
        if values.get("applicationCredentialID"):
            credential["id"] = values["applicationCredentialID"]
        else:
            _need(values, "applicationCredentialName", "username")
            credential["name"] = values["applicationCredentialName"]
            credential["user"] = {"name": values["username"], "domain": domain}
        return {"identity": {"methods": ["application_credential"], "application_credential": credential}}
    _need(values, "username", "password", "tenantName")
    user = {"name": values["username"], "domain": domain, "password": values["password"]}
    return {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"name": values["tenantName"], "domain": domain}},
    }


def _account(catalog: list[dict[str, Any]], region: str | None) -> str:
    """The object store in a catalogue.  Raises ConfigError where it is not certain which."""
    found = {
        str(endpoint.get("region") or endpoint.get("region_id")): str(endpoint["url"]).rstrip("/")
        for service in catalog
        if service["type"] == "object-store"
        for endpoint in service["endpoints"]
        if endpoint["interface"] == "public"
    }
    if region is None and len(found) == 1:
        return next(iter(found.values()))
    if region not in found:
        wanted = "" if region is None else f" in region {region}"
        regions = ", ".join(sorted(found)) or "none"
        raise ConfigError(
            f"no object store{wanted} for this project", hint=f"regions that have one: {regions}"
        )
    return found[region]


def _need(values: Mapping[str, str], *names: str) -> None:
    lacking = [name for name in names if not values.get(name)]
    if lacking:
        raise ConfigError(
            f"the credentials lack {' and '.join(lacking)}",
            hint="give username, password and tenantName, or an applicationCredentialID and its secret",
        )


def _sent(wire: Wire, request: Request) -> Answer:
    answer = wire.send(request)
    if answer.failed:
        error = refusal(request, answer)
        if isinstance(error, NotFoundError):
            raise StoreError(
                f"{request.where}: no identity service there",
                hint="look at auth=...",
                operation=request.operation,
            )
        raise error
    return answer
