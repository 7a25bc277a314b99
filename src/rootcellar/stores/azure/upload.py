"""One put: a single Put Blob, or blocks that are sent a few at a time and committed as a list.

What a crash leaves behind: before the last request (Put Blob, Put Block List) nothing that a reader sees,
only blocks that Azure drops by itself a week later; after it, the object.

A block's name has ten bytes, as etcd-backup-restore's have: Azure refuses names of different lengths under
one key, also those of a writer that died.  Six of them are random, so that two writers never commit each
other's blocks; who commits first takes the other's away, who then fails.

Every put carries a random mark in its metadata.  When a request was carried out but its answer was lost, the
repeated one fails (the object exists, the blocks are gone): the mark then tells our own object from
another's.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

from rootcellar.errors import AlreadyExistsError, DeniedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.azure.errors import code
from rootcellar.stores.flight import Flight
from rootcellar.stores.headers import md5, quoted
from rootcellar.stores.protocol import Create, PutCondition, ReplaceIf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.stores.azure.client import Client
    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.wire import Answer

MARK = "rootcellarput"
"""A name of metadata: letters only, for it must be an identifier of C#."""


class Upload:
    """One put of `key` (with the prefix); `where` names it."""

    def __init__(
        self, client: Client, key: str, where: str, condition: PutCondition, backoff: Backoff
    ) -> None:
        self._client = client
        self._key = key
        self._where = where
        self._flight = Flight(where, backoff)
        self._writer = secrets.token_bytes(6)
        self._mark = secrets.token_hex(16)
        self._condition = _headers(condition)

    def put(self, body: bytes | bytearray) -> Answer | None:
        """The whole object at once.  Returns what Azure answered; None when the answer was lost."""
        headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": md5(body)}
        return self._unless_done({}, headers, body)

    def put_parts(self, parts: Iterator[tuple[bytearray, bool]]) -> Answer | None:
        """The object in blocks.  Whatever is raised on the way, also by `parts`, leaves no object."""
        names = self._flight.send_all(parts, self._send_part)
        listed = "".join(f"<Uncommitted>{name}</Uncommitted>" for name in names)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'.encode()
        return self._unless_done({"comp": "blocklist"}, {"Content-MD5": md5(body)}, body)

    def _send_part(self, number: int, body: bytearray) -> str:
        """The name of the block."""
        name = base64.b64encode(self._writer + (number - 1).to_bytes(4, "big")).decode()
        self._flight.repeat(
            lambda: self._client.send(
                "PUT",
                self._key,
                "put",
                query={"comp": "block", "blockid": name},
                headers={"Content-MD5": md5(body)},
                body=body,
                needs=("x-ms-request-id",),
            )
        )
        return name

    def _unless_done(
        self, query: dict[str, str], headers: dict[str, str], body: bytes | bytearray
    ) -> Answer | None:
        """The request that makes the object, repeated; None if an attempt whose answer was lost turns out to
        have been carried out.
        """
        lost = False

        def once() -> Answer | None:
            nonlocal lost
            try:
                return self._client.send(
                    "PUT",
                    self._key,
                    "put",
                    query=query,
                    headers={**headers, **self._condition, f"x-ms-meta-{MARK}": self._mark},
                    body=body,
                    needs=("ETag", "Last-Modified"),
                )
            except TransientError:
                lost = True
                raise
            except StoreError as error:
                if (lost and _may_be_ours(error)) and self._head() is not None:
                    return None
                raise self._explained(error) from error

        return self._flight.attempts().run(once)

    def _explained(self, error: StoreError) -> StoreError:
        """What a refusal means for this put."""
        if (
            isinstance(error, NotFoundError)
            and "If-Match" in self._condition
            and code(error) == "BlobNotFound"
        ):
            return AlreadyExistsError(f"{self._where}: removed by another", operation="put")
        if code(error) != "InvalidBlockList":
            return error
        if self._condition:  # who takes blocks away has made an object, or removed the one we are to replace
            return AlreadyExistsError(f"{self._where}: another was faster", operation="put")
        return StoreError(
            f"{self._where}: another writer of the same key took our blocks away",
            hint="look for a second agent on this prefix",
            operation="put",
        )

    def head(self) -> Answer | None:
        """What the store says of our object; None if the key holds another by now, or we may not look."""
        return self._flight.attempts().run(self._head)

    def _head(self) -> Answer | None:
        try:
            needs = ("Content-Length", "Last-Modified", "ETag")
            head = self._client.send("HEAD", self._key, "put", needs=needs)
        except (NotFoundError, DeniedError):
            return None
        return head if head.headers.get(f"x-ms-meta-{MARK}") == self._mark else None


def _headers(condition: PutCondition) -> dict[str, str]:
    if isinstance(condition, Create):
        return {"If-None-Match": "*"}
    if isinstance(condition, ReplaceIf):
        return {"If-Match": quoted(condition.etag)}
    return {}


def _may_be_ours(error: StoreError) -> bool:
    return isinstance(error, AlreadyExistsError) or code(error) == "InvalidBlockList"
