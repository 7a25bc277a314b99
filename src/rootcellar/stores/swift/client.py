"""Requests to one container, with a token that is renewed when Swift refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

from rootcellar.errors import StoreError, TransientError
from rootcellar.stores.swift.access import access
from rootcellar.stores.swift.errors import refusal
from rootcellar.stores.wire import Answer, Request, Stream, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.swift.options import SwiftOptions

T = TypeVar("T", Answer, Answer | Stream)


class Client:
    """What all parts of a Swift store ask through."""

    def __init__(self, options: SwiftOptions, credentials: Credentials) -> None:
        self.container = options.container
        self._wire = Wire(
            ca_file=options.ca_file, timeout=options.timeout, connect_timeout=options.connect_timeout
        )
        self._access = access(options, credentials, self._wire)

    def where(self, name: str) -> str:
        """An object as messages call it."""
        return f"swift://{self.container}/{name}"

    def ask(
        self,
        method: str,
        name: str | None,
        operation: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes | bytearray = b"",
        fine: Collection[int] = (),
    ) -> Answer:
        """The whole answer about an object, about the container (""), or the account (None).

        Raises the StoreError that a status of 300 and above means, unless it is among the `fine`.
        """

        def send(account: str, token: str) -> tuple[Request, Answer]:
            url = f"{account}{self._path(name)}{_query(query)}"
            request = Request(
                method,
                url,
                operation,
                self.where(name or ""),
                {"X-Auth-Token": token, **(headers or {})},
                body,
            )
            return request, self._wire.send(request)

        request, answer = self._with_token(send)
        if answer.status >= 300 and answer.status not in fine:
            raise refusal(request, answer)
        return answer

    def open(
        self, name: str, operation: str, *, headers: Mapping[str, str], fine: Collection[int] = ()
    ) -> Stream | Answer:
        """The object's bytes, to be read; an Answer for a status among the `fine`."""

        def send(account: str, token: str) -> tuple[Request, Answer | Stream]:
            url = f"{account}{self._path(name)}"
            request = Request("GET", url, operation, self.where(name), {"X-Auth-Token": token, **headers})
            return request, self._wire.open(request)

        request, answer = self._with_token(send)
        if isinstance(answer, Answer) and answer.status not in fine:
            raise refusal(request, answer)
        return answer

    def _with_token(self, send: Callable[[str, str], tuple[Request, T]]) -> tuple[Request, T]:
        found = self._access.current()
        request, answer = send(found.account, found.token)
        if answer.status != 401:
            return request, answer
        # Tokens can end early: revoked, or the service's keys were changed.  A fresh one that is refused too
        # is for the caller to know about.
        self._access.refused(found)
        found = self._access.current()
        return send(found.account, found.token)

    def _path(self, name: str | None) -> str:
        if name is None:
            return ""
        slash = "/" if name else ""
        return f"/{quoted(self.container)}{slash}{quoted(name)}"


def quoted(name: str) -> str:
    """A name as it stands in a path, slashes kept."""
    return quote(name.encode("utf-8", "surrogatepass"), safe="/")


def _query(query: Mapping[str, str] | None) -> str:
    return f"?{urlencode(query, quote_via=quote)}" if query else ""


def unread(error: Exception, where: str, operation: str) -> StoreError:
    """An answer's body is not what Swift says."""
    return TransientError(f"{where}: an answer that cannot be read: {error}", operation=operation)
