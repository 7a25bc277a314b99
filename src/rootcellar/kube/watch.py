"""One answer of a watch, line by line, until it ends or is closed.

What the API server sends is in `WatchEvent` of meta/v1: one JSON document per line with a type and an object.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from rootcellar.errors import KubeError, KubeGoneError
from rootcellar.kube.refusal import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from urllib3 import BaseHTTPResponse

_BLOCK = 1 << 16
_LONGEST = 32 << 20
"""Bytes of a line.  etcd holds no object above a few MiB; what never ends is not from an API server."""


class Event(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; of a bookmark only the resourceVersion counts."""

    type: str
    object: bytes


class _Line(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(Struct, frozen=True):
    code: int = 500


_LINES = msgspec.json.Decoder(_Line)


class Watch:
    """Iterate in one thread; `close`, from any thread, ends that.

    Iterating ends when the server ends the answer.  It raises KubeUnavailableError when the line breaks or
    is silent for too long, KubeError for what is no event, KubeGoneError where the server says by an ERROR
    event that the history from here on cannot be had: list again.
    """

    def __init__(
        self,
        response: BaseHTTPResponse,
        path: str,
        translated: Callable[[str, str], AbstractContextManager[None]],
    ) -> None:
        self._response, self._path, self._translated = response, path, translated
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._response.close()

    def close(self) -> None:
        """Have the thread that iterates stop.  Whoever opened the watch still leaves its `with` block."""
        self._closed.set()
        # What has been read to its end, or never had a connection, has none to shut down.
        with suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def __iter__(self) -> Iterator[Event]:
        parts: list[bytes] = []
        while block := self._block():
            parts.append(block)
            if b"\n" not in block:
                if sum(map(len, parts)) > _LONGEST:
                    raise self._unreadable(f"a line of more than {_LONGEST >> 20} MiB")
                continue
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            for line in lines:
                if self._closed.is_set():
                    return
                if line.strip():
                    yield self._event(line)
        if b"".join(parts).strip() and not self._closed.is_set():
            raise self._unreadable("an answer that ends in the middle of a line")

    def _block(self) -> bytes:
        if self._closed.is_set():
            return b""
        try:
            with self._translated("watch", self._path):
                return self._response.read1(_BLOCK)
        except Exception:
            if (
                self._closed.is_set()
            ):  # a socket that is shut down in the middle of a read says so in many ways
                return b""
            raise

    def _event(self, line: bytes) -> Event:
        try:
            found = _LINES.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        if found.type == "ERROR":
            raise self._ended(bytes(found.object))
        return Event(found.type, bytes(found.object))

    def _ended(self, status: bytes) -> KubeGoneError:
        with suppress(msgspec.DecodeError):
            code = msgspec.json.decode(status, type=_Status).code
            return KubeGoneError(refusal("watch", self._path, code, status).message, operation="watch")
        return KubeGoneError(f"watch {self._path}: ended by an error that cannot be read", operation="watch")

    def _unreadable(self, why: str) -> KubeError:
        return KubeError(
            f"watch {self._path}: what came cannot be read: {why}",
            hint="is there a proxy before the API server?",
            operation="watch",
        )
