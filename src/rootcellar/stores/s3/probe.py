"""What a bucket really does with conditions, found out by trying.

Some S3-compatible servers take `If-None-Match` and overwrite all the same.  Believing them would let two
writers both win, so each condition is tried where it must fail.

A probe leaves nothing: its object is deleted, by version where there is one.  Where retention forbids that,
or the process was killed, the object stays; probes an hour later, when nobody can be about to delete it any
more, try their conditions on it instead of making another.

Only the tidying is tried again here: a condition that is repeated meets its own first attempt.  Whoever
opened the store (`RetryingStore`) asks for the whole probe again, with another key, and no byte of a put is
taken before its probe has ended.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from typing import TYPE_CHECKING, Any

from rootcellar.errors import AlreadyExistsError, NotFoundError, StoreError, TransientError, UnsupportedError
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.headers import md5
from rootcellar.stores.probing import FOLDER, OLD
from rootcellar.stores.protocol import Capabilities
from rootcellar.stores.s3 import locks
from rootcellar.stores.s3.errors import said_at, translated, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3.client import S3Client

    from rootcellar.stores.s3.options import S3Options

_ABSENT_ETAG = '"00000000000000000000000000000000"'


class Probe:
    """One probing of a bucket."""

    def __init__(self, client: S3Client, options: S3Options, backoff: Backoff) -> None:
        self._client = client
        self._backoff = backoff
        self._bucket = options.bucket
        self._folder = f"{options.base}{FOLDER}"
        self._where = options.url
        # Others that speak S3 say that they have none; OSS does not list the question among those it knows.
        self._asks_locks = options.scheme == "s3"
        encryption = options.encryption
        self._write: dict[str, Any] = encryption.for_write() if encryption else {}
        self._read: dict[str, Any] = encryption.for_read() if encryption else {}
        self._made: list[dict[str, Any]] = []

    def run(self) -> Capabilities:
        """Raises StoreError when the bucket cannot even be written to."""
        try:
            key = self._standing()
            create = key is not None and self._refuses(key, IfNoneMatch="*")
            if key is None or not create:
                key = f"{self._folder}{secrets.token_hex(8)}"
                self._put(key)
                create = self._refuses(key, IfNoneMatch="*")
            return Capabilities(
                conditional_create=create,
                conditional_replace=self._refuses(key, IfMatch=_ABSENT_ETAG),
                conditional_multipart=create and self._refuses_parts(key),
                versions=self._has_version(key),
                object_lock=self._asks_locks and locks.bucket_locks(self._client, self._bucket, self._where),
            )
        finally:
            for made in self._made:
                self._tidy(functools.partial(self._client.delete_object, Bucket=self._bucket, **made))

    def _standing(self) -> str | None:
        """The key of an object that an earlier probe could not delete."""
        with translated("probe", self._where):
            found = whole(
                self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._folder, MaxKeys=20),
                "IsTruncated",
            )
        old = said_at(found) - OLD
        for entry in found.get("Contents", []):
            if not entry["Key"].endswith("/") and entry["LastModified"] < old:  # a folder may be listed too
                return entry["Key"]
        return None

    def _tidy(self, request: Callable[[], Any]) -> None:
        def once() -> None:
            with translated("probe", self._where):
                request()

        with contextlib.suppress(StoreError):
            Attempts(self._backoff).run(once)

    def _put(self, key: str, **condition: Any) -> None:
        self._making(
            key,
            lambda: self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=b"probe",
                ContentMD5=md5(b"probe"),
                **self._write,
                **condition,
            ),
        )

    def _refuses(self, key: str, **condition: Any) -> bool:
        return _is_refused(lambda: self._put(key, **condition))

    def _refuses_parts(self, key: str) -> bool:
        name: dict[str, Any] = {"Bucket": self._bucket, "Key": key}
        with translated("probe", self._where):
            begun = whole(self._client.create_multipart_upload(**name, **self._write), "UploadId")
        name["UploadId"] = begun["UploadId"]
        try:
            with translated("probe", self._where):
                sent = whole(
                    self._client.upload_part(**name, **self._read, PartNumber=1, Body=b"probe"), "ETag"
                )
            sums = {member: value for member, value in sent.items() if member.startswith("Checksum")}
            parts: Any = {"Parts": [{"PartNumber": 1, "ETag": sent["ETag"], **sums}]}
            return _is_refused(
                lambda: self._making(
                    key,
                    lambda: self._client.complete_multipart_upload(
                        **name, **self._read, IfNoneMatch="*", MultipartUpload=parts
                    ),
                )
            )
        finally:  # where it was completed, there is nothing to abort
            self._tidy(lambda: self._client.abort_multipart_upload(**name))

    def _making(self, key: str, request: Callable[[], Any]) -> None:
        """Carry out a request that makes an object, and remember what to delete."""
        try:
            with translated("probe", self._where):
                answer = whole(request(), "ETag")
        except TransientError:
            self._made.append({"Key": key})  # perhaps
            raise
        version = answer.get("VersionId")
        self._made.append({"Key": key, "VersionId": version} if version else {"Key": key})

    def _has_version(self, key: str) -> bool:
        with translated("probe", self._where):
            answer = whole(
                self._client.head_object(Bucket=self._bucket, Key=key, **self._read), "ContentLength"
            )
        return answer.get("VersionId", "null") != "null"


def _is_refused(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except (AlreadyExistsError, NotFoundError):  # AWS misses the object that If-Match wants
        return True
    except UnsupportedError:
        return False
    return False
