"""Five million updates over ten thousand keys, with the compactions that Kubernetes would have made.

The chain is written by our own encoders: what is measured is the restore, and no etcd takes so many writes in
the time a benchmark has.  `python -m benchmarks.updates STORE`.
"""

from __future__ import annotations

import hashlib
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import ledger, names
from rootcellar.backup.catalogue.records import Record
from rootcellar.backup.objects import codecs, delta
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.layout import LEAF, NO_FREELIST, PAGE_HEADER, Meta
from rootcellar.mvcc.meta import BUCKETS
from rootcellar.mvcc.record import KeyValue, encode
from rootcellar.mvcc.revision import encode_row_key
from rootcellar.stores.file import FileStore

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.names import SnapshotName

KEYS, UPDATES, DELTA_EVENTS, VALUE = 10_000, 5_000_000, 50_000, 200
COMPACTED_BEHIND = 25_000
"""Revisions that a compaction stays behind the newest."""
_PAGE = 4096
_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def write(directory: Path) -> int:
    """Write the chain; its last revision."""
    store = FileStore(directory)
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(3)
    values = [chance.randbytes(VALUE // 2).hex().encode() for _ in range(997)]
    revision = KEYS + 1
    _full(store, directory / "full.db", values)
    versions = [1] * KEYS
    for number in range(UPDATES // DELTA_EVENTS):
        start = revision + 1
        received = delta.format_time(int((_BEGUN + timedelta(minutes=5 * number)).timestamp()) * 10**9)
        events = []
        for _ in range(DELTA_EVENTS):
            revision += 1
            key = chance.randrange(KEYS)
            versions[key] += 1
            value = values[revision % 997]
            events.append(delta.Event(0, _key(key), value, key + 2, revision, versions[key], 0, received))
        name = names.delta(start, revision, int(_BEGUN.timestamp()) + 300 * number + 1)
        _put(store, name, b"".join(delta.encode(events)), revision - COMPACTED_BEHIND)
    return revision


def _key(number: int) -> bytes:
    return b"/registry/objects/%05d" % number


def _full(store: FileStore, scratch: Path, values: list[bytes]) -> None:
    meta = Meta(page_size=_PAGE, root=2, freelist=NO_FREELIST, high_water=3, txid=1)
    scratch.write_bytes(meta.page(0) + meta.page(1) + PAGE_HEADER.pack(2, LEAF, 0, 0).ljust(_PAGE, b"\0"))
    with Transaction(scratch) as transaction:
        for name in BUCKETS:
            transaction.edge(name)
        rows = [KeyValue(_key(n), n + 2, n + 2, 1, values[n % 997]) for n in range(KEYS)]
        keys = [encode_row_key(row.mod_revision) for row in rows]
        transaction.edge(b"key").append(keys, [encode(row) for row in rows])
        transaction.replace(b"cluster", [(b"clusterVersion", b"3.5.0")])
        transaction.commit(both_metas=True)
        size = transaction.high_water * _PAGE
    payload = scratch.read_bytes()[:size]
    scratch.unlink()
    _put(store, names.full(KEYS + 1, int(_BEGUN.timestamp())), payload, -1)


def _put(store: FileStore, name: SnapshotName, payload: bytes, compact_revision: int) -> None:
    stored = b"".join(codecs.compress(codecs.append_hash([payload]), name.suffix))
    store.put(name.key, [stored])
    moment = datetime.fromtimestamp(name.created, UTC)
    received = None if name.kind is names.Kind.FULL else moment
    record = Record(
        key=name.key,
        kind=name.kind,
        start=name.start,
        last_revision=name.last,
        compact_revision=compact_revision,
        payload_size=len(payload),
        payload_sha256=hashlib.sha256(payload).hexdigest(),
        stored_size=len(stored),
        stored_sha256=hashlib.sha256(stored).hexdigest(),
        cluster_id="1",
        member_id="1",
        timeline=1,
        epoch=1,
        writer="benchmark",
        captured_at=moment,
        first_received=received,
        last_received=received,
        etcd_version="3.5.0",
    )
    ledger.write_record(store, record)


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
