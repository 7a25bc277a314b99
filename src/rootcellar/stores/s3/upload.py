"""One put: a single PutObject, or a multipart upload whose parts are sent a few at a time.

What a crash leaves behind: before the last request (PutObject, CompleteMultipartUpload) nothing that a reader
sees, but perhaps an unfinished upload that costs money until `abort_leftovers` removes it (also where an
upload was begun, the answer lost, and another one begun); after it, the object.

Every put carries a random mark in its metadata.  When a request was carried out but its answer was lost, the
repeated one fails (the object exists; the upload is gone): the mark then tells our own object from another's.
"""

from __future__ import annotations

import functools
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rootcellar.errors import AlreadyExistsError, DeniedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.flight import Flight
from rootcellar.stores.headers import md5, quoted
from rootcellar.stores.protocol import Create, PutCondition, ReplaceIf
from rootcellar.stores.s3.errors import code, translated, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_s3.client import S3Client

    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.s3.options import Encryption

T = TypeVar("T")

MARK = "rootcellar-put"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a put goes, and how."""

    client: S3Client
    bucket: str
    key: str
    where: str
    encryption: Encryption | None
    backoff: Backoff
    md5: bool
    """Whether Content-MD5 goes with the bytes, rather than what botocore sends by itself."""


class Upload:
    """One put.  `native` is whether the store carries out `condition` by itself."""

    def __init__(self, target: Target, condition: PutCondition, *, native: bool) -> None:
        self._target = target
        self._name: dict[str, Any] = {"Bucket": target.bucket, "Key": target.key}
        self._mark = secrets.token_hex(16)
        self._flight = Flight(target.where, target.backoff)
        self._condition: dict[str, Any] = {}
        if native and isinstance(condition, Create):
            self._condition = {"IfNoneMatch": "*"}
        elif native and isinstance(condition, ReplaceIf):
            self._condition = {"IfMatch": quoted(condition.etag)}

    def put(self, body: bytearray) -> Any:
        """The whole object at once.  Returns what S3 answered; None when the answer was lost."""
        client = self._target.client
        checksum = self._checksum(body)

        def send() -> Any:
            answer = client.put_object(
                **self._name,
                **self._encryption(write=True),
                **self._condition,
                **checksum,
                Body=cast("bytes", body),  # botocore takes any buffer, its stubs do not know
                Metadata={MARK: self._mark},
            )
            return whole(answer, "ETag")

        return self._unless_done(send)

    def put_parts(self, parts: Iterator[tuple[bytearray, bool]]) -> Any:
        """The object in parts.  Whatever is raised on the way, also by `parts`, aborts the upload."""
        client = self._target.client

        def begin() -> str:
            answer = client.create_multipart_upload(
                **self._name, **self._encryption(write=True), Metadata={MARK: self._mark}
            )
            return whole(answer, "UploadId")["UploadId"]

        upload = self._repeat(begin)
        try:
            done: list[Any] = self._flight.send_all(parts, functools.partial(self._send_part, upload))

            def complete() -> Any:
                answer = client.complete_multipart_upload(
                    **self._name,
                    **self._condition,
                    **self._encryption(write=False),
                    UploadId=upload,
                    MultipartUpload={"Parts": done},
                )
                return whole(answer, "ETag")

            return self._unless_done(complete)
        except BaseException as error:
            self._abort(upload, error)
            raise

    def _send_part(self, upload: str, number: int, body: bytearray) -> dict[str, Any]:
        checksum = self._checksum(body)

        def send() -> dict[str, Any]:
            answer = self._target.client.upload_part(
                **self._name,
                **self._encryption(write=False),
                UploadId=upload,
                PartNumber=number,
                **checksum,
                Body=cast("bytes", body),  # as above
            )
            sums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
            return {"PartNumber": number, "ETag": whole(answer, "ETag")["ETag"], **sums}

        return self._repeat(send)

    def _abort(self, upload: str, reason: BaseException) -> None:
        self._flight.resume()
        try:
            self._repeat(
                lambda: self._target.client.abort_multipart_upload(**self._name, UploadId=upload), "abort"
            )
        except StoreError as error:
            if code(error) != "NoSuchUpload":
                reason.add_note(f"the unfinished upload was left behind: {error}")

    def _unless_done(self, send: Callable[[], T]) -> T | None:
        """`send`, repeated; None if an attempt whose answer was lost turns out to have been carried out."""
        lost = False

        def once() -> T | None:
            nonlocal lost
            try:
                with translated("put", self._target.where):
                    return send()
            except TransientError:
                lost = True
                raise
            except StoreError as error:
                missed = "IfMatch" in self._condition and code(error) == "NoSuchKey"
                refused = missed or isinstance(error, AlreadyExistsError) or code(error) == "NoSuchUpload"
                if lost and refused and self._head() is not None:
                    return None
                if missed:
                    message = f"{self._target.where}: removed by another"
                    raise AlreadyExistsError(message, operation="put") from error
                raise

        return self._flight.attempts().run(once)

    def head(self) -> Any:
        """What the store says of our object; None if the key holds another by now, or we may not look."""
        return self._flight.attempts().run(self._head)

    def _head(self) -> Any:
        try:
            with translated("put", self._target.where):
                answer = self._target.client.head_object(**self._name, **self._encryption(write=False))
                head = whole(answer, "ContentLength", "LastModified", "ETag")
        except (NotFoundError, DeniedError):
            return None
        # Some servers answer with names in title case.
        marks = [value for name, value in head["Metadata"].items() if name.lower() == MARK]
        return head if marks == [self._mark] else None

    def _repeat(self, send: Callable[[], T], operation: str = "put") -> T:
        def once() -> T:
            with translated(operation, self._target.where):
                return send()

        return self._flight.repeat(once, operation)

    def _checksum(self, body: bytearray) -> dict[str, Any]:
        return {"ContentMD5": md5(body)} if self._target.md5 else {}

    def _encryption(self, *, write: bool) -> dict[str, Any]:
        encryption = self._target.encryption
        if encryption is None:
            return {}
        return encryption.for_write() if write else encryption.for_read()
