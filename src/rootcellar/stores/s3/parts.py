"""Cutting a stream of unknown length into the parts of a multipart upload.

S3 takes at most 10,000 parts.  Because nobody knows how long a stream will be, parts begin small and double
after every 1,000: from 8 MiB, 1,000 parts hold 7.8 GiB, 2,000 23 GiB, 5,000 242 GiB, and the 5 TiB that an
object may have fit in 9,282.  A store that wants all parts equal (Cloudflare R2) is served by a larger
first size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.errors import StoreError
from rootcellar.stores.s3.options import LARGEST_PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_PARTS = 10_000
_STEP = 1000


def part_size(number: int, first: int, step: int | None = None) -> int:
    """Bytes of part `number` (1 is the first) where parts begin with `first` bytes and double after every
    `step`.
    """
    return min(LARGEST_PART, first << (number - 1) // (step or _STEP))


def cut(
    chunks: Iterable[bytes], first: int, *, step: int | None = None, most: int = MOST_PARTS
) -> Iterator[tuple[bytearray, bool]]:
    """Parts in order, each with whether it is the last one.  An empty stream is one empty part.

    Holds one part, and the chunk it is made from.
    """
    number = 1
    size = part_size(number, first, step)
    part = bytearray()
    for chunk in chunks:
        rest = memoryview(chunk)
        while len(part) + len(rest) > size:  # more follows: this part is whole, and not the last
            taken = size - len(part)
            part += rest[:taken]
            rest = rest[taken:]
            if number == most:
                raise StoreError(f"the object needs more than {most:,} parts", hint="raise part-size=...")
            yield part, False
            number += 1
            size = part_size(number, first, step)
            part = bytearray()
        part += rest
    yield part, True
