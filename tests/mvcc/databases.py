"""Database files for tests: what a live etcd streams, and small ones made of given rows."""

from __future__ import annotations

from contextlib import closing

from rootcellar.bolt.append import Transaction
from rootcellar.bolt.layout import LEAF, NO_FREELIST, PAGE_HEADER, Meta
from rootcellar.mvcc.record import KeyValue

PAGE = 4096


def snapshot_of(client, path):
    """What `etcdctl snapshot save` writes: the database and its hash."""
    with closing(client.snapshot()) as stream, path.open("wb") as file:
        for chunk in stream:
            file.write(chunk)
    return path


def write_database(path, buckets):
    """A bbolt file with these buckets ({name: {key: value}}), by our own writer."""
    metas = [Meta(PAGE, 2, NO_FREELIST, 3, txid) for txid in (0, 1)]
    root = PAGE_HEADER.pack(2, LEAF, 0, 0).ljust(PAGE, b"\0")
    path.write_bytes(metas[0].page(0) + metas[1].page(1) + root)
    with Transaction(path) as transaction:
        for name, rows in buckets.items():
            transaction.replace(name, rows.items())
        transaction.commit(both_metas=True)
    return path


def as_record(kv):
    """A key as etcd's API tells it, as the engine stores it."""
    return KeyValue(kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.value, kv.lease)
