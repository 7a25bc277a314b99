"""A new bbolt file with nothing in it: two meta pages that name one empty root page, and no free list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.bolt.layout import LEAF, NO_FREELIST, PAGE_HEADER, Meta

if TYPE_CHECKING:
    from pathlib import Path

_ROOT = 2


def create(path: Path, page_size: int) -> None:
    """Make `path`, which must not be there; a `Transaction` fills it.  `page_size` in bytes.  Raises
    OSError.
    """
    metas = (Meta(page_size, _ROOT, NO_FREELIST, _ROOT + 1, txid) for txid in (0, 1))
    image = b"".join(meta.page(meta.txid) for meta in metas)
    image += PAGE_HEADER.pack(_ROOT, LEAF, 0, 0).ljust(page_size, b"\0")
    with path.open("xb") as file:
        file.write(image)
