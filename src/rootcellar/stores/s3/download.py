"""One get: a stream that survives broken connections, and is of one object only.

The first answer's etag pins the object.  When the stream breaks, the rest is asked for from the byte reached,
with If-Match on that etag; and because some servers ignore If-Match, each answer's own etag is compared too.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rootcellar.errors import AlreadyExistsError, StoreError, TransientError
from rootcellar.stores.headers import quoted
from rootcellar.stores.s3.errors import code, translated, whole
from rootcellar.stores.steps import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

    from rootcellar.stores.backoff import Attempts

CHUNK = 1 << 18
"""What is lost at most when a connection breaks."""


@dataclass(slots=True)
class Download:
    """Bytes [start, end) of one object.  `arguments` name it; `etag` is None until the first answer pins
    it.
    """

    client: S3Client
    arguments: dict[str, Any]
    where: str
    start: int
    end: int | None
    etag: str | None

    def read(self, attempts: Attempts) -> Iterator[bytes]:
        """A break before the first byte is raised (whoever asks can ask again), a later one is mended."""
        position = self.start
        while self.end is None or position < self.end:
            try:
                for chunk in self._stream(position):
                    position += len(chunk)
                    attempts.progressed()
                    yield chunk
            except TransientError as error:
                if position == self.start:
                    raise
                attempts.failed(error)
            else:
                return

    def _stream(self, position: int) -> Iterator[bytes]:
        answer = self._ask(position)
        if answer is None:
            return
        with contextlib.closing(answer["Body"]) as body:
            etag = answer["ETag"]
            if self.etag is not None and quoted(self.etag) != etag:
                raise replaced(self.where)
            self.etag = etag
            skip = 0 if "ContentRange" in answer else position  # a server without ranges sends it all
            ends = position - skip + answer["ContentLength"]
            self.end = ends if self.end is None else min(ends, self.end)
            left = self.end - position
            while left > 0:
                with translated("get", self.where):
                    chunk = body.read(min(CHUNK, skip or left))
                if not chunk:
                    raise TransientError(f"{self.where}: cut short, {left} bytes missing", operation="get")
                if skip:
                    skip -= len(chunk)
                else:
                    left -= len(chunk)
                    yield chunk
            with translated("get", self.where):
                body.read(1)  # the end, where botocore compares its checksum

    def _ask(self, position: int) -> Any:
        """S3's answer, or None where the object has no bytes from `position` on."""
        arguments = dict(self.arguments)
        if position or self.end is not None:
            last = "" if self.end is None else self.end - 1
            arguments["Range"] = f"bytes={position}-{last}"
        if self.etag is not None:
            arguments["IfMatch"] = quoted(self.etag)
        try:
            with translated("get", self.where):
                return whole(self.client.get_object(**arguments), "ContentLength", "ETag")
        except AlreadyExistsError as error:  # 412
            raise replaced(self.where) from error
        except StoreError as error:
            if code(error) != "InvalidRange":
                raise
            if position > self.start:
                raise replaced(self.where) from error
            return None
