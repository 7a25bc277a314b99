"""A prefix of an Azure Blob container as an object store."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores import keys
from rootcellar.stores.azure import locks
from rootcellar.stores.azure.client import Client
from rootcellar.stores.azure.errors import code
from rootcellar.stores.azure.listing import in_order, moment, page
from rootcellar.stores.azure.upload import Upload
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.headers import quoted
from rootcellar.stores.once import Once
from rootcellar.stores.probing import probe
from rootcellar.stores.protocol import Capabilities, ObjectInfo, PutCondition, Retention
from rootcellar.stores.resume import resumed
from rootcellar.stores.s3.parts import cut
from rootcellar.stores.steps import Sized, check_size, compare_first, each_deleted, replaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from rootcellar.stores.azure.options import AzureOptions
    from rootcellar.stores.wire import Answer, Stream, Wire


class AzureStore:
    """The store that `options` describe.

    A put of less than one part is one Put Blob; a larger one four blocks at a time and a commit.  In memory
    are the parts in flight (at most four, at most 128 MiB once parts have grown) and the one being filled.
    """

    def __init__(
        self,
        options: AzureOptions,
        credentials: Credentials = AMBIENT,
        *,
        backoff: Backoff | None = None,
        wire: Wire | None = None,
    ) -> None:
        self._options = options
        self._base = options.base
        self._client = Client(options, credentials, wire)
        self._backoff = backoff or Backoff()
        self._capabilities: Once[Capabilities] = Once()

    @property
    def url(self) -> str:
        return self._options.url

    def probe(self) -> Capabilities:
        """Asked once for each AzureStore."""
        return self._capabilities.get(lambda: probe(self))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Azure begins a listing at its first key only: what sorts before `after` is read and left out."""
        low = after.encode()
        for info in in_order(self._listed(prefix, {})):
            if info.key.encode() > low:
                yield info

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        needs = ("Content-Length", "Last-Modified", "ETag")
        return self._info(
            key, self._client.send("HEAD", self._full(key), "stat", query=_query(version), needs=needs)
        )

    def get(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        version: str | None = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        keys.checked_range(start, end)
        full, where, pinned = self._full(key), self._options.where(key), etag

        def ask(position: int, end: int | None) -> Stream | None:
            nonlocal pinned
            headers = {} if pinned is None else {"If-Match": quoted(pinned)}
            if position or end is not None:
                headers["Range"] = f"bytes={position}-{'' if end is None else end - 1}"
            try:
                stream = self._client.open(full, _query(version), headers)
            except AlreadyExistsError as error:  # 412
                raise replaced(where) from error
            except StoreError as error:
                if code(error) != "InvalidRange":
                    raise
                if position > start:
                    raise replaced(where) from error
                return None
            found = stream.headers["ETag"]
            if pinned is not None and quoted(pinned) != found:
                stream.close()
                raise replaced(where)
            pinned = found
            return stream

        yield from resumed(ask, start, end, Attempts(self._backoff), where)

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        keys.checked(key, prefix=self._base)
        sized = Sized(chunks)
        parts = cut(sized, self._options.part_size)
        first, last = next(parts)
        if condition is not None and not last:
            # The store would only compare after all parts are there.
            compare_first(self.stat, key, condition, Attempts(self._backoff), self._options.where(key))
        upload = self._upload(key, condition)
        answer = upload.put(first) if last else upload.put_parts(itertools.chain([(first, last)], parts))
        head = None if answer and last else upload.head()
        return self._stored(key, sized.size, answer, head)

    def _stored(self, key: str, size: int, answer: Answer | None, head: Answer | None) -> ObjectInfo:
        if head is not None:
            found = self._info(key, head)
            check_size(self._options.where(key), found.size, size)
            return found
        if answer is None:  # stored, its answer lost, and replaced by another a moment after
            return ObjectInfo(key, size, datetime.now(UTC))
        return self._info(key, answer, size)

    def delete(self, key: str, *, version: str | None = None) -> None:
        try:
            self._client.send("DELETE", self._full(key), "delete", query=_query(version))
        except NotFoundError as error:
            if code(error) in {"ContainerNotFound", "ContainerBeingDeleted"}:
                raise
        except StoreError as error:
            if version is None or code(error) != "OperationNotAllowedOnRootBlob":
                raise
            # The current version is deleted in two steps.  A crash between them leaves it hidden, but there.
            self.delete(key)
            self.delete(key, version=version)

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        """One by one, several at a time: a Blob Batch would be one request, but takes no SAS of one container
        and works on no namespace with real directories.
        """
        return each_deleted(self.delete, keys)

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Azure keeps no delete markers; what was deleted has versions, and none of them is in `list`."""
        found = in_order(self._listed(prefix, {"include": "versions"}))
        for _, several in itertools.groupby(found, key=lambda info: info.key):
            for info in sorted(several, key=lambda info: info.version or "", reverse=True):
                if info.version is None:
                    raise UnsupportedError(f"{self.url}: the account keeps no versions", operation="versions")
                yield info

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return locks.read(self._client, self._full(key), version, self._options.where(key))

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        locks.write(self._client, self._full(key), version, self._options.where(key), retention)

    def abort_leftovers(self, older_than: timedelta) -> int:
        """Azure drops blocks that were never committed by itself, a week after they were sent, and has no
        request to do so earlier.
        """
        del older_than
        return 0

    # what a probe tries

    def put_once(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        upload = self._upload(key, condition)
        answer = upload.put(body)
        return self._stored(key, len(body), answer, None if answer else upload.head())

    def put_in_parts(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        upload = self._upload(key, condition)
        answer = upload.put_parts(iter([(bytearray(body), True)]))
        return self._stored(key, len(body), answer, None if answer else upload.head())

    def forget(self, key: str, version: str | None) -> None:
        Attempts(self._backoff).run(lambda: self.delete(key, version=version))

    def versioned(self, info: ObjectInfo) -> bool:
        return info.version is not None

    def locks(self) -> bool:
        return locks.container_locks(self._client)

    def _upload(self, key: str, condition: PutCondition) -> Upload:
        return Upload(self._client, f"{self._base}{key}", self._options.where(key), condition, self._backoff)

    def _listed(self, prefix: str, more: dict[str, str]) -> Iterator[ObjectInfo]:
        query = {"restype": "container", "comp": "list", "maxresults": "5000", **more}
        if self._base or prefix:
            query["prefix"] = f"{self._base}{prefix}"
        while True:
            answer = self._client.send("GET", "", "list", query=query)
            infos, marker = page(answer.body, self.url)
            for info in infos:
                if not info.key.endswith("/"):  # what consoles show for a folder
                    yield ObjectInfo(
                        info.key.removeprefix(self._base), info.size, info.modified, info.etag, info.version
                    )
            if not marker:
                return
            query["marker"] = marker

    def _info(self, key: str, answer: Answer, size: int | None = None) -> ObjectInfo:
        headers = answer.headers
        try:
            return ObjectInfo(
                key,
                int(headers["Content-Length"]) if size is None else size,
                moment(headers["Last-Modified"]),
                headers["ETag"].strip('"'),
                headers.get("x-ms-version-id"),
            )
        except ValueError as error:
            message = f"{self._options.where(key)}: an answer that cannot be read"
            raise TransientError(message, operation="stat") from error

    def _full(self, key: str) -> str:
        return keys.whole(self._base, key)


def _query(version: str | None) -> dict[str, str]:
    return {} if version is None else {"versionid": version}
