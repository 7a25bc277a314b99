"""Segments without a manifest: what writers that died left behind, or a delete that was killed.

Ours carry the name of their object, and the mark of the put in their own; the object shows the mark of the
put that made it.  Those of etcd-backup-restore, which never removes the segments of a failed upload,
lie beside a manifest that is not there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from rootcellar.stores.backoff import Attempts
from rootcellar.stores.swift import segments
from rootcellar.stores.swift.listing import listed, said_at
from rootcellar.stores.swift.segments import DYNAMIC, GROUP, MARK, dynamic, entries

if TYPE_CHECKING:
    from rootcellar.stores.backoff import Backoff
    from rootcellar.stores.swift.client import Client
    from rootcellar.stores.wire import Answer

K = TypeVar("K")

_SNAPSHOT = re.compile(r"(?:.*/)?(?:Full|Incr)-[^/]+")


@dataclass(slots=True)
class _Group:
    """The segments of one put."""

    touched: datetime
    names: list[str]


def remove(client: Client, base: str, older_than: timedelta, backoff: Backoff) -> int:
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
    orphans = [group for (_, mark), group in ours.items() if not _is_used(client, group, mark, backoff)]
    orphans += [group for name, group in theirs.items() if not _is_manifest(client, name, backoff)]
    failed = segments.remove(client, [name for group in orphans for name in group.names], "abort leftovers")
    if failed:
        raise next(iter(failed.values()))
    return len(orphans)


def _is_used(client: Client, group: _Group, mark: str, backoff: Backoff) -> bool:
    """Whether an object is made of these segments.  It is asked for by its name, which they carry: a listing
    may lag behind by hours.
    """
    segment = _head(client, group.names[0], backoff)
    name = None if segment is None else segments.owner(segment)
    if name is None:  # deleted a moment ago; or nobody knows, and then it is kept
        return True
    head = _head(client, name, backoff)
    return head is not None and segments.is_large(head) and head.headers.get(MARK) == mark


def _is_manifest(client: Client, name: str, backoff: Backoff) -> bool:
    head = _head(client, name, backoff)
    return head is not None and dynamic(head) is not None


def _head(client: Client, name: str, backoff: Backoff) -> Answer | None:
    answer = Attempts(backoff).run(lambda: client.ask("HEAD", name, "abort leftovers", fine={404}))
    return None if answer.status == 404 else answer


def _add(groups: dict[K, _Group], key: K, name: str, modified: datetime) -> None:
    group = groups.setdefault(key, _Group(modified, []))
    group.touched = max(group.touched, modified)
    group.names.append(name)


def _untouched(groups: dict[K, _Group], since: datetime) -> dict[K, _Group]:
    return {key: group for key, group in groups.items() if group.touched <= since}
