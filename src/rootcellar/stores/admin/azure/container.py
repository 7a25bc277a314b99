"""One container in a storage account that is there, managed through the blob service alone.

What only Azure's management knows, the period of a container's immutability above all, is UNKNOWN here.
Azure encrypts everything, and drops blocks that were never committed after a week by itself.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from rootcellar.errors import DeniedError, LockedError, NotFoundError, StoreError, TransientError
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.deletion import Entry, Page, Refusal
from rootcellar.stores.admin.parallel import each_removed
from rootcellar.stores.admin.values import UNKNOWN, Aspect, BucketState, Outcome
from rootcellar.stores.azure.client import Client
from rootcellar.stores.azure.errors import code
from rootcellar.stores.azure.listing import moment, page
from rootcellar.stores.azure.store import AzureStore
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT
from rootcellar.stores.retry import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from rootcellar.stores.admin.values import BucketWish, Change, Claim, Unknown
    from rootcellar.stores.azure.options import AzureOptions
    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.protocol import Store
    from rootcellar.stores.wire import Answer, Wire

BLOCKS_END: Final = timedelta(days=7)
_CONTAINER: Final = {"restype": "container"}
_BEING_DELETED: Final = "ContainerBeingDeleted"


class ContainerAdmin(Bucket):
    """The container that `options` name.  `period` is its immutability's, where somebody knows it: then a
    locked object can be told until when.
    """

    def __init__(
        self,
        options: AzureOptions,
        credentials: Credentials = AMBIENT,
        *,
        backoff: Backoff | None = None,
        wire: Wire | None = None,
        period: timedelta | None = None,
    ) -> None:
        super().__init__(f"azure://{options.account}/{options.container}", backoff or Backoff())
        self._client = Client(replace(options, prefix=""), credentials, wire)
        self._period = period
        self._options, self._credentials, self._wire = options, credentials, wire

    def look(self) -> BucketState | None:
        head = self._head()
        if head is None:
            return None
        return BucketState(
            self._url,
            claims=self._claims(),
            public_access_blocked="x-ms-blob-public-access" not in head.headers,
            encrypted=True,
            uploads_aborted_after=BLOCKS_END,
            unsaid={Aspect.IMMUTABILITY: "only Azure's management tells it"},
        )

    def create(self, wish: BucketWish) -> Outcome:
        """A crash after the request leaves a container, which the next call adopts.  One of this name that
        is just being deleted, which takes Azure half a minute, is waited for.
        """
        del wish  # nothing of it can be given at creation alone
        if self._is_there():
            return Outcome.ADOPTED
        attempts = Attempts(self._backoff)
        while True:
            try:
                self._client.send("PUT", "", "create bucket", query=_CONTAINER, needs=("ETag",))
            except StoreError as error:
                if code(error) == "ContainerAlreadyExists":
                    return Outcome.CREATED if attempts.failures else Outcome.ADOPTED
                if code(error) == _BEING_DELETED:
                    attempts.failed(TransientError(error.message, operation="create bucket"))
                elif isinstance(error, TransientError):
                    attempts.failed(error)
                else:
                    raise
            else:
                return Outcome.CREATED

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        del change, wish, state  # public access is the only one that is known
        self.close()

    def close(self) -> None:
        """Take public access away.  The container's stored access policies are sent again, because they are
        replaced as a whole.
        """

        def once() -> None:
            query = {**_CONTAINER, "comp": "acl"}
            kept = self._client.send("GET", "", "harden", query=query, needs=("ETag",)).body
            headers = {"Content-Type": "application/xml"}
            body = kept.removeprefix(b"\xef\xbb\xbf")
            self._client.send("PUT", "", "harden", query=query, headers=headers, body=body)

        Attempts(self._backoff).run(once)

    def _head(self) -> Answer | None:
        def once() -> Answer:
            return self._client.send("HEAD", "", "look", query=_CONTAINER, needs=("ETag",))

        try:
            return Attempts(self._backoff).run(once)
        except NotFoundError:
            return None

    def _is_there(self) -> bool:
        return self._head() is not None

    def _claims(self) -> tuple[Claim, ...] | Unknown:
        try:
            return self.claims()
        except DeniedError:
            return UNKNOWN

    def below(self, prefix: str) -> Store:
        options = replace(self._options, prefix=prefix)
        store = AzureStore(options, self._credentials, backoff=self._backoff, wire=self._wire)
        return RetryingStore(store, self._backoff)

    def _heap(self) -> _Blobs:
        return self.heap()

    def heap(self) -> _Blobs:
        """What lies in the container."""
        return _Blobs(self._client, self._url, self._period)

    def _first_parts(self) -> Iterator[str]:
        blobs = self._heap()
        token = ""
        while True:
            asked = token
            parts, token = Attempts(self._backoff).run(lambda: blobs.first_parts(asked))  # noqa: B023 - run here
            yield from parts
            if not token:
                return

    def _remove(self) -> None:
        self._client.send("DELETE", "", "delete bucket", query=_CONTAINER)


class _Blobs:
    """All blobs and their versions; their snapshots go with them."""

    def __init__(self, client: Client, where: str, period: timedelta | None) -> None:
        self._client = client
        self._where = where
        self._period = period

    def _listed(self, prefix: str, token: str, more: Mapping[str, str]) -> bytes:
        query = {**_CONTAINER, "comp": "list", **more}
        query |= {name: value for name, value in (("prefix", prefix), ("marker", token)) if value}
        return self._client.send("GET", "", "list", query=query).body

    def page(self, prefix: str, token: str) -> Page:
        body = self._listed(prefix, token, {"include": "versions", "maxresults": "1000"})
        infos, after = page(body, self._where)
        return Page([Entry(info.key, info.version) for info in infos], after)

    def first_parts(self, token: str) -> tuple[list[str], str]:
        """Azure gives no versions of folders: what only has old versions is not seen here."""
        body = self._listed("", token, {"delimiter": "/"})
        infos, after = page(body, self._where)
        folders = [found.text or "" for found in ET.fromstring(body).iterfind("Blobs/BlobPrefix/Name")]  # noqa: S314 - the store's own words
        return [*folders, *(info.key for info in infos)], after

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        return each_removed(self._remove_one, self._explained, entries)

    def _remove_one(self, entry: Entry) -> None:
        if entry.version is None:
            self._delete(entry.key)
            return
        try:
            self._delete_version(entry)
        except StoreError as error:
            if code(error) != "OperationNotAllowedOnRootBlob":
                raise
            # The current version is deleted in two steps.  A crash between them leaves it hidden, and listed.
            self._delete(entry.key)
            self._delete_version(entry)

    def _delete(self, key: str) -> None:
        self._client.send("DELETE", key, "delete", headers={"x-ms-delete-snapshots": "include"})

    def _delete_version(self, entry: Entry) -> None:
        self._client.send("DELETE", entry.key, "delete", query={"versionid": entry.version or ""})

    def _explained(self, entry: Entry, error: StoreError) -> Refusal:
        """Until when, by the blob's own policy or by its container's, which counts from its creation."""
        if not isinstance(error, LockedError) or code(error) == "BlobImmutableDueToLegalHold":
            return Refusal(error)
        query = {} if entry.version is None else {"versionid": entry.version}
        try:
            head = self._client.send("HEAD", entry.key, "delete", query=query, needs=("ETag",))
            return Refusal(error, self._until(head))
        except TransientError as unheard:
            return Refusal(unheard)
        except (StoreError, ValueError):
            return Refusal(error)

    def _until(self, head: Answer) -> datetime | None:
        if own := head.headers.get("x-ms-immutability-policy-until-date"):
            return moment(own)
        made = head.headers.get("x-ms-creation-time")
        return moment(made) + self._period if made and self._period else None

    def tidy(self, prefix: str) -> int:
        """Blocks that were never committed cannot be removed: they end by themselves."""
        del prefix
        return 0
