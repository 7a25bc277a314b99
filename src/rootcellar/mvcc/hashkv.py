"""HashKV, computed from a file: the equality that counts between a source etcd and what was restored.

CRC-32C over `key`, then over key and value of every row at or below revision R in row order, except rows at
or below the compact revision C that are not in the keep-set of R: each key's newest row at or below R, unless
that is a tombstone.  An empty keep-set excludes nothing (etcd's own quirk); what counts then is all that the
compaction has left in the file: each key's newest row at or below C.  Tombstones at exactly C never count:
etcd before 3.4.34 and 3.5.16 deletes them, later ones pass over them.

A live etcd answers for a compaction's target from a cache (3.5.5 and later) whose rows are gone since;
nothing can recompute that, so compare at revisions that never were compaction targets.  Source: etcd 3.4.23,
3.5.35, 3.6.16, 3.7.3, server/storage/mvcc/hash.go and its forerunners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from rootcellar.errors import RecordError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.rows import KeyRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rootcellar.bolt.file import BoltFile
    from rootcellar.mvcc.rows import Rows


@dataclass(frozen=True, slots=True)
class HashKV:
    """What etcd's HashKV answers: only the whole triple can be compared."""

    hash: int
    revision: int
    compact_revision: int


def hash_kv(file: BoltFile, revision: int | None = None, *, compact_revision: int | None = None) -> HashKV:
    """HashKV at `revision` (default: the last) as an etcd that has compacted at `compact_revision` answers.

    `compact_revision` defaults to what the file says; the file may still hold what that compaction deletes.
    Raises RecordError (revision compacted or in the future; a row that etcd could not read), BoltError.
    Memory: some 30 bytes per row when there was a compaction, else a few MiB.
    """
    meta = StoreMeta.read(file)
    at = meta.revision if revision is None else revision
    compacted = meta.compact_revision if compact_revision is None else compact_revision
    if at > meta.revision:
        raise RecordError(f"revision {at} lies after the last one, {meta.revision}")
    if at < compacted:
        raise RecordError(f"revision {at} was compacted away (compacted at {compacted})")
    rows = KeyRows(file)
    keep = np.zeros(0, np.bool_)
    if compacted >= 0:
        keep = _newest(rows, at)
        if not keep.any():
            keep = _newest(rows, compacted)
    crc = google_crc32c.value(b"key")
    done = 0
    for batch in rows:
        included = batch.mains <= at
        kept = np.zeros(len(batch), np.bool_)
        here = keep[done : done + len(batch)]
        kept[: len(here)] = here
        included &= (batch.mains > compacted) | kept
        crc = _extend(crc, batch, included)
        done += len(batch)
        if (batch.mains > at).any():
            break
    return HashKV(crc, at, compacted)


def _extend(crc: int, batch: Rows, included: NDArray[np.bool_]) -> int:
    """Hash the included rows.  Rows that lie side by side in their page are hashed in one call."""
    starts, ends = batch.elements.keys[included], batch.elements.ends[included]
    if not len(starts):
        return crc
    breaks = np.flatnonzero(starts[1:] != ends[:-1])
    run_starts = starts[np.concatenate([[0], breaks + 1])].tolist()
    run_ends = ends[np.concatenate([breaks, [len(ends) - 1]])].tolist()
    buffer, extend = batch.tree.buffer, google_crc32c.extend
    for start, end in zip(run_starts, run_ends, strict=True):
        crc = extend(crc, buffer[start:end])
    return crc


def _newest(rows: KeyRows, revision: int) -> NDArray[np.bool_]:
    """For each row, as far as `revision`: whether it is its key's newest up to there, and no tombstone.

    Keys are told apart by a 64-bit keyed hash: two of ten million keys collide once in 300,000 runs, and then
    this reports a difference where there is none, never the reverse.
    """
    hashes: list[NDArray[np.int64]] = []
    live: list[NDArray[np.bool_]] = []
    for batch in rows:
        hashes.append(np.fromiter(map(hash, batch.user_keys()), np.int64, len(batch)))
        live.append(~batch.is_tombstone)
        beyond = batch.mains > revision
        if beyond.any():
            end = int(np.argmax(beyond))
            hashes[-1], live[-1] = hashes[-1][:end], np.concatenate([live[-1][:end]])
            break
    if not hashes:
        return np.zeros(0, np.bool_)
    keys = np.concatenate(hashes)
    order = np.argsort(keys, kind="stable")
    is_last = np.ones(len(keys), np.bool_)
    if len(keys):
        ordered = keys[order]
        is_last[order[:-1]] = ordered[1:] != ordered[:-1]
    return is_last & np.concatenate(live)
