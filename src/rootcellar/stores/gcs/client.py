"""Requests of the JSON API for one bucket: built, authorized, sent, and refused as our errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from rootcellar.errors import DeniedError, TransientError
from rootcellar.stores.gcs.errors import refusal
from rootcellar.stores.gcs.identity import tokens
from rootcellar.stores.meaning import SOMEBODY
from rootcellar.stores.once import Once
from rootcellar.stores.wire import Answer, Request, Stream, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.gcs.options import GcsOptions
    from rootcellar.stores.identity import Token
    from rootcellar.stores.rotation import Rotating

RESUME = 308
"""The status of a resumable upload that wants more."""


class Client:
    """Speaks to the bucket of `options`.  Keys are whole here: with the prefix."""

    def __init__(self, options: GcsOptions, credentials: Credentials, wire: Wire | None = None) -> None:
        self._options = options
        self._wire = wire or Wire(
            ca_file=options.ca_file, timeout=options.timeout, connect_timeout=options.connect_timeout
        )
        bucket = quote(options.bucket, safe="")
        self.bucket = f"{options.service}/storage/v1/b/{bucket}"
        self.uploads = f"{options.service}/upload/storage/v1/b/{bucket}/o"
        self._credentials = credentials
        self._tokens: Once[Rotating[Token]] = Once()

    def object(self, key: str) -> str:
        """Its address."""
        return f"{self.bucket}/o/{quote(key, safe='')}"

    def send(
        self,
        method: str,
        address: str,
        operation: str,
        *,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray = b"",
    ) -> Answer:
        """A success, or the `RESUME` of an upload.  Raises StoreError."""
        request = self._request(method, address, operation, key, query or {}, headers or {}, body)
        answer = self._wire.send(request)
        if answer.status >= 300 and answer.status != RESUME:
            raise refusal(request, answer)
        return answer

    def ask(
        self,
        method: str,
        address: str,
        operation: str,
        *,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray = b"",
    ) -> dict[str, Any]:
        """As `send`, with the JSON object that was answered."""
        answer = self.send(method, address, operation, key=key, query=query, headers=headers, body=body)
        return self.read(answer, operation, key)

    def read(self, answer: Answer, operation: str, key: str = "") -> dict[str, Any]:
        """The JSON object of a success.  TransientError for anything else: a connection may break between the
        first line of an answer and its body, and nothing below us notices.
        """
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise TransientError(
                f"{self._where(key)}: an answer that cannot be read",
                hint=SOMEBODY,
                operation=operation,
            )
        return found

    def open(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Stream:
        """A get whose body is to be read, and closed.  Raises StoreError."""
        # Whoever asks for gzip is given what is stored, also where it is marked as gzip.
        asked = {"Accept-Encoding": "gzip", **headers}
        request = self._request("GET", self.object(key), "get", key, {"alt": "media", **query}, asked, b"")
        stream = self._wire.open(request)
        if isinstance(stream, Answer):
            raise refusal(request, stream)
        return stream

    def session(self, location: str) -> str:
        """The address of an upload that the store has begun: its path and query, at the service we speak to,
        for a token must not follow a foreign host.
        """
        parts, service = urlsplit(location), urlsplit(self._options.service)
        return f"{service.scheme}://{service.netloc}{parts.path}?{parts.query}"

    def _request(
        self,
        method: str,
        address: str,
        operation: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | bytearray,
    ) -> Request:
        url = address
        if query:
            url += f"{'&' if '?' in url else '?'}{urlencode(query, quote_via=quote)}"
        try:
            sent = {**headers, **self._authorization()}
        except DeniedError as error:
            raise DeniedError(
                f"{self._where(key)}: {error.message}", hint=error.hint, operation=operation
            ) from error
        return Request(method, url, operation, self._where(key), sent, body)

    def _authorization(self) -> dict[str, str]:
        if urlsplit(self._options.service).scheme != "https":
            return {}
        rotating = self._tokens.get(lambda: tokens(self._credentials))
        return {"Authorization": f"Bearer {rotating.current().text}"}

    def _where(self, key: str) -> str:
        return f"gs://{self._options.bucket}/{key}"
