"""Azure's identities without a secret: a workload's federated token, or the machine's managed identity.

Which one is told by the environment, as Azure's own libraries read it: AZURE_FEDERATED_TOKEN_FILE,
AZURE_CLIENT_ID, AZURE_TENANT_ID (and AZURE_AUTHORITY_HOST) are what the workload identity webhook sets in a
pod; without the file the instance metadata service is asked, for the user-assigned identity AZURE_CLIENT_ID
if set.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from rootcellar.errors import ConfigError, TransientError
from rootcellar.stores.credentials import AMBIENT
from rootcellar.stores.identity import Token, exchanged, is_good, serves
from rootcellar.stores.rotation import Rotating
from rootcellar.stores.wire import Request, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCE = "https://storage.azure.com/"
LOGIN = "https://login.microsoftonline.com/"
METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"

_HINT_FEDERATED = "look at the federated credential of the identity: issuer, subject and audience"
_NOT_YET = (404, 410)
"""What the metadata service answers while it is renewed, for up to 70 s ("Use managed identities on a virtual
machine to acquire access token", error handling), and for an identity that it does not know yet.
"""
_HINT_MANAGED = "give the machine or pod an identity, or name credentials in the configuration"


class IdentitySigner:
    """Signs with a token of the environment's identity."""

    def __init__(self, wire: Wire | None = None) -> None:
        federated = os.environ.get("AZURE_FEDERATED_TOKEN_FILE")
        if federated:
            outside = wire or Wire()
            self._tokens = Rotating(AMBIENT, lambda _: _federated(outside, Path(federated)), is_good, serves)
        else:
            inside = wire or Wire(proxied=False, connect_timeout=2.0, timeout=10.0)
            self._tokens = Rotating(AMBIENT, lambda _: _managed(inside), is_good, serves)

    def query(self) -> str:
        return ""

    def headers(self, method: str, url: str, headers: Mapping[str, str], length: int) -> dict[str, str]:
        del method, headers, length
        if urlsplit(url).scheme != "https":
            raise ConfigError(
                "a token is not sent without encryption",
                hint="use an https endpoint, or give a storage key",
            )
        return {"Authorization": f"Bearer {self._tokens.current().text}"}


def _federated(wire: Wire, path: Path) -> Token:
    """The pod's token for one of Microsoft Entra (client assertion, RFC 7523)."""
    try:
        assertion = path.read_text("utf-8").strip()  # kubelet rotates it
        client, tenant = os.environ["AZURE_CLIENT_ID"], os.environ["AZURE_TENANT_ID"]
    except OSError as error:
        raise ConfigError(f"cannot read the federated token in {path}: {error.strerror}") from error
    except KeyError as error:
        raise ConfigError(
            f"{error.args[0]} is not set", hint="the workload identity webhook sets it"
        ) from error
    authority = os.environ.get("AZURE_AUTHORITY_HOST") or LOGIN
    form = {
        "grant_type": "client_credentials",
        "client_id": client,
        "scope": f"{RESOURCE}.default",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": assertion,
    }
    request = Request(
        "POST",
        f"{authority.rstrip('/')}/{quote(tenant, safe='')}/oauth2/v2.0/token",
        "sign in",
        "Microsoft Entra",
        {"Content-Type": "application/x-www-form-urlencoded"},
        urlencode(form).encode(),
    )
    return _token(exchanged(wire, request, _HINT_FEDERATED))


def _managed(wire: Wire) -> Token:
    """A token from the machine's metadata service."""
    asked = {"api-version": "2018-02-01", "resource": RESOURCE}
    if client := os.environ.get("AZURE_CLIENT_ID"):
        asked["client_id"] = client
    request = Request(
        "GET", f"{METADATA}?{urlencode(asked)}", "sign in", "the metadata service", {"Metadata": "true"}
    )
    return _token(exchanged(wire, request, _HINT_MANAGED, not_yet=_NOT_YET))


def _token(found: Mapping[str, object]) -> Token:
    try:
        return Token(str(found["access_token"]), time.time() + float(str(found["expires_in"])))
    except (KeyError, ValueError) as error:
        raise TransientError("the identity service answers without a token", operation="sign in") from error
