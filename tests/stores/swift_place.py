"""Where the Swift stores of these tests live."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.stores.swift.options import SwiftOptions
from rootcellar.stores.swift.store import SwiftStore
from tests.stores.places import QUICK, SMALL_PART, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.stores import Backoff, Store
    from testbed.swift import Container

_roots = itertools.count(1)


@dataclass(frozen=True)
class Login:
    """The test container's user, as a source of credentials."""

    container: Container

    def load(self):
        return {"username": self.container.user, "password": self.container.password}

    def stamp(self):
        return None


def swift_store(
    container: Container, prefix: str = "", *, backoff: Backoff = QUICK, credentials=None, **options
) -> SwiftStore:
    settings = {"auth": container.auth, "part_size": SMALL_PART, **options}
    return SwiftStore(
        SwiftOptions(container.name, prefix, **settings), credentials or Login(container), backoff=backoff
    )


def segments_in(container: Container, prefix: str = "") -> list[str]:
    """Names of our segments, seen from behind the store's back."""
    return [name for name in container.names(prefix) if ".segments/" in name]


def unused_segments(container: Container, prefix: str = "") -> list[str]:
    """Those that no manifest names."""
    used: set[str] = set()
    for name in container.names(prefix):
        if ".segments/" not in name:
            said = container.ask("GET", name, query="?multipart-manifest=get")
            if said.startswith(b'[{"name": "/'):
                used.update(part["name"].removeprefix(f"/{container.name}/") for part in json.loads(said))
    return [name for name in segments_in(container, prefix) if name not in used]


def swift_place(
    container: Container, decorate: Callable[[Store], Store], *, auth: str | None = None
) -> Place:
    """A prefix that nobody else has."""
    root = f"place-{next(_roots)}/"

    def left():
        return unused_segments(container, root)

    return Place(
        lambda prefix: decorate(swift_store(container, f"{root}{prefix}", auth=auth or container.auth)),
        conditional=False,
        closed_for_parts=False,
        kept=left,
    )
