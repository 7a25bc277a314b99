"""Azure's management (Resource Manager): requests as a service principal, refused as our errors.

Source: the REST references of Microsoft.Resources and Microsoft.Storage; never run against the real thing.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    LockedError,
    NotFoundError,
    StoreError,
    ThrottledError,
    TransientError,
)
from rootcellar.stores.azure.errors import AzureError
from rootcellar.stores.identity import Token, exchanged, is_good
from rootcellar.stores.meaning import Meaning, meant
from rootcellar.stores.rotation import Rotating
from rootcellar.stores.wire import Request, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.wire import Answer

GROUPS: Final = "2021-04-01"
STORAGE: Final = "2023-01-01"

_ROLE = "the identity is known, but has no role that allows this in the subscription or the resource group"
_SECRET = "look at clientID, clientSecret and tenantID; the secret may have expired"  # noqa: S105 - a hint


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where one of Azure's clouds is managed."""

    login: str
    management: str
    blobs: str


CLOUDS: Final[Mapping[str, Cloud]] = MappingProxyType(
    {
        "AzurePublic": Cloud(
            "https://login.microsoftonline.com", "https://management.azure.com", "blob.core.windows.net"
        ),
        "AzureChina": Cloud(
            "https://login.chinacloudapi.cn",
            "https://management.chinacloudapi.cn",
            "blob.core.chinacloudapi.cn",
        ),
        "AzureGovernment": Cloud(
            "https://login.microsoftonline.us",
            "https://management.usgovcloudapi.net",
            "blob.core.usgovcloudapi.net",
        ),
    }
)


def cloud(name: str | None, region: str) -> Cloud:
    """The cloud of a name, or else the one that a region is in."""
    if name is not None:
        return CLOUDS[name]
    start = {"china": "AzureChina", "usgov": "AzureGovernment", "usdod": "AzureGovernment"}
    found = (each for prefix, each in start.items() if region.lower().startswith(prefix))
    return CLOUDS[next(found, "AzurePublic")]


_CODES: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        "StorageAccountAlreadyTaken": (
            AlreadyExistsError,
            "somebody else has a storage account of this name",
            "names of accounts are shared by all of Azure: look whose it is",
        ),
        "AccountNameInvalid": (StoreError, "this can be no storage account's name", None),
        "StorageAccountOperationInProgress": (TransientError, "another change was under way", None),
        "AnotherOperationInProgress": (TransientError, "another change was under way", None),
        "ResourceGroupBeingDeleted": (TransientError, "the resource group is being deleted", None),
        "SubscriptionNotFound": (DeniedError, "the subscription is not known", "look at subscriptionID"),
        "ScopeLocked": (LockedError, "a management lock forbids it", "ask who put it on the resource"),
        "ContainerImmutabilityPolicyFailure": (LockedError, "the immutability policy forbids it", None),
        "ImmutabilityPolicyDeleteOnLockedPolicy": (LockedError, "the immutability policy is locked", None),
    }
)

_STATUS: Final[Mapping[int, Meaning]] = MappingProxyType(
    {
        401: (DeniedError, "the token is not taken", "look at tenantID and subscriptionID"),
        403: (DeniedError, "access denied", _ROLE),
        404: (NotFoundError, "no such resource", None),
        409: (TransientError, "another change was under way", None),
        412: (TransientError, "somebody else changed it in between", None),
        429: (ThrottledError, "the management asks to slow down", None),
    }
)


class Management:
    """Requests in one subscription.  Paths begin below `/subscriptions/ID`."""

    def __init__(self, place: Cloud, credentials: Credentials, wire: Wire | None = None) -> None:
        self._place = place
        self._credentials = credentials
        self._wire = wire or Wire()
        self._tokens = Rotating(credentials, self._signed_in, is_good)

    def ask(
        self,
        method: str,
        path: str,
        operation: str,
        version: str,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer of a success.  Raises StoreError."""
        subscription = quote(_needed(self._credentials.load(), "subscriptionID"), safe="")
        url = f"{self._place.management}/subscriptions/{subscription}{path}?api-version={version}"
        sent = {
            "Authorization": f"Bearer {self._tokens.current().text}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, url, operation, f"Azure{path}", sent, data)
        answer = self._wire.send(request)
        if answer.status >= 300:
            raise _refusal(request, answer)
        return _read(request, answer)

    def _signed_in(self, values: Mapping[str, str]) -> Token:
        form = {
            "grant_type": "client_credentials",
            "client_id": _needed(values, "clientID"),
            "scope": f"{self._place.management}/.default",
        }
        if path := values.get("tokenPath"):
            form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            try:
                form["client_assertion"] = Path(path).read_text("utf-8").strip()
            except OSError as error:
                raise ConfigError(f"cannot read the token in {path}: {error.strerror}") from error
        else:
            form["client_secret"] = _needed(values, "clientSecret")
        request = Request(
            "POST",
            f"{self._place.login}/{quote(_needed(values, 'tenantID'), safe='')}/oauth2/v2.0/token",
            "sign in",
            "Microsoft Entra",
            {"Content-Type": "application/x-www-form-urlencoded"},
            urlencode(form).encode(),
        )
        found = exchanged(self._wire, request, _SECRET)
        try:
            return Token(str(found["access_token"]), time.time() + float(str(found["expires_in"])))
        except (KeyError, ValueError) as error:
            raise TransientError("Microsoft Entra answers without a token", operation="sign in") from error


def _needed(values: Mapping[str, str], name: str) -> str:
    value = values.get(name)
    if not value:
        raise ConfigError(
            f"the credentials lack {name}",
            hint="Azure's management wants clientID, clientSecret, subscriptionID and tenantID",
        )
    return value


def _read(request: Request, answer: Answer) -> dict[str, Any]:
    if not answer.body:
        return {}
    try:
        found = json.loads(answer.body)
    except ValueError as error:
        raise TransientError(
            f"{request.where}: an answer that cannot be read", operation=request.operation
        ) from error
    return found if isinstance(found, dict) else {}


def _refusal(request: Request, answer: Answer) -> StoreError:
    """Azure's code decides, then the status."""
    code, text = "", ""
    try:
        error = json.loads(answer.body)["error"]
        code, text = str(error.get("code") or ""), " ".join(str(error.get("message") or "").split())
    except (ValueError, KeyError, TypeError, AttributeError):
        if answer.status in {400, 404, 409}:  # Azure says why: so this is not Azure, or cut short
            return TransientError(
                f"{request.where}: an answer that is not Azure's (status {answer.status})",
                operation=request.operation,
            )
    said = text[:1].lower() + text[1:300].rstrip(".") if text else f"status {answer.status}"
    fallback: Meaning = (StoreError, said, None)
    if answer.status >= 500:
        fallback = (TransientError, f"an error inside Azure's management ({code or answer.status})", None)
    meaning = _CODES.get(code) or _STATUS.get(answer.status) or fallback
    return meant(meaning, request.where, request.operation, AzureError(answer.status, code, text))
