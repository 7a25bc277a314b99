"""Requests to one container: built, signed, sent, and refused as our errors."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from rootcellar.errors import DeniedError, TransientError
from rootcellar.stores.azure.errors import refusal
from rootcellar.stores.azure.identity import IdentitySigner
from rootcellar.stores.azure.signing import KeySigner, Signer, dated
from rootcellar.stores.headers import told
from rootcellar.stores.once import Once
from rootcellar.stores.wire import Answer, Request, Stream, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.stores.azure.options import AzureOptions
    from rootcellar.stores.credentials import Credentials


class Client:
    """Speaks to the container of `options`.  Keys are whole here: with the prefix."""

    def __init__(self, options: AzureOptions, credentials: Credentials, wire: Wire | None = None) -> None:
        self._options = options
        self._credentials = credentials
        self._wire = wire or Wire(
            ca_file=options.ca_file, timeout=options.timeout, connect_timeout=options.connect_timeout
        )
        self._signer: Once[Signer] = Once()

    def send(
        self,
        method: str,
        key: str,
        operation: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | bytearray = b"",
        needs: tuple[str, ...] = (),
    ) -> Answer:
        """A success that has the headers it `needs`.  Raises StoreError."""
        request = self._request(method, key, operation, query or {}, headers or {}, body)
        answer = self._wire.send(request)
        if answer.status >= 300:
            raise refusal(request, answer)
        told(answer, request.where, operation, *needs)
        return answer

    def open(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Stream:
        """A get whose body is to be read, and closed.  Raises StoreError."""
        request = self._request("GET", key, "get", query, headers, b"")
        stream = self._wire.open(request)
        if isinstance(stream, Answer):
            raise refusal(request, stream)
        try:
            told(stream, request.where, "get", "ETag")
        except TransientError:
            stream.close()
            raise
        return stream

    def _request(
        self,
        method: str,
        key: str,
        operation: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | bytearray,
    ) -> Request:
        options = self._options
        where = f"azure://{options.account}/{options.container}/{key}"
        url = options.address + (f"/{quote(key, safe='/~')}" if key else "")
        if query:
            url += f"?{urlencode(query, quote_via=quote)}"
        sent = dated(headers)
        signer = self._signer.get(self._sign_with)
        try:
            sent |= signer.headers(method, url, sent, len(body))
        except DeniedError as error:
            raise DeniedError(f"{where}: {error.message}", hint=error.hint, operation=operation) from error
        if own := signer.query():
            url += f"{'&' if query else '?'}{own}"
        return Request(method, url, operation, where, sent, body)

    def _sign_with(self) -> Signer:
        values = self._credentials.load()
        if values.get("storageKey") or values.get("sasToken"):
            return KeySigner(self._options.account, self._credentials)
        return IdentitySigner()
