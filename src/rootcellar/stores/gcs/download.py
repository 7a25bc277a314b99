"""Opening one object at any byte, held to the generation that the first answer had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.errors import AlreadyExistsError, NotFoundError, StoreError, TransientError
from rootcellar.stores.gcs.errors import status
from rootcellar.stores.steps import replaced

if TYPE_CHECKING:
    from rootcellar.stores.gcs.client import Client
    from rootcellar.stores.wire import Stream


@dataclass(slots=True)
class Download:
    """What `resumed` asks.  `version` reads that generation, also where another has replaced it; `etag` only
    the current one, which must be that.
    """

    client: Client
    key: str
    where: str
    start: int
    version: str | None
    etag: str | None
    _seen: str | None = field(default=None, init=False)

    def __call__(self, position: int, end: int | None) -> Stream | None:
        headers = {}
        if position or end is not None:
            headers["Range"] = f"bytes={position}-{'' if end is None else end - 1}"
        try:
            stream = self.client.open(self.key, self._query(), headers)
        except AlreadyExistsError as error:  # 412
            raise replaced(self.where) from error
        except NotFoundError as error:
            if self._seen is None:
                raise
            raise replaced(self.where) from error
        except StoreError as error:
            if status(error) != 416:
                raise
            if position > self.start:
                raise replaced(self.where) from error
            return None
        try:
            self._check(stream)
        except StoreError:
            stream.close()
            raise
        return stream

    def _query(self) -> dict[str, str]:
        query = {}
        if self.etag is not None:
            if not self.etag.isdecimal() or self.etag == "0":  # no generation; and 0 would mean none at all
                raise replaced(self.where)
            query["ifGenerationMatch"] = self.etag
        if (generation := self.version or (None if self.etag else self._seen)) is not None:
            query["generation"] = generation
        return query

    def _check(self, stream: Stream) -> None:
        found = stream.headers.get("x-goog-generation")
        if found is None:
            raise TransientError(f"{self.where}: the answer has no generation", operation="get")
        if found != (self._seen or self.version or self.etag or found):
            raise replaced(self.where)
        self._seen = found
