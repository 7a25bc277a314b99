"""What lies behind a tear: the rest of one unfinished write, or writes that were made after it.

etcd takes any bad record with a sector of zeros, or with a length past the end, for a torn write.  It cuts
the log there and starts, even when a lost block in the middle did it and thousands of acknowledged entries
follow.

Which of the two it is can be proven.  etcd saves entries, then a hard state, and syncs both before it saves
the next entries.  So where an entry, a hard state and an entry follow the tear, all whole, the first of them
and everything before it was on the disk when the last was written: something else than a crash took it away.

The proof fails for a member that ran with `--unsafe-no-fsync` through a power cut, whose log is no better for
it, and where the torn entry itself holds a WAL segment as its value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rootcellar.errors import WalError
from rootcellar.wal.frames import ENTRY, KEPT, STATE, SegmentReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_RECORD = re.compile(rb"\x08[\x02\x03\x05]\x10")  # an entry, hard state or snapshot, up to the CRC's tag
_ALIGNMENT = 8
_TRIES = 1000  # a hostile file may hold millions of places that look like a record


def later_writes_follow(file: BinaryIO, tear: int) -> bool:
    """Whether what follows offset `tear` in a segment was written after that place was synced."""
    tries = walked = 0
    for at in _places(file, tear):
        if at < walked:
            continue
        found, walked = _walk(file, at)
        if found:
            return True
        tries += 1
        if tries == _TRIES:
            break
    return False


def _places(file: BinaryIO, tear: int) -> Iterator[int]:
    """Offsets behind the tear where a frame may begin."""
    first = start = tear + _ALIGNMENT
    overlap = b""
    file.seek(start)
    while chunk := file.read(KEPT):
        window = overlap + chunk
        resume = file.tell()
        for match in _RECORD.finditer(window):
            record = start - len(overlap) + match.start()
            if record % _ALIGNMENT == 0 and record > first:
                yield record - _ALIGNMENT
        start += len(chunk)
        overlap = window[-2:]
        file.seek(resume)


def _walk(file: BinaryIO, at: int) -> tuple[bool, int]:
    """Follow frames from `at` on, each vouched for by the next one's CRC.

    Returns whether an entry, a state and an entry are among them, and where the last look began.
    """
    awaited = [ENTRY, STATE, ENTRY]
    reader = SegmentReader(file, "", crc=None, last=False, offset=at)
    proven = 0
    try:
        for record in reader:
            if record.type == awaited[0]:
                del awaited[0]
            if not awaited:
                return True, reader.offset
            proven = record.offset
    except WalError:
        pass  # another tear, or no record at all
    return False, proven
