"""One Swift container, managed.

Containers are an account's own: no name is somebody else's.  Of all that can be asked for, Swift knows only
who may read without a token.  Listings lag behind on servers of several nodes, so a container may refuse to
be deleted for a while after the last object went.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rootcellar.errors import NotFoundError, TransientError
from rootcellar.stores.admin.common import Bucket
from rootcellar.stores.admin.deletion import BATCH, Entry, Page, Refusal
from rootcellar.stores.admin.values import BucketState, Outcome
from rootcellar.stores.backoff import Attempts, Backoff
from rootcellar.stores.credentials import AMBIENT
from rootcellar.stores.headers import told
from rootcellar.stores.retry import RetryingStore
from rootcellar.stores.swift import segments
from rootcellar.stores.swift.client import Client, unread
from rootcellar.stores.swift.store import SwiftStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rootcellar.stores.admin.values import BucketWish, Change
    from rootcellar.stores.credentials import Credentials
    from rootcellar.stores.protocol import Store
    from rootcellar.stores.swift.options import SwiftOptions
    from rootcellar.stores.wire import Answer

_READERS: Final = "X-Container-Read"


class SwiftAdmin(Bucket):
    """The container that `options` name."""

    def __init__(
        self, options: SwiftOptions, credentials: Credentials = AMBIENT, *, backoff: Backoff | None = None
    ) -> None:
        super().__init__(f"swift://{options.container}", backoff or Backoff())
        self._client = Client(replace(options, prefix=""), credentials)
        self._options, self._credentials = options, credentials

    def look(self) -> BucketState | None:
        head = self._head()
        if head is None:
            return None
        public = any(_is_public(each) for each in _readers(head))
        return BucketState(self._url, claims=self.claims(), public_access_blocked=not public)

    def create(self, wish: BucketWish) -> Outcome:
        """Swift answers alike to a repeated request, with another status.  A crash leaves a container, which
        the next call adopts.
        """
        del wish  # nothing of it can be given at creation alone
        if self._is_there():
            return Outcome.ADOPTED
        attempts = Attempts(self._backoff)
        answer = attempts.run(lambda: self._client.ask("PUT", "", "create bucket"))
        return Outcome.CREATED if answer.status == 201 or attempts.failures else Outcome.ADOPTED

    def _change(self, change: Change, wish: BucketWish, state: BucketState) -> None:
        """Others whom somebody lets read stay."""
        del change, wish, state  # public access is the only one that is known
        head = self._head()
        if head is not None:
            kept = ",".join(each for each in _readers(head) if not _is_public(each))
            name = _READERS if kept else "X-Remove-Container-Read"
            headers = {name: kept or "x"}
            Attempts(self._backoff).run(lambda: self._client.ask("POST", "", "harden", headers=headers))

    def _head(self) -> Answer | None:
        answer = Attempts(self._backoff).run(lambda: self._client.ask("HEAD", "", "look", fine={404}))
        return None if answer.status == 404 else answer

    def _is_there(self) -> bool:
        return self._head() is not None

    def below(self, prefix: str) -> Store:
        options = replace(self._options, prefix=prefix)
        return RetryingStore(SwiftStore(options, self._credentials, backoff=self._backoff), self._backoff)

    def _heap(self) -> _Names:
        return _Names(self._client)

    def _first_parts(self) -> Iterator[str]:
        names = self._heap()
        token = ""
        while True:
            asked = token
            page = Attempts(self._backoff).run(lambda: names.listed("", asked, delimiter="/"))  # noqa: B023 - run here
            found = [str(entry.get("subdir") or entry["name"]) for entry in page]
            yield from found
            if not found:
                return
            token = found[-1]

    def _remove(self) -> None:
        answer = self._client.ask("DELETE", "", "delete bucket", fine={409})
        if answer.status == 409:
            raise TransientError(
                f"{self._url}: the container is not empty yet, by what its server knows of it",
                hint="listings lag behind; if it stays so, look for another writer",
                operation="delete bucket",
            )


class _Names:
    """All names, also of segments, which a store hides."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def listed(self, prefix: str, token: str, *, delimiter: str = "") -> list[Any]:
        query = {"format": "json", "limit": str(BATCH), "prefix": prefix, "marker": token}
        if delimiter:
            query["delimiter"] = delimiter
        answer = self._client.ask("GET", "", "list", query=query)
        if answer.status == 204:
            return []
        where = self._client.where(prefix)
        told(answer, where, "list", "Content-Length")
        try:
            found = json.loads(answer.body)
        except ValueError as error:
            raise unread(error, where, "list") from error
        if not isinstance(found, list):
            raise unread(TypeError("no list"), where, "list")
        return found

    def page(self, prefix: str, token: str) -> Page:
        entries = [Entry(str(each["name"])) for each in self.listed(prefix, token)]
        return Page(entries, entries[-1].key if entries else "")

    def remove(self, entries: Sequence[Entry]) -> Mapping[Entry, Refusal]:
        failed = segments.remove(self._client, [entry.key for entry in entries], "delete")
        return {
            Entry(name): Refusal(error)
            for name, error in failed.items()
            if not isinstance(error, NotFoundError)
        }

    def tidy(self, prefix: str) -> int:
        """An unfinished upload is segments, which are names as all others."""
        del prefix
        return 0


def _readers(head: Answer) -> list[str]:
    return [each.strip() for each in head.headers.get(_READERS, "").split(",") if each.strip()]


def _is_public(reader: str) -> bool:
    """A rule about referrers, which anybody can claim to be, or listings for those."""
    return reader.startswith((".r:", ".rlistings", ".referrer", ".ref:"))
