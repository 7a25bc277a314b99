"""A prefix of a Google Cloud Storage bucket as an object store.

An object's generation, which the store gives anew to each that it makes, is both its etag and its version.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rootcellar.errors import NotFoundError, StoreError, TransientError
from rootcellar.stores import keys
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.gcs import locks
from rootcellar.stores.gcs.client import Client
from rootcellar.stores.gcs.download import Download
from rootcellar.stores.gcs.upload import Upload
from rootcellar.stores.once import Once
from rootcellar.stores.probing import probe
from rootcellar.stores.protocol import Capabilities, ObjectInfo, PutCondition, Retention
from rootcellar.stores.resume import resumed
from rootcellar.stores.s3.parts import cut
from rootcellar.stores.steps import Sized, check_size, compare_first, each_deleted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from rootcellar.stores.gcs.options import GcsOptions
    from rootcellar.stores.wire import Wire

_FIELDS = "name,size,updated,timeCreated,generation"


class GcsStore:
    """The store that `options` describe.

    A put of less than one part is one request; a larger one a resumable upload, of which one part is sent
    while the next is filled: in memory are two, and a copy of the one being sent.
    """

    def __init__(
        self,
        options: GcsOptions,
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
        """Asked once for each GcsStore."""
        return self._capabilities.get(lambda: probe(self))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        low = after.encode()
        more = {"startOffset": f"{self._base}{after}"} if after else {}
        for info in self._listed(prefix, more):
            if info.key.encode() > low:  # the offset is part of what it begins
                yield info

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        query = {"fields": _FIELDS, **_query(version)}
        full = self._full(key)
        return self._info(self._client.ask("GET", self._client.object(full), "stat", key=full, query=query))

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
        full, where = self._full(key), self._options.where(key)
        ask = Download(self._client, full, where, start, version, etag)
        yield from resumed(ask, start, end, Attempts(self._backoff), where)

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        keys.checked(key, prefix=self._base)
        sized = Sized(chunks)
        parts = cut(sized, self._options.part_size)
        first, last = next(parts)
        if condition is not None and not last:
            # The store might only compare after all parts are there.
            compare_first(self.stat, key, condition, Attempts(self._backoff), self._options.where(key))
        upload = self._upload(key, condition)
        found = upload.put(first) if last else upload.put_parts(itertools.chain([(first, last)], parts))
        return self._stored(key, sized.size, found)

    def _stored(self, key: str, size: int, found: dict[str, Any] | None) -> ObjectInfo:
        if found is None:  # stored, its answer lost, and replaced by another a moment after
            return ObjectInfo(key, size, datetime.now(UTC))
        info = self._info(found)
        check_size(self._options.where(key), info.size, size)
        return info

    def delete(self, key: str, *, version: str | None = None) -> None:
        full = self._full(key)
        try:
            self._client.send("DELETE", self._client.object(full), "delete", key=full, query=_query(version))
        except NotFoundError as error:
            if "no such bucket" in error.message:
                raise

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        return each_deleted(self.delete, keys)

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Google keeps no delete markers; what was deleted has generations, and none of them is in `list`."""
        found = self._listed(prefix, {"versions": "true"})
        for _, several in itertools.groupby(found, key=lambda info: info.key):
            yield from sorted(several, key=lambda info: int(info.version or 0), reverse=True)

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return locks.read(self._client, self._full(key), version)

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        locks.write(self._client, self._full(key), version, self._options.where(key), retention)

    def abort_leftovers(self, older_than: timedelta) -> int:
        """Google drops an unfinished upload by itself, a week after it was begun, and does not list them."""
        del older_than
        return 0

    # what a probe tries

    def put_once(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        return self._stored(key, len(body), self._upload(key, condition).put(body))

    def put_in_parts(self, key: str, body: bytes, condition: PutCondition) -> ObjectInfo:
        parts = iter([(bytearray(body), True)])
        return self._stored(key, len(body), self._upload(key, condition).put_parts(parts))

    def forget(self, key: str, version: str | None) -> None:
        Attempts(self._backoff).run(lambda: self.delete(key, version=version))

    def versioned(self, info: ObjectInfo) -> bool:
        del info
        return bool((locks.told_of_bucket(self._client).get("versioning") or {}).get("enabled"))

    def locks(self) -> bool:
        told = locks.told_of_bucket(self._client).get("objectRetention") or {}
        return told.get("mode") == "Enabled"

    def _upload(self, key: str, condition: PutCondition) -> Upload:
        return Upload(self._client, f"{self._base}{key}", self._options.where(key), condition, self._backoff)

    def _listed(self, prefix: str, more: dict[str, str]) -> Iterator[ObjectInfo]:
        query = {"maxResults": "1000", "fields": f"kind,nextPageToken,items({_FIELDS})", **more}
        if self._base or prefix:
            query["prefix"] = f"{self._base}{prefix}"
        passed = b""
        while True:
            found = self._client.ask("GET", f"{self._client.bucket}/o", "list", query=query)
            if found.get("kind") != "storage#objects":
                raise TransientError(f"{self.url}: an answer that is no listing", operation="list")
            for each in found.get("items") or ():
                info = self._info(each)
                if info.key.encode() < passed:
                    message = f"{self.url}: the store does not list its keys in order"
                    raise StoreError(message, operation="list")
                passed = info.key.encode()
                if not info.key.endswith("/"):  # what consoles show for a folder
                    yield info
            if not found.get("nextPageToken"):
                return
            query["pageToken"] = found["nextPageToken"]

    def _info(self, found: dict[str, Any]) -> ObjectInfo:
        try:
            generation = str(found["generation"])
            return ObjectInfo(
                str(found["name"]).removeprefix(self._base),
                int(found["size"]),
                datetime.fromisoformat(found["updated"]).astimezone(UTC),
                generation,
                generation,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise TransientError(f"{self.url}: an answer that cannot be read", operation="stat") from error

    def _full(self, key: str) -> str:
        return keys.whole(self._base, key)


def _query(version: str | None) -> dict[str, str]:
    return {} if version is None else {"generation": version}
