"""Google's identities, as tokens for storage.

A service account's key signs an assertion (RFC 7523); an external account exchanges the token in a file (RFC
8693) and may then act as a service account; else the machine's metadata server is asked.  Addresses in the
credentials are taken only where they are Google's: whoever may write a Secret must not have our tokens sent
elsewhere.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from rootcellar.errors import ConfigError, TransientError
from rootcellar.stores.credentials import AMBIENT, Credentials, FileCredentials
from rootcellar.stores.identity import Token, exchanged, is_good, serves
from rootcellar.stores.rotation import Rotating
from rootcellar.stores.wire import Request, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"
_CLOUD = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = "https://oauth2.googleapis.com/token"

_LOGINS = re.compile(r"https://(oauth2\.googleapis\.com/token|accounts\.google\.com/o/oauth2/token)")
_EXCHANGES = re.compile(r"https://(sts|sts\.[a-z0-9-]+\.rep)\.googleapis\.com/v1/token")
_IMPERSONATIONS = re.compile(
    r"https://iamcredentials\.googleapis\.com/v1/projects/-/serviceAccounts/[A-Za-z0-9@.-]+:generateAccessToken"
)

_HINT_KEY = "look at the service account's key: it may be deleted or of another account; and at this clock"
_HINT_EXCHANGE = "look at the workload identity pool: provider, audience, and who may act as the account"
_HINT_METADATA = "give the machine or pod a service account, or name credentials in the configuration"


def ambient() -> Credentials | None:
    """The file that GOOGLE_APPLICATION_CREDENTIALS names; None to ask the metadata server."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    return FileCredentials(Path(named)) if named else None


def tokens(source: Credentials, wire: Wire | None = None) -> Rotating[Token]:
    """Tokens for what `source` names, read again when it has changed.  Raises ConfigError at the first."""
    found = source if source.load().get("googleCredentials") else ambient()
    if found is None:
        inside = wire or Wire(proxied=False, connect_timeout=2.0, timeout=10.0)
        return Rotating(AMBIENT, lambda _: _from_metadata(inside), is_good, serves)
    outside = wire or Wire()
    return Rotating(found, lambda values: _from_file(outside, values), is_good, serves)


def _from_file(wire: Wire, values: Mapping[str, str]) -> Token:
    try:
        told = json.loads(values.get("googleCredentials", ""))
        kind = told["type"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("the Google credentials are no JSON object with a type") from error
    try:
        if kind == "service_account":
            return _from_key(wire, told)
        if kind == "external_account":
            return _from_exchange(wire, told, values.get("tokenPath"))
    except KeyError as error:
        raise ConfigError(f"the Google credentials lack {error.args[0]}") from error
    raise ConfigError(
        f"Google credentials of type {kind} are not taken", hint="service_account or external_account"
    )


def _from_key(wire: Wire, told: Mapping[str, Any]) -> Token:
    address = _googles(_LOGINS, str(told.get("token_uri") or _LOGIN), "token_uri")
    now = int(time.time())
    claims = {"iss": told["client_email"], "scope": SCOPE, "aud": address, "iat": now, "exp": now + 3600}
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": _assertion(claims, told["private_key"], told.get("private_key_id")),
    }
    return _token(exchanged(wire, _form(address, form), _HINT_KEY))


def _assertion(claims: Mapping[str, object], pem: str, key_id: str | None) -> str:
    """A JWT signed with RS256."""
    # OpenSSL takes a tenth of a second and 9 MB, and only this kind of identity needs it.
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 - see above

    header = {"alg": "RS256", "typ": "JWT", **({"kid": key_id} if key_id else {})}
    signed = b".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError) as error:
        raise ConfigError("private_key of the Google credentials cannot be read") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ConfigError("private_key of the Google credentials is no RSA key")
    return (signed + b"." + _base64(key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))).decode()


def _from_exchange(wire: Wire, told: Mapping[str, Any], beside: str | None) -> Token:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": told["audience"],
        "scope": _CLOUD,
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": told["subject_token_type"],
        "subject_token": _subject(told, beside),
    }
    address = _googles(_EXCHANGES, str(told["token_url"]), "token_url")
    token = _token(exchanged(wire, _form(address, form), _HINT_EXCHANGE))
    acting = told.get("service_account_impersonation_url")
    return token if not acting else _impersonated(wire, token, str(acting))


def _subject(told: Mapping[str, Any], beside: str | None) -> str:
    """The token to exchange: in the file that the credentials name, or beside them, as a mounted Secret has
    it.
    """
    source = told.get("credential_source")
    named = source.get("file") if isinstance(source, dict) else None
    path = next((p for p in (named, beside) if p and Path(p).is_file()), None)
    if path is None:
        raise ConfigError(
            f"no token to exchange in {named or beside or 'a file'}",
            hint="a file named by credential_source, or one called token beside the credentials",
        )
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token in {path}") from error


def _impersonated(wire: Wire, token: Token, address: str) -> Token:
    address = _googles(_IMPERSONATIONS, address, "service_account_impersonation_url")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token.text}"}
    body = json.dumps({"scope": [SCOPE], "lifetime": "3600s"}).encode()
    request = Request("POST", address, "sign in", "Google's identity service", headers, body)
    found = exchanged(wire, request, _HINT_EXCHANGE)
    try:
        ends = datetime.fromisoformat(str(found["expireTime"])).timestamp()
        return Token(str(found["accessToken"]), ends)
    except (KeyError, ValueError) as error:
        raise _without_token() from error


def _from_metadata(wire: Wire) -> Token:
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    address = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
    request = Request("GET", address, "sign in", "the metadata server", {"Metadata-Flavor": "Google"})
    return _token(exchanged(wire, request, _HINT_METADATA))


def _form(address: str, form: Mapping[str, str]) -> Request:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return Request("POST", address, "sign in", "Google's identity service", headers, urlencode(form).encode())


def _googles(allowed: re.Pattern[str], address: str, name: str) -> str:
    if not allowed.fullmatch(address):
        raise ConfigError(
            f"{name} of the Google credentials is not Google's", hint="make the credentials anew"
        )
    return address


def _token(found: Mapping[str, object]) -> Token:
    try:
        return Token(str(found["access_token"]), time.time() + float(str(found["expires_in"])))
    except (KeyError, ValueError) as error:
        raise _without_token() from error


def _without_token() -> TransientError:
    return TransientError("the identity service answers without a token", operation="sign in")


def _base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")
