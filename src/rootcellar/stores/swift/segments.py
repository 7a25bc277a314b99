"""What a large object is made of, where that lies, and how it is removed.

We write static large objects (SLO): segments, and then a manifest that names each with its etag and size,
which Swift checks.  The manifest is one small put: before it nothing is visible, after it the whole object
is, and no listing that lags behind can shorten it, as it can a dynamic large object (DLO).

Our segments lie in the store's own prefix, at `.segments/<hash of the object's name>/<mark of the
put>/<number>`: no key can begin with a dot, so listings hide that folder, and etcd-backup-restore takes none
of it for a snapshot.  Segments without a manifest are what died writers leave; `leftovers` finds them.

etcd-backup-restore writes DLOs: a manifest of no bytes, and segments `<name>/%010d` beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rootcellar.errors import NotFoundError, StoreError
from rootcellar.stores.headers import told
from rootcellar.stores.swift.client import quoted, unread
from rootcellar.stores.swift.errors import refusal
from rootcellar.stores.wire import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from rootcellar.stores.swift.client import Client
FOLDER = ".segments/"
GROUP = re.compile(r"(?:^|/)\.segments/([0-9a-f]{32})/([0-9a-f]{32})/")
"""The part of a segment's name that all segments of one put share: the object's hash, and the put's mark."""

DYNAMIC = re.compile(r"(.+)/[0-9]{10}")
"""A segment's name as etcd-backup-restore gives it; the group is its object's name, and all its segments sort
before `<name>/:`.
"""

MARK = "X-Object-Meta-Rootcellar-Put"
"""Every put carries a random mark, to tell our own object from another's."""

NAME = "X-Object-Meta-Rootcellar-Name-"
"""Every segment says whose it is, in pieces: Swift takes 256 bytes a header."""

_PIECE = 240

PAGE = 1000
BATCH = 1000
"""Names that one bulk delete is given; Swift itself stops at 10,000."""


def digest(name: str) -> str:
    """How an object is called in its segments' names, which have not room for any name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def group(base: str, name: str, mark: str) -> str:
    """What the names of one put's segments begin with."""
    return f"{base}{FOLDER}{digest(name)}/{mark}/"


def labelled(name: str) -> dict[str, str]:
    """Headers that give a segment the name of its object."""
    text = quoted(name)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return {f"{NAME}{number:02d}": piece for number, piece in enumerate(pieces)}


def owner(head: Answer) -> str | None:
    """The name of the object that a segment was sent for."""
    pieces: list[str] = []
    while (piece := head.headers.get(f"{NAME}{len(pieces):02d}")) is not None:
        pieces.append(piece)
    return unquote("".join(pieces)) if pieces else None


def is_large(head: Answer) -> bool:
    """Whether `head` is that of one of our manifests, or of another's SLO."""
    return head.headers.get("X-Static-Large-Object", "").lower() == "true"


def dynamic(head: Answer) -> str | None:
    """CONTAINER/PREFIX of a dynamic large object; None for any other."""
    return unquote(head.headers["X-Object-Manifest"]) if "X-Object-Manifest" in head.headers else None


def entries(
    client: Client, prefix: str, after: str, operation: str
) -> Generator[tuple[list[Any], Answer], str | None, None]:
    """The container's own listing of names that begin with `prefix` and sort after `after`, by pages.

    Swift lists in the order of the names' bytes.  Whoever has seen enough of a folder sends a later name.
    """
    where = client.where(prefix)
    while True:
        query = {"format": "json", "limit": str(PAGE), "prefix": prefix, "marker": after}
        answer = client.ask("GET", "", operation, query=query)
        page: list[Any] = []
        if answer.status != 204:
            told(answer, where, operation, "Content-Length")
            try:
                page = json.loads(answer.body)
                names = [str(entry["name"]) for entry in page]
            except (ValueError, KeyError, TypeError) as error:
                raise unread(error, where, operation) from error
            if page:
                after = names[-1]
        if not page:
            return
        jump = yield page, answer
        after = max(after, jump or after, key=str.encode)


