"""Headers that several providers want in the same form, and what is made of those that are missing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from rootcellar.errors import TransientError
from rootcellar.stores.meaning import SOMEBODY

if TYPE_CHECKING:
    from rootcellar.stores.wire import Answer, Stream


def md5(body: bytes | bytearray) -> str:
    """The Content-MD5 of a request, which the store compares."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def quoted(etag: str) -> str:
    """An etag as HTTP writes it."""
    return etag if etag.startswith('"') else f'"{etag}"'


def told(answer: Answer | Stream, where: str, operation: str, *names: str) -> None:
    """TransientError where an answer lacks what every such answer has: it is somebody else's, or cut short
    (a connection may break between the first line and the headers, and nothing below us notices).
    """
    lacking = [name for name in names if name not in answer.headers]
    if lacking:
        raise TransientError(
            f"{where}: cut short: the answer has no {' and no '.join(lacking)}",
            hint=SOMEBODY,
            operation=operation,
        )
