"""Keys out of a backup, for other programs to read.

**JSON lines** (`lines`): one object per key, UTF-8, in key order, with these members; those marked * are left
out when they would be empty, zero or null.

    key | keyBase64       text when it is printable UTF-8 (line breaks and tabs included), else base64
    value | valueBase64   likewise; both are missing when values were not asked for
    createRevision, modRevision, version
    lease *               hexadecimal, as etcdctl prints it
    kubernetes *          encoding, apiVersion *, kind *, namespace *, name *, uid *, labels *, provider *,
                          keyName *

Members may be added; these keep their names and meanings.

**Raw** (`tree`): one file per key that holds its value, below an empty directory.  A key's segments become
directories, each percent-encoded (`_path` has the rules), so that no key leads out of it, hides, or falls
together with another.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from rootcellar.errors import TargetError
from rootcellar.mvcc.kubernetes import KubernetesObject  # noqa: TC001  msgspec reads the annotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rootcellar.backup.browse.browse import Found

SUFFIX = ".value"
_LONGEST_NAME = 240
"""Bytes: file systems allow 255, and the suffix has to fit as well."""
_LONGEST_PATH = 2000
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.:@+=,-]")


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One line; see the module."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    create_revision: int
    mod_revision: int
    version: int
    lease: str = ""
    kubernetes: KubernetesObject | None = None


def lines(found: Iterable[Found], *, values: bool = True) -> Iterator[bytes]:
    """Each key as a line with its line break."""
    encoder = msgspec.json.Encoder()
    for each in found:
        yield encoder.encode(line(each, values=values)) + b"\n"


def line(found: Found, *, values: bool = True) -> Line:
    """One key as a line."""
    record = found.record
    key = text(record.key)
    value = text(record.value) if values else None
    encoded = _base64(record.value) if values and value is None else None
    return Line(
        key=key,
        key_base64=_base64(record.key) if key is None else None,
        value=value,
        value_base64=encoded,
        create_revision=record.create_revision,
        mod_revision=record.mod_revision,
        version=record.version,
        lease=f"{record.lease & (1 << 64) - 1:x}" if record.lease else "",
        kubernetes=found.kubernetes,
    )


def text(data: bytes) -> str | None:
    """Bytes as text, if they are printable UTF-8, line breaks and tabs included."""
    try:
        decoded = data.decode()
    except UnicodeDecodeError:
        return None
    return decoded if decoded.translate(_LAYOUT).isprintable() else None


_LAYOUT = str.maketrans("", "", "\n\r\t")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def tree(found: Iterable[Found], directory: Path) -> Iterator[tuple[bytes, Path]]:
    """Write each key's value to a file of its own below `directory`; yields the key and the file.

    The directory is made if need be (modes 0700 and 0600: values are secrets as often as not) and has to be
    empty.  Raises TargetError.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if next(directory.iterdir(), None) is not None:
            raise TargetError(f"{directory} is not empty", hint="name a directory that is new or empty")
        for each in found:
            path = directory / _path(each.record.key)
            _make(path.parent, directory)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(each.record.value)
            yield each.record.key, path
    except OSError as error:
        raise TargetError(
            f"{error.filename or directory}: {error.strerror or error}",
            hint="what was written is there still",
        ) from error


def _make(directory: Path, top: Path) -> None:
    if directory != top and not directory.is_dir():
        _make(directory.parent, top)
        directory.mkdir(mode=0o700)


def _path(key: bytes) -> PurePosixPath:
    """Where a key's value goes, relative to the top.

    Each segment between slashes is a directory, the last one a file with SUFFIX.  Encoded as %XX: all but
    letters, digits and `_.:@+=,-`; a dot that begins a segment; a dot that would make a directory end like a
    file.  An empty segment is `%`.  A key too long for a file system goes by its SHA-256, below `%long`.
    """
    *above, last = (_escaped(segment) for segment in key.split(b"/"))
    names = [re.sub(r"\.value\Z", "%2Evalue", name) for name in above] + [last + SUFFIX]
    if (
        max(map(len, names)) > _LONGEST_NAME + len(SUFFIX)
        or sum(map(len, names)) + len(names) > _LONGEST_PATH
    ):
        return PurePosixPath("%long", hashlib.sha256(key).hexdigest() + SUFFIX)
    return PurePosixPath(*names)


def _escaped(segment: bytes) -> str:
    if not segment:
        return "%"
    encoded = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], segment).decode("ascii")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded
