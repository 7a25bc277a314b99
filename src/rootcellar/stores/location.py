"""What the options of every provider check and show in the same way: prefixes, addresses, URLs."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST = re.compile(r"[\w.-]+")


def check_prefix(prefix: str) -> None:
    """Raises UsageError for what is not path segments joined by single slashes."""
    if prefix != prefix.strip("/") or "//" in prefix:
        raise UsageError(f"{prefix!r} is no prefix", hint="parts joined by single slashes")


def base(prefix: str) -> str:
    """What every key below a checked prefix begins with: the prefix as whole path segments."""
    return f"{prefix}/" if prefix else ""


def check_address(address: str, what: str, hint: str) -> None:
    """Raises UsageError where no HTTP request can go, or where a credential would be shown in messages."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port  # raises, as the rest
        if ":" in host:
            ip_address(host)
    except ValueError as error:
        raise UsageError(f"{what} is no address", hint=hint) from error
    known = parts.scheme in {"http", "https"} and (":" in host or _HOST.fullmatch(host))
    if not known or parts.query or parts.fragment:
        raise UsageError(f"{what} is no address", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{what} holds a credential", hint="give credentials apart")


def check_endpoint(endpoint: str | None) -> None:
    """`check_address` for the option of that name."""
    if endpoint is not None:
        check_address(endpoint, "the endpoint", "write https://HOST or http://HOST:PORT")


def url(place: str, prefix: str, shown: Mapping[str, str | None]) -> str:
    """A store as a person writes it; `place` is scheme and container, `shown` the options that are set."""
    query = urlencode({name: value for name, value in shown.items() if value}, safe=":/")
    return f"{place}/{quote(prefix)}{'?' if query else ''}{query}"
