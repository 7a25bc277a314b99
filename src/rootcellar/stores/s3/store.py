"""A prefix of an S3 bucket as an object store."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rootcellar.errors import (
    DeniedError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
)
from rootcellar.stores import keys
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.once import Once
from rootcellar.stores.protocol import Capabilities, Create, ObjectInfo, PutCondition, Retention
from rootcellar.stores.s3 import locks
from rootcellar.stores.s3.client import ClientSource
from rootcellar.stores.s3.download import Download
from rootcellar.stores.s3.errors import code, from_answer, said_at, translated, whole
from rootcellar.stores.s3.listing import Page, walk
from rootcellar.stores.s3.parts import cut
from rootcellar.stores.s3.probe import Probe
from rootcellar.stores.s3.upload import Target, Upload
from rootcellar.stores.steps import Sized, check_size, compare_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rootcellar.stores.s3.options import S3Options

BATCH = 1000
"""Keys that one DeleteObjects takes."""


class S3Store:
    """The store that `options` describe.

    A put of less than one part is one PutObject; a larger one a multipart upload, four parts at a time.  In
    memory are the parts in flight (at most four, at most 128 MiB once parts have grown) and the one being
    filled. Where the store ignores conditions (`probe`, asked once before the first conditional put), a
    conditional put compares first and then puts: two writers at the same moment may then both believe that
    they have won.
    """

    def __init__(
        self, options: S3Options, credentials: Credentials = AMBIENT, *, backoff: Backoff | None = None
    ) -> None:
        self._options = options
        self._base = options.base
        self._client = ClientSource(options, credentials)
        self._backoff = backoff or Backoff()
        self._capabilities: Once[Capabilities] = Once()
        self._read: dict[str, Any] = options.encryption.for_read() if options.encryption else {}

    @property
    def url(self) -> str:
        return self._options.url

    def probe(self) -> Capabilities:
        """Asked once for each S3Store."""
        return self._capabilities.get(lambda: Probe(self._client(), self._options, self._backoff).run())

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        for key, found in walk(self._pages, f"{self._base}{prefix}", f"{self._base}{after}"):
            if not key.endswith("/"):  # what consoles, and servers that have directories, show for a folder
                yield self._listed(found)

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        with translated("stat", self._where(key)):
            answer = whole(
                self._client().head_object(**self._name(key, version), **self._read),
                "ContentLength",
                "LastModified",
                "ETag",
            )
        return ObjectInfo(key, answer["ContentLength"], _utc(answer["LastModified"]), *_etag_version(answer))

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
        arguments = {**self._name(key, version), **self._read}
        download = Download(self._client(), arguments, self._where(key), start, end, etag)
        yield from download.read(Attempts(self._backoff))

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        keys.checked(key, prefix=self._base)
        native = self._compares(condition)
        sized = Sized(chunks)
        parts = cut(sized, self._options.part_size)
        first, last = next(parts)
        if condition is not None and not (native and last):
            # Also where the store compares by itself: it would do so only after all parts are there.
            compare_first(self.stat, key, condition, Attempts(self._backoff), self._where(key))
        native = native and (last or self.probe().conditional_multipart)
        upload = Upload(self._target(key), condition, native=native)
        if last:
            answer = upload.put(first)
            head = None if answer else upload.head()
        else:
            answer = upload.put_parts(itertools.chain([(first, last)], parts))
            # Some servers tell another etag when the parts are put together than later, and this is the only
            # chance to see that all of them are there.
            head = upload.head()
        return self._stored(key, sized.size, answer, head)

    def _target(self, key: str) -> Target:
        return Target(
            self._client(),
            self._options.bucket,
            f"{self._base}{key}",
            self._where(key),
            self._options.encryption,
            self._backoff,
            md5=self._options.request_checksums == "when_required",
        )

    def _stored(self, key: str, size: int, answer: Any, head: Any) -> ObjectInfo:
        if head is not None:
            check_size(self._where(key), head["ContentLength"], size)
            return ObjectInfo(key, size, _utc(head["LastModified"]), *_etag_version(head))
        if answer is None:  # stored, its answer lost, and replaced by another a moment after
            return ObjectInfo(key, size, datetime.now(UTC))
        return ObjectInfo(key, size, said_at(answer), *_etag_version(answer))

    def delete(self, key: str, *, version: str | None = None) -> None:
        name = self._name(key, version)
        try:
            with translated("delete", self._where(key)):
                self._client().delete_object(**name)
        except NotFoundError as error:
            if code(error) == "NoSuchBucket":
                raise
        except DeniedError as error:
            raise locks.explained(error, self._client(), name, self._where(key)) from error

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        rest = iter(keys)
        failed: dict[str, StoreError] = {}
        while batch := list(itertools.islice(rest, BATCH)):
            try:
                failed |= self._delete_batch(batch)
            except UnsupportedError:  # not all S3-compatible servers have DeleteObjects
                failed |= self._delete_singly(batch)
        return failed

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for key, info in walk(self._version_pages, f"{self._base}{prefix}"):
            if not key.endswith("/"):
                yield info

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        return locks.read(self._client(), self._name(key, version), self._where(key))

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        locks.write(self._client(), self._name(key, version), self._where(key), retention)

    def abort_leftovers(self, older_than: timedelta) -> int:
        """Multipart uploads begun more than `older_than` ago, by the store's clock.  None where the store
        does not list them: there, a lifecycle rule of the bucket has to.
        """
        aborted = 0
        marker: dict[str, Any] = {}
        while True:
            try:
                with translated("abort leftovers", self.url):
                    answer: Any = whole(
                        self._client().list_multipart_uploads(
                            Bucket=self._options.bucket, Prefix=self._base, **marker
                        ),
                        "Bucket",
                    )
            except StoreError as error:
                # The first is some servers' way to say that there are none.
                if code(error) == "NoSuchUpload" or isinstance(error, UnsupportedError):
                    return aborted
                raise
            newest = said_at(answer) + timedelta(seconds=1) - older_than  # that clock counts whole seconds
            for upload in answer.get("Uploads", []):
                if upload["Initiated"] <= newest:
                    aborted += self._abort(upload["Key"], upload["UploadId"])
            if not answer.get("IsTruncated"):
                return aborted
            marker = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }

    def _abort(self, key: str, upload: str) -> bool:
        try:
            with translated("abort leftovers", self.url):
                self._client().abort_multipart_upload(Bucket=self._options.bucket, Key=key, UploadId=upload)
        except StoreError as error:
            if code(error) != "NoSuchUpload":
                raise
            return False
        return True

    def _compares(self, condition: PutCondition) -> bool:
        """Whether the store carries out this condition on a small object."""
        if condition is None:
            return False
        found = self.probe()
        return found.conditional_create if isinstance(condition, Create) else found.conditional_replace

    def _delete_batch(self, batch: Sequence[str]) -> dict[str, StoreError]:
        # XML cannot carry control characters; others may have written such keys, and they must be removable.
        odd = [key for key in batch if not key.isprintable()]
        plain = [key for key in batch if key.isprintable()]
        failed = self._delete_singly(odd)
        if plain:
            objects: Any = [{"Key": f"{self._base}{key}"} for key in plain]
            with translated("delete", self.url):
                answer = self._client().delete_objects(
                    Bucket=self._options.bucket, Delete={"Objects": objects}
                )
            errors = {error["Key"]: error for error in answer.get("Errors", [])}
            done = {deleted["Key"] for deleted in answer.get("Deleted", [])}
            for key in plain:
                full, where = f"{self._base}{key}", self._where(key)
                if full in errors and errors[full]["Code"] not in {"NoSuchKey", "NoSuchVersion"}:
                    failed[key] = from_answer(errors[full], "delete", where)
                elif full not in errors and full not in done:
                    failed[key] = TransientError(f"{where}: not confirmed", operation="delete")
        return failed

    def _delete_singly(self, batch: Sequence[str]) -> dict[str, StoreError]:
        failed = {}
        for key in batch:
            try:
                self.delete(key)
            except TransientError:
                raise
            except StoreError as error:
                failed[key] = error
        return failed

    def _pages(self, prefix: str, after: str) -> Iterator[Page[Any]]:
        more: dict[str, Any] = {"StartAfter": after} if after else {}
        while True:
            with translated("list", self.url):
                answer = whole(
                    self._client().list_objects_v2(
                        Bucket=self._options.bucket, Prefix=prefix, Delimiter="/", **more
                    ),
                    "IsTruncated",
                )
            yield Page(
                [(found["Key"], found) for found in answer.get("Contents", [])],
                [found["Prefix"] for found in answer.get("CommonPrefixes", [])],
            )
            if not answer["IsTruncated"]:
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _version_pages(self, prefix: str, _: str) -> Iterator[Page[ObjectInfo]]:
        more: dict[str, Any] = {}
        while True:
            with translated("versions", self.url):
                answer: Any = whole(
                    self._client().list_object_versions(
                        Bucket=self._options.bucket, Prefix=prefix, Delimiter="/", **more
                    ),
                    "IsTruncated",
                )
            found = [(entry, False) for entry in answer.get("Versions", [])]
            found += [(entry, True) for entry in answer.get("DeleteMarkers", [])]
            # Versions and markers come apart; the newest of a key says so itself, for the rest we have times
            # of one second.
            found.sort(key=lambda each: (each[0]["IsLatest"], each[0]["LastModified"]), reverse=True)
            yield Page(
                [(entry["Key"], self._version(entry, is_marker)) for entry, is_marker in found],
                [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])],
            )
            if not answer["IsTruncated"]:
                return
            more = {"KeyMarker": answer["NextKeyMarker"]}
            if answer.get("NextVersionIdMarker"):
                more["VersionIdMarker"] = answer["NextVersionIdMarker"]

    def _listed(self, found: Any) -> ObjectInfo:
        key = found["Key"].removeprefix(self._base)
        return ObjectInfo(key, found["Size"], _utc(found["LastModified"]), found["ETag"].strip('"'))

    def _version(self, found: Any, is_marker: bool) -> ObjectInfo:
        return ObjectInfo(
            found["Key"].removeprefix(self._base),
            found.get("Size", 0),
            _utc(found["LastModified"]),
            None if is_marker else found["ETag"].strip('"'),
            found["VersionId"],
            is_delete_marker=is_marker,
        )

    def _name(self, key: str, version: str | None) -> dict[str, Any]:
        name = {"Bucket": self._options.bucket, "Key": keys.whole(self._base, key)}
        return name if version is None else {**name, "VersionId": version}

    def _where(self, key: str) -> str:
        return f"{self._options.scheme}://{self._options.bucket}/{self._base}{key}"


def _etag_version(answer: Any) -> tuple[str | None, str | None]:
    return answer.get("ETag", "").strip('"') or None, answer.get("VersionId")


def _utc(when: datetime) -> datetime:
    return when.astimezone(UTC)
