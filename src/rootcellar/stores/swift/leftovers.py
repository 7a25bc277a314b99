"""Segments without a manifest: what writers that died left behind, or a delete that was killed.

Ours are told by their names, which hold the hash of the object's name and the put's mark; the object shows
the mark of the put that made it.  Those of etcd-backup-restore, which never removes the segments of a failed
upload, lie beside a manifest that is not there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from rootcellar.stores.swift import segments
from rootcellar.stores.swift.listing import Listing, listed, said_at
from rootcellar.stores.swift.segments import DYNAMIC, GROUP, MARK, digest, dynamic, entries

if TYPE_CHECKING:
    from rootcellar.stores.swift.client import Client

K = TypeVar("K")

_SNAPSHOT = re.compile(r"(?:.*/)?(?:Full|Incr)-[^/]+")


@dataclass(slots=True)
class _Group:
    """The segments of one put."""

    touched: datetime
    names: list[str]


def remove(client: Client, base: str, older_than: timedelta) -> int:
    """Delete what nobody has touched for `older_than`, by the store's clock.  Returns how many puts it was
    of.

    An upload that is under way keeps touching its group.  What lies between its last segment and its manifest
    is one request; `older_than` has to be longer.
    """
    ours: dict[tuple[str, str], _Group] = {}
    theirs: dict[str, _Group] = {}
    now = datetime.now(UTC)
    for page, answer in entries(client, base, "", "abort leftovers"):
        now = said_at(answer)
        for entry in page:
            name = entry["name"]
            modified = listed(client, name, entry).modified
            if found := GROUP.search(name):
                _add(ours, (found[1], found[2]), name, modified)
            elif (segment := DYNAMIC.fullmatch(name)) and _SNAPSHOT.fullmatch(segment[1]):
                _add(theirs, segment[1], name, modified)
    newest = now + timedelta(seconds=1) - older_than  # that clock counts whole seconds
    ours, theirs = _untouched(ours, newest), _untouched(theirs, newest)
    _spare_used(client, base, ours)
    for name in list(theirs):
        head = client.ask("HEAD", name, "abort leftovers", fine={404})
        if head.status != 404 and dynamic(head) is not None:
            del theirs[name]
    orphans = [*ours.values(), *theirs.values()]
    failed = segments.remove(client, [name for group in orphans for name in group.names], "abort leftovers")
    if failed:
        raise next(iter(failed.values()))
    return len(orphans)


def _spare_used(client: Client, base: str, groups: dict[tuple[str, str], _Group]) -> None:
    """Take out of `groups` those whose object is there and was made from them."""
    hashes = {each for each, _ in groups}
    if not hashes:
        return
    for info in Listing(client, base).objects("", ""):
        name = f"{base}{info.key}"
        if digest(name) in hashes:
            head = client.ask("HEAD", name, "abort leftovers", fine={404})
            if head.status != 404 and segments.is_large(head):
                groups.pop((digest(name), head.headers.get(MARK, "")), None)


def _add(groups: dict[K, _Group], key: K, name: str, modified: datetime) -> None:
    group = groups.setdefault(key, _Group(modified, []))
    group.touched = max(group.touched, modified)
    group.names.append(name)


def _untouched(groups: dict[K, _Group], since: datetime) -> dict[K, _Group]:
    return {key: group for key, group in groups.items() if group.touched <= since}
