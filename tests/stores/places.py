"""Where the stores of these tests live, and how one is opened there, bare or in decorators."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.stores import (
    Backoff,
    Bandwidth,
    FileStore,
    LimitedStore,
    MeteredStore,
    RetryingStore,
)
from rootcellar.stores.s3.options import MIB, S3Options
from rootcellar.stores.s3.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rootcellar.stores import Store
    from testbed.s3 import Bucket

QUICK = Backoff(attempts=6, deadline=60, base=0.01, throttled_base=0.02, cap=0.1)
"""Gives up soon: for faults that are meant to end."""

SMALL_PART = 5 * MIB

GENEROUS = 1e12
"""Bytes per second that no test reaches."""


def bare(store: Store) -> Store:
    return store


def retrying(store: Store) -> Store:
    return RetryingStore(store, QUICK)


def limited(store: Store) -> Store:
    return LimitedStore(store, upload=Bandwidth(GENEROUS), download=Bandwidth(GENEROUS))


def metered(store: Store) -> Store:
    return MeteredStore(store)


def all_of_them(store: Store) -> Store:
    return metered(limited(retrying(store)))


@dataclass(frozen=True)
class Keys:
    """The test bucket's account, as a source of credentials."""

    bucket: Bucket
    secret_key: str | None = None

    def load(self):
        secret = self.secret_key or self.bucket.secret_key
        return {"accessKeyID": self.bucket.access_key, "secretAccessKey": secret}

    def stamp(self):
        return None


def s3_store(bucket: Bucket, prefix: str = "", *, backoff: Backoff = QUICK, keys=None, **options) -> S3Store:
    settings = {
        "endpoint": bucket.endpoint,
        "region": bucket.region,
        "ca_file": str(bucket.ca) if bucket.ca else None,
        "part_size": SMALL_PART,
        **options,
    }
    return S3Store(S3Options(bucket.name, prefix, **settings), keys or Keys(bucket), backoff=backoff)


@dataclass(frozen=True)
class Place:
    """Somewhere to put objects.  `open(prefix)` is a store there, decorated as the test wants it."""

    open: Callable[[str], Store]
    conditional: bool = True
    conditional_parts: bool = True
    """Whether the server compares on an object in parts too."""
    closed_for_parts: bool = True
    """Whether a condition on an object in parts lets only one of several writers win."""
    answers_arrive: bool = True
    """Whether whoever has written knows it, or may be replaced before the lost answer is asked for again."""
    kept: Callable[[], list[str]] = list
    """What is left of unfinished puts, seen from behind the store's back."""


def temporaries(directory: Path) -> list[Path]:
    """What puts under way, or dead, have there."""
    return list(directory.rglob(".put-*"))


def file_place(directory: Path, decorate: Callable[[Store], Store]) -> Place:
    return Place(
        lambda prefix: decorate(FileStore(directory / prefix)),
        kept=lambda: list(map(str, temporaries(directory))),
    )


_roots = itertools.count(1)


def s3_place(
    bucket: Bucket,
    decorate: Callable[[Store], Store],
    *,
    conditional: bool,
    endpoint: str | None = None,
    backoff: Backoff = QUICK,
) -> Place:
    """A prefix that nobody else has: SeaweedFS gives each bucket volumes of its own and runs out of them."""
    root = f"place-{next(_roots)}/"

    def left():
        client = bucket.client()
        try:
            found = client.list_multipart_uploads(Bucket=bucket.name, Prefix=root)
        except client.exceptions.NoSuchUpload:  # rclone's way to say none
            return []
        return [upload["Key"] for upload in found.get("Uploads", [])]

    def open_(prefix):
        store = s3_store(bucket, f"{root}{prefix}", endpoint=endpoint or bucket.endpoint, backoff=backoff)
        return decorate(store)

    # SeaweedFS compares first and then puts the parts together; another may have finished in between.
    return Place(
        open_,
        conditional=conditional,
        closed_for_parts=False,
        answers_arrive=endpoint is None,
        kept=left,
    )


def keys_of(infos) -> list[str]:
    return [info.key for info in infos]


def text(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern))
