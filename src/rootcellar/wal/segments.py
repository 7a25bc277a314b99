"""The segments of a WAL directory, read as one log.

Segments are named `SEQUENCE-INDEX.wal` in 16 hex digits each: a running number, and the raft index that the
first new entry in it has.  etcd opens the next one when the last passed 64 MB, and purges from the front,
so the numbers must follow each other.  Other names (`*.tmp`, `*.wal.broken`) are leftovers that etcd
ignores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.errors import TornTailError, WalError
from rootcellar.wal.aftermath import later_writes_follow
from rootcellar.wal.frames import Record, SegmentReader, damaged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import BinaryIO

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.wal", re.ASCII)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a WAL.  `index` is the raft index that its first new entry has."""

    path: Path
    sequence: int
    index: int


def segment_name(sequence: int, index: int) -> str:
    """The file name of a segment."""
    return f"{sequence:016x}-{index:016x}.wal"


def list_segments(directory: Path) -> tuple[Segment, ...]:
    """The segments of a WAL in order; WalError if there is none, or if one is missing in between."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise WalError(f"{directory}: {error.strerror}", hint="give the directory member/wal") from error
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    if not matches:
        raise WalError(
            f"{directory}: no WAL segment", hint="the member never started, or its log was removed"
        )
    segments = tuple(Segment(directory / m[0], int(m[1], 16), int(m[2], 16)) for m in matches)
    for expected, segment in enumerate(segments, segments[0].sequence):
        if segment.sequence != expected:
            raise WalError(
                f"{directory}: {segment.path.name} stands where segment {expected:x} belongs",
                hint="a segment was lost or copied: restore this member, or let it join again",
            )
    return segments


def read_log(segments: tuple[Segment, ...]) -> Iterator[tuple[Segment, Record]]:
    """Every record of the log with the segment it lies in, the CRC chain proven up to each as it is yielded.

    WalError for damage; TornTailError, at the very end only, for an unfinished write.
    """
    crc: int | None = None
    for segment in segments:
        crc = yield from _read_segment(segment, crc, last=segment is segments[-1])


def _read_segment(
    segment: Segment, crc: int | None, *, last: bool
) -> Generator[tuple[Segment, Record], None, int | None]:
    """The records of one segment; returns the CRC that the next one continues."""
    offset, suspect = 0, None
    while True:
        with _open(segment.path) as file:
            reader = SegmentReader(file, segment.path.name, crc=crc, last=last, offset=offset)
            try:
                for record in reader:
                    yield segment, record
            except WalError as error:
                torn = isinstance(error, TornTailError)
                offset, crc = reader.offset, reader.crc
                if not last or (torn and not later_writes_follow(file, offset)):
                    raise
                # A running member may have been in the middle of this write: only what stays bad is bad.
                if offset == suspect and torn:
                    raise damaged(segment.path.name, offset, "later writes follow") from error
                if offset == suspect:
                    raise
                suspect = offset
            else:
                return reader.crc


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise WalError(
            f"{path.name}: {error.strerror}",
            hint="a running member purges old segments: try again; else check the permissions",
        ) from error
