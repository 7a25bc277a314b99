"""A chain's database as one that etcd could have streamed: not a member of a new cluster, but the source's
own.

What a restore rewrites to found a cluster (members, consistent index, term, alarms) stays as the base full
has it, because captures go on above the result.  What a restore leaves for etcd to finish, a compaction, is
carried out here, because every row is written anew anyway: pages come out full and without holes.

A row at or below the compaction stays when it is its key's newest one there, unless it is an older
deletion: what etcd's own compaction leaves.  A deletion at the very compaction stays too, as some etcds
keep it and others drop it; `scheduledCompactRev` alone is set, so whichever starts on it finishes as it is
used to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rootcellar.backup.objects.delta import DELETE, PUT
from rootcellar.backup.restore.membership import DEFAULT_LEASE_TTL
from rootcellar.bolt import leaves
from rootcellar.bolt.append import Transaction
from rootcellar.bolt.create import create
from rootcellar.bolt.file import BoltFile
from rootcellar.etcd.fingerprint import Change, fingerprint
from rootcellar.mvcc.meta import (
    SCHEDULED_COMPACTION,
    Lease,
    StoreMeta,
    encode_compaction,
    encode_lease,
    leases,
)
from rootcellar.mvcc.record import decode
from rootcellar.mvcc.revision import KEY_BUCKET, decode_row_key, encode_row_key
from rootcellar.mvcc.rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rootcellar.backup.restore.database import Applied
    from rootcellar.mvcc.rows import Rows

_RUN_BYTES = 4 << 20
_MANY_ROWS = 256


def settle(transaction: Transaction, applied: Applied, lease_ttls: Mapping[int, int]) -> None:
    """Note the compaction that was applied, and the leases that the deltas mention and the full lacks.

    `lease_ttls` are granted seconds by lease id; one that nobody recorded gets DEFAULT_LEASE_TTL.
    """
    reader = transaction.reader
    if applied.compact_revision > StoreMeta.read(reader).compact_revision:
        bucket = reader.bucket(b"meta")
        meta = dict(bucket.items()) if bucket else {}
        meta[SCHEDULED_COMPACTION] = encode_compaction(applied.compact_revision)
        transaction.replace(b"meta", meta.items())
    known = leases(reader)
    if missing := sorted(applied.leases - known.keys()):
        made = [Lease(id_, lease_ttls.get(id_, DEFAULT_LEASE_TTL)) for id_ in missing]
        transaction.replace(b"lease", map(encode_lease, [*known.values(), *made]))


def rewrite(source: Path, target: Path, kept: Collection[int]) -> int:
    """Write `source` anew as `target`, without what its last compaction supersedes; how many rows that was.

    Of the leases those stay that are `kept`.

    `target` must not be there, and is complete when this returns.  Raises BoltError, RecordError, OSError.
    Memory: some 150 bytes for each key that was written at or below the compaction.
    """
    with BoltFile(source) as file:
        create(target, file.meta.page_size)
        compacted = StoreMeta.read(file).compact_revision
        keep = _left_by(file, compacted)
        dropped = 0
        with Transaction(target) as transaction:
            for name, bucket in file.root().buckets():
                if name == KEY_BUCKET:
                    dropped = _write_rows(file, transaction, keep)
                elif name == b"lease":
                    known = leases(file).values()
                    transaction.replace(name, [encode_lease(each) for each in known if each.id in kept])
                else:
                    transaction.replace(name, bucket.items())
            transaction.commit(both_metas=True)
    return dropped


def _left_by(file: BoltFile, compacted: int) -> NDArray[np.bool_]:
    """For each row at or below the compaction, in order: whether the compaction leaves it."""
    newest: dict[bytes, int] = {}
    stays: list[NDArray[np.bool_]] = []
    count = 0
    for rows in KeyRows(file):
        end = int(np.searchsorted(rows.mains, compacted, "right"))
        if end:
            newest.update(zip(rows.user_keys()[:end], range(count, count + end), strict=True))
            stays.append(~rows.is_tombstone[:end] | (rows.mains[:end] == compacted))
            count += end
        if end < len(rows):
            break
    left = np.zeros(count, np.bool_)
    left[np.fromiter(newest.values(), np.int64, len(newest))] = True
    return left & np.concatenate(stays) if stays else left


def _write_rows(file: BoltFile, transaction: Transaction, keep: NDArray[np.bool_]) -> int:
    edge = transaction.edge(KEY_BUCKET)
    done = dropped = 0
    for rows in KeyRows(file):
        wanted = np.ones(len(rows), np.bool_)
        here = keep[done : done + len(rows)]
        wanted[: len(here)] = here
        dropped += len(rows) - int(wanted.sum())
        done += len(rows)
        for pairs in _runs(rows, wanted):
            keys, values = [key for key, _ in pairs], [value for _, value in pairs]
            if len(keys) < _MANY_ROWS:
                edge.append(keys, values)
            else:
                edge.append_leaves(leaves.build(keys, values, transaction.meta.page_size), keys[-1])
    return dropped


def _runs(rows: Rows, wanted: NDArray[np.bool_]) -> Iterator[list[tuple[bytes, bytes]]]:
    """The wanted rows, a few MiB at a time."""
    chosen = np.flatnonzero(wanted)
    sizes = np.cumsum(rows.elements.ends[chosen] - rows.elements.keys[chosen])
    for part in np.split(chosen, np.flatnonzero(np.diff(sizes // _RUN_BYTES)) + 1):
        if len(part):
            yield rows.pairs(part)


def last_change(file: BoltFile, revision: int) -> str | None:
    """The fingerprint of what `revision` changed; None when no row tells.  Raises RecordError, BoltError."""
    bucket = file.bucket(KEY_BUCKET)
    changes = []
    for key, value in bucket.items(encode_row_key(revision)) if bucket else ():
        row, record = decode_row_key(key), decode(value)
        if row.main != revision:
            break
        if row.is_tombstone:
            changes.append(Change(DELETE, record.key, b"", 0, revision, 0, 0))
            continue
        numbers = record.create_revision, record.mod_revision, record.version, record.lease
        changes.append(Change(PUT, record.key, record.value, *numbers))
    return fingerprint(changes) if changes else None
