"""Listings as others see the store: whole objects, in order, with their sizes.

Hidden are our segments and those of etcd-backup-restore's dynamic large objects, whose manifests Swift lists
with no bytes: their size is asked for, one request each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from rootcellar.errors import UnsupportedError
from rootcellar.stores.backoff import Attempts
from rootcellar.stores.headers import told
from rootcellar.stores.protocol import ObjectInfo
from rootcellar.stores.swift.client import unread
from rootcellar.stores.swift.segments import DYNAMIC, GROUP, dynamic, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.swift.client import Client
    from rootcellar.stores.wire import Answer

PARALLEL = 8
_LAST = "\U0010ffff"


class Listing:
    """One listing of the names below `base`."""

    def __init__(self, client: Client, base: str, backoff: Backoff) -> None:
        self._client = client
        self._base = base
        self._backoff = backoff
        self._heads: dict[str, Answer | None] = {}

    def objects(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """By key.  Raises UnsupportedError where the server has another order."""
        client, base = self._client, self._base
        pages = entries(client, f"{base}{prefix}", f"{base}{after}" if after else "", "list")
        before = b""
        jump: str | None = None
        while True:
            try:
                page, _ = pages.send(jump)  # with None at first, as a generator wants it
            except StopIteration:
                return
            jump = None
            visible: list[Any] = []
            for entry in page:
                name = entry["name"]
                if name.encode() < before:
                    raise UnsupportedError(
                        f"{client.where(base)}: the store does not list its names in order",
                        hint="use a container that OpenStack Swift itself serves",
                    )
                before = name.encode()
                if found := GROUP.search(name):
                    jump = name[: found.start(1)] + _LAST
                elif not name.endswith("/"):  # what consoles show for a folder
                    visible.append(entry)
            yield from self._whole(visible)
            self._forget(before)

    def _whole(self, page: list[Any]) -> Iterator[ObjectInfo]:
        parents = {found[1] for entry in page if (found := DYNAMIC.fullmatch(entry["name"]))}
        self._look({entry["name"] for entry in page if not entry["bytes"]} | parents)
        for entry in page:
            name = entry["name"]
            found = DYNAMIC.fullmatch(name)
            if found and self._is_manifest(found[1], name):
                continue
            if entry["bytes"]:
                yield listed(self._client, name.removeprefix(self._base), entry)
            elif (head := self._heads[name]) is not None:  # None: deleted since it was listed
                yield shown(self._client, name.removeprefix(self._base), head, "list")

    def _look(self, names: set[str]) -> None:
        wanted = sorted(names - self._heads.keys())
        if wanted:
            with ThreadPoolExecutor(PARALLEL, thread_name_prefix="rootcellar-head") as threads:
                self._heads.update(zip(wanted, threads.map(self._head, wanted), strict=True))

    def _forget(self, last: bytes) -> None:
        """Keep what names behind `last` can need: a head is several KB, and there may be any number."""
        self._heads = {name: head for name, head in self._heads.items() if f"{name}/:".encode() > last}

    def _head(self, name: str) -> Answer | None:
        # Repeated here: of a page's worth some may fail each time that all are asked again.
        answer = Attempts(self._backoff).run(lambda: self._client.ask("HEAD", name, "list", fine={404}))
        return None if answer.status == 404 else answer

    def _is_manifest(self, name: str, segment: str) -> bool:
        head = self._heads[name]
        manifest = dynamic(head) if head is not None else None
        return manifest is not None and f"{self._client.container}/{segment}".startswith(manifest)


def listed(client: Client, key: str, entry: Any) -> ObjectInfo:
    """An entry of Swift's listing."""
    try:
        modified = datetime.fromisoformat(entry["last_modified"]).replace(tzinfo=UTC)
        etag = str(entry.get("slo_etag") or entry["hash"]).strip('"')
        return ObjectInfo(key, int(entry["bytes"]), modified, etag)
    except (ValueError, KeyError, TypeError) as error:
        raise unread(error, client.where(key), "list") from error


def shown(client: Client, key: str, head: Answer, operation: str) -> ObjectInfo:
    """What the answer to a HEAD says."""
    told(head, client.where(key), operation, "Content-Length", "Etag")
    try:
        size = int(head.headers["Content-Length"])
        return ObjectInfo(key, size, _modified(head), head.headers["Etag"].strip('"'))
    except (ValueError, KeyError) as error:
        raise unread(error, client.where(key), operation) from error


def _modified(head: Answer) -> datetime:
    if "X-Timestamp" in head.headers:  # Last-Modified is the next whole second
        return datetime.fromtimestamp(float(head.headers["X-Timestamp"]), UTC)
    return parsedate_to_datetime(head.headers["Last-Modified"]).astimezone(UTC)


def said_at(answer: Answer) -> datetime:
    """The store's clock when it answered; ours where it does not tell."""
    date = answer.headers.get("Date")
    return parsedate_to_datetime(date).astimezone(UTC) if date else datetime.now(UTC)
