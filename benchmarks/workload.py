"""Workload R of the design, in a real etcd: keys of 3 KB, then one-event revisions of 200 bytes in ten
deltas.

Values look like Kubernetes objects: words that repeat with random ids between them, so that compression has
its usual work to do.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.etcd import operations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.etcd.client import EtcdClient

DELTAS = 10
_TXN_KEYS = 100
_WRITERS = 8


@dataclass(frozen=True)
class Size:
    """How large a workload is: keys, bytes of a key's value, one-event revisions, bytes of such a value."""

    name: str
    keys: int
    value: int
    revisions: int
    event: int = 200

    @property
    def is_bar(self) -> bool:
        """Whether the design's bars are meant for it."""
        return self.name == "R"


SIZES = {
    "small": Size("small", 20_000, 3000, 10_000),
    "R": Size("R", 200_000, 3000, 100_000),
}
SMALL_VALUES = Size("small values", 1_000_000, 60, 0)


class Values:
    """Bytes of a wanted length, seeded."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = [self._random.randbytes(8).hex() for _ in range(2000)]

    def value(self, size: int) -> bytes:
        parts: list[str] = []
        length = 0
        while length < size:
            word = self._random.choice(self._words)
            if self._random.random() < 0.3:
                word = self._random.randbytes(16).hex()
            parts.append(word)
            length += len(word) + 3
        return json.dumps(parts).encode()[:size]

    def key(self, count: int) -> bytes:
        return b"/bench/objects/%08d" % self._random.randrange(count)


def fill(client: EtcdClient, size: Size) -> None:
    """Write all keys, a hundred per transaction."""
    values = Values(1)

    def batches() -> Iterator[list[operations.Operation]]:
        for begin in range(0, size.keys, _TXN_KEYS):
            yield [
                operations.put(b"/bench/objects/%08d" % number, values.value(size.value))
                for number in range(begin, min(begin + _TXN_KEYS, size.keys))
            ]

    with ThreadPoolExecutor(_WRITERS) as pool:
        under_way = []
        for batch in batches():
            under_way.append(pool.submit(client.txn, batch))
            if len(under_way) > 2 * _WRITERS:
                under_way.pop(0).result()
        for future in under_way:
            future.result()


def change(client: EtcdClient, size: Size, part: int) -> None:
    """One delta's worth of one-event revisions."""
    values = Values(100 + part)
    rows = [(values.key(size.keys), values.value(size.event)) for _ in range(size.revisions // DELTAS)]
    with ThreadPoolExecutor(_WRITERS) as pool:
        for _ in pool.map(lambda row: client.put(*row), rows):
            pass
