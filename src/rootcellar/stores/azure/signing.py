"""What makes a request ours: the shared key's signature, a SAS, or a token.

The shared key signs the canonical form that "Authorize with Shared Key" of the REST API describes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from rootcellar.errors import ConfigError
from rootcellar.stores.rotation import Rotating

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.credentials import Credentials

VERSION = "2021-12-02"

_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class Signer(Protocol):
    """Adds to a request what lets it in."""

    def query(self) -> str:
        """What is appended to the URL's query, or ""."""
        ...

    def headers(self, method: str, url: str, headers: Mapping[str, str], length: int) -> dict[str, str]:
        """What is added to the headers."""
        ...


def dated(headers: Mapping[str, str]) -> dict[str, str]:
    """`headers` with what every request needs."""
    now = format_datetime(datetime.now(UTC), usegmt=True)
    return {"x-ms-version": VERSION, "x-ms-date": now, **headers}


def shared_key(
    account: str, key: bytes, method: str, url: str, headers: Mapping[str, str], length: int
) -> str:
    """The Authorization header."""
    lower = {name.lower(): value for name, value in headers.items()}
    if length:
        lower["content-length"] = str(length)
    own = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith("x-ms-"))
    parts = urlsplit(url)
    query = sorted((name.lower(), value) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    resource = f"/{account}{parts.path}" + "".join(f"\n{name}:{value}" for name, value in query)
    text = "\n".join([method, *(lower.get(name, "") for name in _SIGNED)]) + f"\n{own}{resource}"
    signature = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()
    return f"SharedKey {account}:{signature}"


class KeySigner:
    """A storage key or a SAS, read again when its files have changed."""

    def __init__(self, account: str, source: Credentials) -> None:
        self._account = account
        self._secrets = Rotating(source, _key_or_sas)
        self._secrets.current()  # what is wrong with them from the start is told at once

    def query(self) -> str:
        return self._secrets.current()[1]

    def headers(self, method: str, url: str, headers: Mapping[str, str], length: int) -> dict[str, str]:
        key, _ = self._secrets.current()
        if key is None:
            return {}
        return {"Authorization": shared_key(self._account, key, method, url, headers, length)}


def _key_or_sas(values: Mapping[str, str]) -> tuple[bytes | None, str]:
    if key := values.get("storageKey"):
        return _decoded(key), ""
    if sas := values.get("sasToken", "").lstrip("?"):
        return None, sas
    raise ConfigError("the credentials lack storageKey or sasToken")


def _decoded(key: str) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(
            "the storage key is no base64", hint="copy it again from the account's access keys"
        ) from error
