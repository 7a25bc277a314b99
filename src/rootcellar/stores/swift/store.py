"""A prefix of a Swift container as an object store."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NoReturn

from rootcellar.errors import NotFoundError, StoreError, UnsupportedError
from rootcellar.stores import keys
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT, Credentials
from rootcellar.stores.headers import told
from rootcellar.stores.once import Once
from rootcellar.stores.probing import FOLDER
from rootcellar.stores.protocol import Capabilities, Create, ObjectInfo, PutCondition, Retention
from rootcellar.stores.resume import resumed
from rootcellar.stores.s3.parts import cut
from rootcellar.stores.steps import Sized, check_size, compare, replaced
from rootcellar.stores.swift import leftovers, segments
from rootcellar.stores.swift.client import Client
from rootcellar.stores.swift.listing import PARALLEL, Listing, shown
from rootcellar.stores.swift.upload import MOST, STEP, Target, Upload
from rootcellar.stores.wire import Answer, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from rootcellar.stores.swift.options import SwiftOptions

_JOINED = "the store does not join segments"


class SwiftStore:
    """The store that `options` describe.

    A put of less than one part is one object; a larger one a static large object, four segments at a time.
    Swift compares nothing reliably: of creators at the same moment several are told that they have won,
    because each is compared with what was there when its request began.  So `probe` promises no condition,
    and a conditional put compares first, asks Swift to compare again where it can (`If-None-Match: *`), and
    then puts.  A large object that is replaced by a small one, without a condition, leaves its segments to
    `abort_leftovers`.
    """

    def __init__(
        self, options: SwiftOptions, credentials: Credentials = AMBIENT, *, backoff: Backoff | None = None
    ) -> None:
        self._options = options
        self._base = options.base
        self._client = Client(options, credentials)
        self._backoff = backoff or Backoff()
        self._joins: Once[bool] = Once()

    @property
    def url(self) -> str:
        return self._options.url

    def probe(self) -> Capabilities:
        """Whether segments are joined is found out, once for each SwiftStore; that no condition holds against
        a racer is known.
        """
        self._joins.get(self._joining)
        return Capabilities(conditional_create=False, conditional_replace=False)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        return Listing(self._client, self._base, self._backoff).objects(prefix, after)

    def stat(self, key: str, *, version: str | None = None) -> ObjectInfo:
        return shown(self._client, key, self._head(key, "stat", version), "stat")

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
        name = self._name(key, version)
        pinned = _Pinned(self._client, name, start, etag)
        yield from resumed(pinned.ask, start, end, Attempts(self._backoff), self._client.where(name))

    def put(self, key: str, chunks: Iterable[bytes], *, condition: PutCondition = None) -> ObjectInfo:
        keys.checked(key, prefix=self._base)
        sized = Sized(chunks)
        parts = cut(sized, self._options.part_size, step=STEP, most=MOST)
        first, last = next(parts)
        if not last and not self._joins.get(self._joining):
            message = f"{self._client.where(self._name(key))}: {_JOINED}"
            raise UnsupportedError(message, hint="have static large objects (slo) enabled", operation="put")
        old = None
        if condition is not None or not last:
            # The first bytes are taken already: whoever called cannot repeat this.
            old = Attempts(self._backoff).run(lambda: self._compared(key, condition))
        upload = self._upload(key, condition)
        if last:
            answer = upload.put(first)
            info = self._stored(key, sized.size, answer, None if answer else upload.head())
        else:
            upload.put_segments(itertools.chain([(first, last)], parts))
            info = self._stored(key, sized.size, None, upload.head())
        if old:
            self._forget(old)
        return info

    def delete(self, key: str, *, version: str | None = None) -> None:
        name = self._name(key, version)
        try:
            parts = segments.of(self._client, name, self._head(key, "delete"), "delete")
        except NotFoundError:
            return
        self._client.ask("DELETE", name, "delete", fine={404})
        self._forget(parts)

    def delete_many(self, keys: Iterable[str]) -> dict[str, StoreError]:
        rest = iter(keys)
        failed: dict[str, StoreError] = {}
        while batch := list(itertools.islice(rest, segments.BATCH)):
            failed |= self._delete_batch(batch)
        return failed

    def versions(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._unsupported("versions", prefix)

    def retention(self, key: str, *, version: str | None = None) -> Retention:
        self._unsupported("retention", key, version)

    def set_retention(self, key: str, retention: Retention, *, version: str | None = None) -> None:
        self._unsupported("retention", key, retention, version)

    def abort_leftovers(self, older_than: timedelta) -> int:
        """Segments of puts, ours and etcd-backup-restore's, that have no manifest."""
        return leftovers.remove(self._client, self._base, older_than, self._backoff)

    def _joining(self) -> bool:
        """Whether Swift makes one object of segments, rather than keep the manifest's text as the object."""
        upload = self._upload(f"{FOLDER}{secrets.token_hex(8)}", None)
        try:
            upload.put_segments(iter([(bytearray(b"probe"), True)]))
            head = upload.head()
            return head is None or segments.is_large(head)
        finally:
            with contextlib.suppress(StoreError):
                Attempts(self._backoff).run(upload.withdraw)

    def _upload(self, key: str, condition: PutCondition) -> Upload:
        target = Target(self._client, self._base, self._name(key), self._backoff)
        return Upload(target, create=isinstance(condition, Create))

    def _compared(self, key: str, condition: PutCondition) -> Sequence[str]:
        """The segments of what a put will replace.  Raises AlreadyExistsError."""
        name = self._name(key)
        try:
            head = self._head(key, "put")
        except NotFoundError:
            head = None
        compare(
            condition, None if head is None else head.headers["Etag"].strip('"'), self._client.where(name)
        )
        return [] if head is None else segments.of(self._client, name, head, "put")

    def _stored(self, key: str, size: int, answer: Answer | None, head: Answer | None) -> ObjectInfo:
        if head is not None:
            info = shown(self._client, key, head, "put")
            check_size(self._client.where(self._name(key)), info.size, size)
            return info
        if answer is None:  # stored, and replaced by another a moment after; or we may not look
            return ObjectInfo(key, size, datetime.now(UTC))
        modified = parsedate_to_datetime(answer.headers["Last-Modified"]).astimezone(UTC)
        return ObjectInfo(key, size, modified, answer.headers["Etag"].strip('"'))

    def _delete_batch(self, batch: Sequence[str]) -> dict[str, StoreError]:
        names = {self._name(key): key for key in batch}
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="rootcellar-head") as threads:
            # Each is repeated here: of a thousand some may fail each time that all are asked again.
            parts = list(
                threads.map(lambda name: Attempts(self._backoff).run(lambda: self._parts_of(name)), names)
            )
        failed = segments.remove(self._client, names, "delete")
        # Manifests first: a crash in between leaves segments that abort_leftovers finds, never an object that
        # is listed and cannot be read.
        self._forget(
            [part for name, found in zip(names, parts, strict=True) if name not in failed for part in found]
        )
        return {names[name]: error for name, error in failed.items()}

    def _parts_of(self, name: str) -> Sequence[str]:
        head = self._client.ask("HEAD", name, "delete", fine={404})
        return [] if head.status == 404 else segments.of(self._client, name, head, "delete")

    def _forget(self, parts: Sequence[str]) -> None:
        """Segments that no manifest names any more.  Where this fails, `abort_leftovers` finds them."""
        if parts:
            with contextlib.suppress(StoreError):
                Attempts(self._backoff).run(lambda: segments.remove(self._client, parts, "delete"))

    def _head(self, key: str, operation: str, version: str | None = None) -> Answer:
        name = self._name(key, version)
        head = self._client.ask("HEAD", name, operation)
        told(head, self._client.where(name), operation, "Content-Length", "Etag")
        return head

    def _name(self, key: str, version: str | None = None) -> str:
        if version is not None:
            self._unsupported("versions", version)
        return keys.whole(self._base, key)

    def _unsupported(self, what: str, *_asked: object) -> NoReturn:
        raise UnsupportedError(f"{self.url}: a Swift store has no {what}")


class _Pinned:
    """One object, asked for from any byte on.  `etag` is None until the first answer pins it."""

    def __init__(self, client: Client, name: str, start: int, etag: str | None) -> None:
        self._client = client
        self._name = name
        self._start = start
        self._etag = etag

    def ask(self, position: int, end: int | None) -> Stream | None:
        """Its bytes from `position` on; None where it has none."""
        headers: dict[str, str] = {}
        if position or end is not None:
            headers["Range"] = f"bytes={position}-{'' if end is None else end - 1}"
        if self._etag is not None:
            headers["If-Match"] = f'"{self._etag}"'
        where = self._client.where(self._name)
        answer = self._client.open(self._name, "get", headers=headers, fine={412, 416})
        if isinstance(answer, Answer):
            if answer.status == 416 and position == self._start:
                return None
            raise replaced(where)
        told(answer, where, "get", "Etag")
        etag = answer.headers["Etag"].strip('"')
        if self._etag is not None and self._etag != etag:  # also where If-Match is ignored
            answer.close()
            raise replaced(where)
        self._etag = etag
        return answer