def below(client: Client, prefix: str, operation: str) -> list[str]:
    """All names that begin with `prefix`."""
    return [entry["name"] for page, _ in entries(client, prefix, "", operation) for entry in page]


def of(client: Client, name: str, head: Answer, operation: str) -> list[str]:
    """The segments that belong to the object `name` alone: ours, and those of etcd-backup-restore.

    Others' static large objects keep theirs, which may serve more than one manifest.
    """
    if is_large(head):
        if MARK not in head.headers:
            return []
        answer = client.ask("GET", name, operation, query={"multipart-manifest": "get"}, fine={404})
        if answer.status == 404:
            return []
        try:
            parts = [str(part["name"]) for part in json.loads(answer.body)]
        except (ValueError, KeyError, TypeError) as error:
            raise unread(error, client.where(name), operation) from error
        mine = f"/{client.container}/"
        found = [part.removeprefix(mine) for part in parts if part.startswith(mine)]
        ending = f"{FOLDER}{digest(name)}/{head.headers[MARK]}/"
        return [part for part in found if ending in part]
    manifest = dynamic(head)
    if manifest is None or manifest.partition("/")[0] != client.container:
        return []
    # A manifest's prefix matches letter by letter: that of `Full-1` those of `Full-10` as well.
    parent = manifest.partition("/")[2].rstrip("/")
    names = below(client, f"{parent}/", operation) if parent else []
    return [each for each in names if (match := DYNAMIC.fullmatch(each)) and match[1] == parent]


def remove(client: Client, names: Iterable[str], operation: str) -> dict[str, StoreError]:
    """Delete by name; what could not be deleted, with its reason.  What is not there counts as deleted."""
    left = list(names)
    failed: dict[str, StoreError] = {}
    for start in range(0, len(left), BATCH):
        failed |= _remove(client, left[start : start + BATCH], operation)
    return failed


def _remove(client: Client, names: list[str], operation: str) -> dict[str, StoreError]:
    paths = {f"/{quoted(client.container)}/{quoted(name)}": name for name in names}
    body = "".join(f"{path}\n" for path in paths).encode()
    headers = {"Content-Type": "text/plain", "Accept": "application/json"}
    query = {"bulk-delete": "true"}
    answer = client.ask(
        "POST", None, operation, headers=headers, query=query, body=body, fine={400, 403, 404, 405, 501}
    )
    try:
        said = json.loads(answer.body) if answer.status == 200 else {}
    except ValueError as error:
        raise unread(error, client.where(""), operation) from error
    if "Number Deleted" not in said:  # not every Swift has the bulk middleware
        return _remove_singly(client, names, operation)
    failed: dict[str, StoreError] = {}
    for path, status in said.get("Errors", []):
        name = paths.get(path) or unquote(path).removeprefix(f"/{client.container}/")
        failed[name] = _reason(client, name, str(status), operation)
    accounted = said["Number Deleted"] + said.get("Number Not Found", 0) + len(failed)
    if accounted < len(names):
        # It ended early; the status that counts is in the body, that of the answer is always 200.
        raise _reason(client, "", str(said.get("Response Status", "")), operation)
    return failed


def _reason(client: Client, name: str, status: str, operation: str) -> StoreError:
    number = int(status[:3]) if status[:3].isdecimal() else 0
    number = number if number >= 400 else 500
    return refusal(Request("DELETE", "", operation, client.where(name)), Answer(number, {}, b""))


def _remove_singly(client: Client, names: list[str], operation: str) -> dict[str, StoreError]:
    failed: dict[str, StoreError] = {}
    for name in names:
        try:
            client.ask("DELETE", name, operation, fine={404})
        except NotFoundError:
            continue
        except StoreError as error:
            if error.retryable:
                raise
            failed[name] = error
    return failed
