"""What a key may be.

One rule for all providers, so that a copy from one to another never meets a key the other cannot hold: the
narrowest of them, a file system and an XML document, decides.  Reading and deleting stay lenient where the
provider allows it: what others wrote must be seen and must be removable.
"""

from __future__ import annotations

from rootcellar.errors import UsageError

KEY_LIMIT = 1024
"""Bytes of UTF-8 that every S3 accepts, prefix included."""

SEGMENT_LIMIT = 255
"""Bytes that a file system accepts between two slashes."""


def checked(key: str, *, prefix: str = "") -> str:
    """`key` itself, if it can be written below `prefix` in every kind of store; else UsageError."""
    segments = key.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        raise UsageError(
            f"{key!r} is no key: a part of it is empty, '.' or '..'",
            hint="write it relative to the store's prefix, parts joined by single slashes",
        )
    if any(segment.startswith(".") for segment in segments):
        raise UsageError(
            f"{key!r} is no key: a part of it begins with a dot", hint="dot names are temporary files"
        )
    if "\\" in key:
        raise UsageError(f"{key!r} is no key: it holds a backslash", hint="some servers take it for a slash")
    if not key.isprintable():
        raise UsageError(f"{key!r} is no key: it holds a character that cannot be printed")
    try:
        encoded = [segment.encode() for segment in segments]
    except UnicodeEncodeError as error:
        raise UsageError(f"{key!r} is no key: it is not Unicode text") from error
    if any(len(segment) > SEGMENT_LIMIT for segment in encoded):
        raise UsageError(f"{key!r} is no key: a part of it is longer than {SEGMENT_LIMIT} bytes")
    if len(f"{prefix}{key}".encode()) > KEY_LIMIT:
        raise UsageError(f"{key!r} is no key: with the prefix it is longer than {KEY_LIMIT} bytes")
    return key


def whole(base: str, key: str) -> str:
    """A key that is read or deleted, with the prefix; UsageError for an empty one."""
    if not key:
        raise UsageError("an empty key names no object")
    return f"{base}{key}"


def checked_range(start: int, end: int | None) -> None:
    """Refuse a byte range [start, end) that cannot be meant."""
    if start < 0 or (end is not None and end < start):
        raise UsageError(f"bytes [{start}, {end}) is no range")
