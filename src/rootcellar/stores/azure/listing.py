"""Pages of a listing: read from XML, and put into the order of the keys' UTF-8 bytes.

Azure promises "alphabetical order" and leaves open of which units.  UTF-16 and UTF-8 part only where a
character beyond U+FFFF meets one of U+E000 to U+FFFF, so a key with such a character is held back until the
listing has left what lies before it in that key; the order is then right whichever of both the store has.
"""

from __future__ import annotations

import heapq
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from rootcellar.errors import TransientError, UnsupportedError
from rootcellar.stores.protocol import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def page(body: bytes, where: str) -> tuple[list[ObjectInfo], str]:
    """The objects of a page, with whole keys, and the marker of the next one ("" after the last).  Raises
    TransientError for what is no whole answer.
    """
    try:
        root = ET.fromstring(body)  # noqa: S314 - the store's own words; expat bounds their entities
        # Folders of a hierarchical account are marked as such.
        infos = [_info(blob) for blob in root.iterfind("Blobs/Blob") if not _is_folder(blob)]
    except (ET.ParseError, ValueError, TypeError) as error:
        raise TransientError(f"{where}: a listing that cannot be read: {error}", operation="list") from error
    if root.tag != "EnumerationResults":
        raise TransientError(f"{where}: an answer that is no listing", operation="list")
    return infos, root.findtext("NextMarker") or ""


def _info(blob: ET.Element) -> ObjectInfo:
    name = blob.find("Name")
    if name is None or name.text is None:
        raise ValueError("a blob without a name")
    key = unquote(name.text) if name.get("Encoded") == "true" else name.text
    return ObjectInfo(
        key,
        int(blob.findtext("Properties/Content-Length") or "0"),
        moment(blob.findtext("Properties/Last-Modified") or ""),
        (blob.findtext("Properties/Etag") or "").strip('"') or None,
        blob.findtext("VersionId"),
    )


def _is_folder(blob: ET.Element) -> bool:
    return blob.findtext("Properties/ResourceType") == "directory" or (
        (blob.findtext("Metadata/hdi_isfolder") or "").lower() == "true"
    )


def moment(text: str) -> datetime:
    """A time of HTTP.  Raises ValueError."""
    return parsedate_to_datetime(text).astimezone(UTC)


def in_order(infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """`infos` by their keys' bytes; several of one key stay in the order given.  Raises UnsupportedError for
    a store whose order is neither UTF-8's nor UTF-16's.
    """
    waiting: list[tuple[bytes, int, str | None, ObjectInfo]] = []
    arrival = count()
    passed = b""
    for info in infos:
        while waiting and not _may_be_passed(waiting[0], info.key):
            passed = _passed(passed, waiting[0][0])
            yield heapq.heappop(waiting)[-1]
        heapq.heappush(waiting, (info.key.encode(), next(arrival), _before_astral(info.key), info))
    while waiting:
        passed = _passed(passed, waiting[0][0])
        yield heapq.heappop(waiting)[-1]


def _may_be_passed(item: tuple[bytes, int, str | None, ObjectInfo], now: str) -> bool:
    """Whether what comes with `now` or later may sort before `item`."""
    _, _, before, _ = item
    return before is not None and now.startswith(before)


def _before_astral(key: str) -> str | None:
    found = next((place for place, character in enumerate(key) if character > "\uffff"), None)
    return None if found is None else key[:found]


def _passed(before: bytes, now: bytes) -> bytes:
    if now < before:
        raise UnsupportedError(
            "the store does not list its keys in order", hint="look at what answers in Azure's place"
        )
    return now
