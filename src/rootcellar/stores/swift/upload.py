"""One put: a single object, or segments sent a few at a time and then a manifest.

What a crash leaves behind: before the last request (the object, the manifest) nothing that a reader sees, but
perhaps segments that cost money until `abort_leftovers` removes them; after it, the object, and perhaps the
segments of the one that it replaced.

Every put carries a random mark in its metadata.  When a request was carried out but its answer was lost, a
repeated create is refused: the mark then tells our own object from another's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rootcellar.errors import AlreadyExistsError, DeniedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.flight import Flight
from rootcellar.stores.headers import told
from rootcellar.stores.swift import segments
from rootcellar.stores.swift.segments import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.swift.client import Client
    from rootcellar.stores.wire import Answer

T = TypeVar("T")

STEP = 100
MOST = 1000
"""Swift's manifests name at most 1,000 segments, so these double after every 100: from 8 MiB, 500 hold 24
GiB, and all of them 799 GiB.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a put goes."""

    client: Client
    base: str
    name: str
    backoff: Backoff


class Upload:
    """One put.  With `create`, Swift is asked to spare what is there."""

    def __init__(self, target: Target, *, create: bool) -> None:
        self._target = target
        self._where = target.client.where(target.name)
        self._mark = secrets.token_hex(16)
        self._group = segments.group(target.base, target.name, self._mark)
        self._flight = Flight(self._where, target.backoff)
        self._headers = {MARK: self._mark, "Content-Type": "application/octet-stream"}
        self._label = {**segments.labelled(target.name), "Content-Type": "application/octet-stream"}
        if create:
            self._headers["If-None-Match"] = "*"
        self._begun: list[str] = []
        self._doubtful = False

    def put(self, body: bytearray) -> Answer | None:
        """The whole object at once.  Returns what Swift answered; None when the answer was lost."""
        headers = {**self._headers, "ETag": _md5(body)}

        def send() -> Answer:
            answer = self._ask(self._target.name, headers, body)
            told(answer, self._where, "put", "Etag", "Last-Modified")
            return answer

        return self._unless_done(send)

    def put_segments(self, parts: Iterator[tuple[bytearray, bool]]) -> None:
        """The object in segments.  Whatever is raised on the way, also by `parts`, removes them."""
        try:
            manifest = json.dumps(self._flight.send_all(parts, self._send)).encode()

            def join() -> Answer:
                answer = self._ask(self._target.name, self._headers, manifest, {"multipart-manifest": "put"})
                told(answer, self._where, "put", "Etag")
                return answer

            self._unless_done(join)
        except BaseException as error:
            self._clear(error)
            raise

    def head(self) -> Answer | None:
        """What the store says of our object; None if the key holds another by now, or we may not look."""
        return self._flight.attempts().run(self._head)

    def withdraw(self) -> None:
        """Remove what we have just put: the manifest first, so that no reader sees half an object."""
        self._target.client.ask("DELETE", self._target.name, "put", fine={404})
        segments.remove(self._target.client, self._begun, "put")

    def _send(self, number: int, body: bytearray) -> dict[str, Any]:
        name = f"{self._group}{number:08d}"
        etag = _md5(body)
        self._begun.append(name)

        def send() -> Answer:
            answer = self._ask(name, {**self._label, "ETag": etag}, body)
            told(answer, self._where, "put", "Etag")
            return answer

        self._flight.repeat(send)
        return {"path": f"/{self._target.client.container}/{name}", "etag": etag, "size_bytes": len(body)}

    def _clear(self, reason: BaseException) -> None:
        """Remove the segments of a put that failed.

        Not when nobody knows whether the manifest is there, or still on its way: then they may be part of an
        object, and `abort_leftovers` finds out later.
        """
        if self._doubtful:
            reason.add_note("the segments are left to abort_leftovers: the manifest may yet appear")
            return
        self._flight.resume()
        try:
            failed = self._flight.repeat(lambda: segments.remove(self._target.client, self._begun, "abort"))
            if failed:
                raise next(iter(failed.values()))
        except StoreError as error:
            reason.add_note(f"segments were left behind: {error}")

    def _unless_done(self, send: Callable[[], T]) -> T | None:
        """`send`, repeated; None if an attempt whose answer was lost turns out to have been carried out."""

        def once() -> T | None:
            try:
                answer = send()
            except TransientError:
                self._doubtful = True
                raise
            except AlreadyExistsError:
                if self._doubtful and self._head() is not None:
                    return None
                raise
            return answer

        try:
            return self._flight.attempts().run(once)
        except TransientError:
            with contextlib.suppress(StoreError):
                if self._head() is not None:
                    return None
            raise

    def _head(self) -> Answer | None:
        try:
            head = self._target.client.ask("HEAD", self._target.name, "put")
        except (NotFoundError, DeniedError):
            return None
        return head if head.headers.get(MARK) == self._mark else None

    def _ask(
        self, name: str, headers: dict[str, str], body: bytes | bytearray, query: dict[str, str] | None = None
    ) -> Answer:
        try:
            return self._target.client.ask("PUT", name, "put", headers=headers, body=body, query=query)
        except NotFoundError as error:
            message = f"{self._where}: no such container"
            raise NotFoundError(message, hint="create it, or look at its name", operation="put") from error


def _md5(body: bytearray) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
