"""A chain made into one etcd database file, without running etcd.

The full is streamed to disk, then the deltas' rows are appended behind the right edge of its `key` bucket.
What is damaged is told by name.  The file is scratch until the caller has everything: nothing here is fit to
be kept after an error.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.pipeline import ahead
from rootcellar.backup.restore.replay import IN_PLACE_BYTES, Part, Replayers, StoredDelta, parts
from rootcellar.backup.restore.rows import newest_below
from rootcellar.errors import ChainError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.revision import KEY_BUCKET
from rootcellar.mvcc.supersede import drop_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rootcellar.bolt.append import Transaction

Progress = Callable[[str, int], None]
"""(phase, how much more is done): bytes of the full, or events of deltas."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One delta of a chain: what to apply of it, its stored size in bytes, and how to read its stored bytes.

    `read` may be called twice.
    """

    stored: StoredDelta
    size: int
    read: Callable[[], Iterable[bytes]]


@dataclass(slots=True)
class Applied:
    """What a chain came to.  `compact_revision` is the compaction that etcd is to finish, or -1.

    `reached_end`: nothing of the last delta was left out.
    """

    revision: int
    compact_revision: int = -1
    last_time: str = ""
    events: int = 0
    rows_dropped: int = 0
    leases: set[int] = field(default_factory=set)
    reached_end: bool = True


def write_full(
    path: Path, chunks: Iterable[bytes], *, name: str, suffix: str, has_tail: bool | None, progress: Progress
) -> None:
    """Decompress a full into `path`, which is not fsynced, and prove its hash tail and cut it off.

    `has_tail` None: as etcd's tools tell it, a hash follows when the size modulo 512 is 32.  Raises
    DamagedObjectError, OSError.
    """
    size = 0
    with (
        closing(ahead(codecs.decompress(chunks, suffix, name=name))) as decompressed,
        path.open("xb", buffering=0) as file,
    ):
        payload = codecs.HashTail(decompressed, name=name) if has_tail else decompressed
        flush = _Flush(file.fileno())
        for chunk in payload:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
            size += len(chunk)
            flush.written(size)
            progress("full", len(chunk))
    if has_tail is None and size % 512 == codecs.HASH_SIZE:
        with path.open("rb") as file:
            for _ in codecs.HashTail(iter(lambda: file.read(1 << 20), b""), name=name):
                pass
        os.truncate(path, size - codecs.HASH_SIZE)


class _Flush:
    """Has the kernel write a growing file behind, so that the fsync at the end finds little left to do."""

    STEP = 32 << 20
    _WRITE = 2  # SYNC_FILE_RANGE_WRITE: start writing, wait for nothing

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._done = 0
        self._call = getattr(ctypes.CDLL(None), "sync_file_range", None)

    def written(self, size: int) -> None:
        if self._call is not None and size - self._done >= self.STEP:
            start, length = ctypes.c_int64(self._done), ctypes.c_int64(size - self._done)
            self._call(self._descriptor, start, length, self._WRITE)
            self._done = size


def apply_deltas(
    transaction: Transaction, pieces: list[Piece], *, compact_revision: int, progress: Progress
) -> Applied:
    """Append the rows of `pieces`, which continue what the file holds, superseding at `compact_revision`.

    The windows of `pieces` say how far; where they begin follows from what the file really holds.  Raises
    ChainError (a gap), DamagedObjectError.  Memory: a few blocks of rows; with a compaction also one entry of
    some 150 bytes for each key the chain touches at or below it.
    """
    meta = StoreMeta.read(transaction.reader)
    applied = Applied(revision=meta.revision)
    pieces = _continuing(pieces, meta.revision)
    newest: dict[bytes, int] = {}
    if compact_revision > max(meta.compact_revision, meta.revision):
        pieces = [_superseding(piece, compact_revision) for piece in pieces]
        last = _find_newest(pieces, newest)
        if last < compact_revision:  # a restore to a time ends before the compaction
            pieces, newest = [_superseding(piece, -1) for piece in pieces], {}
        else:
            applied.rows_dropped = drop_rows(transaction, newest, compact_revision)
            applied.compact_revision = compact_revision
    elif compact_revision > meta.compact_revision and compact_revision <= meta.revision:
        applied.compact_revision = compact_revision

    edge = transaction.edge(KEY_BUCKET)
    ends = _Ends(pieces)
    with closing(_all_parts(pieces, transaction.meta.page_size, newest)) as found:
        for part in found:
            if ends.stopped_before(part.name, applied.revision):
                break
            if part.first_revision > applied.revision + 1:
                raise ChainError(
                    f"{part.name}: begins at revision {part.first_revision}, "
                    f"but the chain has reached {applied.revision}",
                    hint=f"restore with --to-revision {applied.revision}, or from an older chain",
                )
            if part.pages is not None:
                edge.append_leaves(part.pages, part.last_key)
            else:
                edge.append(part.keys, part.values)
            applied.revision = part.last_revision
            applied.last_time = part.last_time
            applied.events += part.events
            applied.leases |= part.leases
            progress("deltas", part.events)
    applied.reached_end = not ends.stopped_before(None, applied.revision)
    return applied


class _Ends:
    """Where each delta ends, to tell one that a restore to a time left early from a gap behind it."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._ends = [(piece.stored.name, piece.stored.last or 0) for piece in pieces]

    def stopped_before(self, name: str | None, revision: int) -> bool:
        """Whether some delta before the one called `name` (None: any) holds more than was taken of it."""
        for earlier, last in self._ends:
            if earlier == name:
                return False
            if last > revision:
                return True
        return False


def _continuing(pieces: list[Piece], revision: int) -> list[Piece]:
    """Each piece with its window opened behind what comes before it, and those that add nothing left out."""
    out = []
    above = revision
    for piece in pieces:
        last = piece.stored.last
        if last is not None and last <= above:
            continue
        window = replace(piece.stored.window, above=above)
        out.append(replace(piece, stored=replace(piece.stored, window=window)))
        above = above if last is None else last
    return out


def _superseding(piece: Piece, compact_revision: int) -> Piece:
    window = replace(piece.stored.window, compact_revision=compact_revision)
    return replace(piece, stored=replace(piece.stored, window=window))


def _find_newest(pieces: list[Piece], newest: dict[bytes, int]) -> int:
    """Fill `newest`; the last revision that the pieces' windows reach, the compaction's at most."""
    reached = 0
    for piece in pieces:
        stored = piece.stored
        if stored.window.above >= stored.window.compact_revision:
            return stored.window.compact_revision
        payload = codecs.HashTail(
            codecs.decompress(piece.read(), stored.suffix, name=stored.name), name=stored.name
        )
        events = delta.decode(payload, name=stored.name, last=None)
        reached = max(reached, newest_below(events, stored.window, newest))
        if stored.last is not None and reached < min(stored.last, stored.window.compact_revision):
            return reached  # the restore ends within this delta
    return reached


def _all_parts(pieces: list[Piece], page_size: int, newest: dict[bytes, int]) -> Generator[Part, None, None]:
    if sum(piece.size for piece in pieces) < IN_PLACE_BYTES:
        for piece in pieces:
            yield from parts(piece.stored, piece.read(), page_size, newest)
        return
    with ExitStack() as stack:
        workers = stack.enter_context(Replayers(page_size, newest))
        fetched = ahead(((piece.stored, b"".join(piece.read())) for piece in pieces), depth=2)
        stack.callback(fetched.close)
        yield from workers.replay(fetched)
