"""One put: a single request for a small object, a resumable upload for a large one.

What a crash leaves behind: before the last request nothing that a reader sees, only a session that Google
drops by itself a week later; after it, the object.

A resumable upload is sent in order, while the next part is being filled.  Where a line breaks the store is
asked how far it came, and the upload goes on from there.  Every put carries a random mark in its metadata.
When a request was carried out but its answer was lost, the repeated one may be refused: the mark then tells
our own object from another's.  The store's CRC-32C is compared with ours.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import google_crc32c

from rootcellar.errors import AlreadyExistsError, DeniedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.gcs.client import RESUME
from rootcellar.stores.gcs.errors import status
from rootcellar.stores.protocol import Create, PutCondition, ReplaceIf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.stores.gcs.client import Client

MARK = "rootcellar-put"
_JSON = "application/json; charset=UTF-8"
_BYTES = "application/octet-stream"


class Upload:
    """One put of `key` (with the prefix); `where` names it."""

    def __init__(
        self, client: Client, key: str, where: str, condition: PutCondition, backoff: Backoff
    ) -> None:
        self._client = client
        self._key = key
        self._where = where
        self._backoff = backoff
        self._mark = secrets.token_hex(16)
        self._condition = _query(condition, where)
        self._lost = False

    def put(self, body: bytes | bytearray) -> dict[str, Any] | None:
        """The whole object at once.  Returns what the store says of it."""
        crc = google_crc32c.value(bytes(body))
        told = json.dumps({**self._metadata(), "crc32c": _base64(crc)}).encode()
        boundary = f"rootcellar-{self._mark}"
        whole = bytearray()
        for kind, part in ((_JSON, told), (_BYTES, body)):
            whole += f"--{boundary}\r\nContent-Type: {kind}\r\n\r\n".encode() + part + b"\r\n"
        whole += f"--{boundary}--\r\n".encode()

        def send() -> dict[str, Any]:
            return self._resource(
                self._client.ask(
                    "POST",
                    self._client.uploads,
                    "put",
                    key=self._key,
                    query={"uploadType": "multipart", **self._condition},
                    headers={"Content-Type": f"multipart/related; boundary={boundary}"},
                    body=whole,
                )
            )

        found = self._unless_done(send)
        return self._checked(found, crc)

    def put_parts(self, parts: Iterator[tuple[bytearray, bool]]) -> dict[str, Any] | None:
        """The object in parts.  Whatever is raised on the way, also by `parts`, cancels the upload."""
        session = self._begin()
        try:
            crc, position = 0, 0
            found: dict[str, Any] | None = None
            with ThreadPoolExecutor(1, thread_name_prefix="rootcellar-put") as thread:
                flying: Future[dict[str, Any] | None] | None = None
                for body, last in parts:
                    if flying is not None:
                        flying.result()
                    crc = google_crc32c.extend(crc, bytes(body))
                    flying = thread.submit(self._send_part, session, position, body, last)
                    position += len(body)
                if flying is not None:
                    found = flying.result()
            return self._checked(found, crc)
        except BaseException as error:
            self._cancel(session, error)
            raise

    def _begin(self) -> str:
        def begin() -> str:
            answer = self._client.send(
                "POST",
                self._client.uploads,
                "put",
                key=self._key,
                query={"uploadType": "resumable", **self._condition},
                headers={"Content-Type": _JSON, "X-Upload-Content-Type": _BYTES},
                body=json.dumps(self._metadata()).encode(),
            )
            location = answer.headers.get("Location")
            if not location:
                raise TransientError(f"{self._where}: the answer has no location", operation="put")
            return self._client.session(location)

        return Attempts(self._backoff).run(begin)

    def _send_part(self, session: str, start: int, body: bytearray, last: bool) -> dict[str, Any] | None:
        """Bytes from `start` on; what the store says of the object after the last.  A part may take several
        requests: the store need not keep all of one.
        """
        end = start + len(body)
        total = str(end) if last else "*"
        attempts = Attempts(self._backoff)
        position, doubtful = start, False
        while True:
            try:
                rest = bytearray() if doubtful else body[position - start :]
                found, reached = self._send_range(session, position, rest, total)
                if found is None:
                    self._check_reached(reached, start, end)
            except TransientError as error:
                attempts.failed(error)
                doubtful = self._lost = True
                continue
            except StoreError as error:
                return self._known(error)
            if found is not None or (reached == end and not last):
                return found
            if reached > position:
                attempts.progressed()
            elif not doubtful:
                attempts.failed(TransientError(f"{self._where}: the store takes no bytes", operation="put"))
            position, doubtful = reached, False

    def _send_range(
        self, session: str, position: int, body: bytearray, total: str
    ) -> tuple[dict[str, Any] | None, int]:
        """What the store says of the object, or how many bytes it has.  Without bytes this only asks."""
        span = f"{position}-{position + len(body) - 1}" if body else "*"
        answer = self._client.send(
            "PUT",
            session,
            "put",
            key=self._key,
            headers={"Content-Range": f"bytes {span}/{total}"},
            body=body,
        )
        if answer.status == RESUME:
            return None, self._reached(answer.headers.get("Range"))
        return self._resource(self._client.read(answer, "put", self._key)), 0

    def _check_reached(self, reached: int, start: int, end: int) -> None:
        if not start <= reached <= end:
            raise TransientError(f"{self._where}: the store has {reached} bytes", operation="put")

    def _reached(self, said: str | None) -> int:
        if said is None:
            return 0
        found = re.fullmatch(r"(?:bytes=)?0-(\d+)", said)
        if found is None:
            raise TransientError(f"{self._where}: an answer that cannot be read", operation="put")
        return int(found[1]) + 1

    def _cancel(self, session: str, reason: BaseException) -> None:
        def cancel() -> None:
            try:
                self._client.send("DELETE", session, "abort", key=self._key)
            except TransientError:
                raise
            except StoreError as error:
                if status(error) not in {404, 410, 499}:  # 499 is how the store confirms it
                    raise

        try:
            Attempts(self._backoff).run(cancel)
        except StoreError as error:
            reason.add_note(f"the unfinished upload was left behind, for a week at most: {error}")

    def _unless_done(self, send: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """`send`, repeated; None if an attempt whose answer was lost turns out to have been carried out, and
        replaced since.
        """

        def once() -> dict[str, Any] | None:
            try:
                return send()
            except TransientError:
                self._lost = True
                raise
            except StoreError as error:
                return self._known(error)

        return Attempts(self._backoff).run(once)

    def _known(self, error: StoreError) -> dict[str, Any]:
        """Our object, if an earlier request has made it and its answer was lost; else `error` is raised."""
        if self._lost and (isinstance(error, AlreadyExistsError) or status(error) in {404, 410}):
            found = Attempts(self._backoff).run(self._head)
            if found is not None:
                return found
        raise error

    def _head(self) -> dict[str, Any] | None:
        """What the store says of our object; None if the key holds another by now, or we may not look."""
        try:
            found = self._client.ask("GET", self._client.object(self._key), "put", key=self._key)
        except (NotFoundError, DeniedError):
            return None
        return found if (found.get("metadata") or {}).get(MARK) == self._mark else None

    def _checked(self, found: dict[str, Any] | None, crc: int) -> dict[str, Any] | None:
        """StoreError where the store holds other bytes than ours; it is made to forget them."""
        said = None if found is None else found.get("crc32c")
        if found is None or said is None or said == _base64(crc):
            return found
        error = StoreError(
            f"{self._where}: the bytes were damaged on the way", hint="put it again", operation="put"
        )
        query = {"generation": str(found["generation"])}
        try:
            self._client.send("DELETE", self._client.object(self._key), "put", key=self._key, query=query)
        except NotFoundError:
            pass  # it is gone already
        except StoreError as kept:
            error.add_note(f"the damaged object was left behind: {kept}")
        raise error

    def _resource(self, found: dict[str, Any]) -> dict[str, Any]:
        if not str(found.get("generation", "")).isdecimal():
            raise TransientError(f"{self._where}: the answer has no generation", operation="put")
        return found

    def _metadata(self) -> dict[str, Any]:
        return {"name": self._key, "contentType": _BYTES, "metadata": {MARK: self._mark}}


def _query(condition: PutCondition, where: str) -> dict[str, str]:
    if isinstance(condition, Create):
        return {"ifGenerationMatch": "0"}
    if isinstance(condition, ReplaceIf):
        if not condition.etag.isdecimal() or int(condition.etag) == 0:
            raise AlreadyExistsError(f"{where}: no object has the etag {condition.etag}", operation="put")
        return {"ifGenerationMatch": condition.etag}
    return {}


def _base64(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
