"""Object names as gardener/etcd-backup-restore ("EBR") writes and reads them.

`v2/Full-00000000-00009002-1565021494.gz` is all that EBR knows about an object before it opens it: kind,
first and last revision, unix seconds, compression and whether it is the last word before a migration.
Anything whose key parses is a backup to EBR, so the parser here follows its grammar with its oddities;
`SnapshotName.extra` says when a key is one that EBR would take for a snapshot although nobody meant it as
one.

What EBR cannot open, because it is zstd or encrypted, is *sealed*: it lies in `sealed/snapshots/`, under a
spelling without dashes that EBR's parser takes for nothing, and the suffix says which of the two it is.

Names are hints.  The real last revision of a full can exceed the one in its name, because EBR reads the
revision before it starts the stream.  Nothing here looks into an object.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from rootcellar.errors import UsageError

GZIP: Final = ".gz"
ZLIB: Final = ".zlib"
LZW: Final = ".Z"
NONE: Final = ""
READABLE_SUFFIXES: Final = frozenset({GZIP, ZLIB, LZW, NONE})
WRITABLE_SUFFIXES: Final = frozenset({GZIP, ZLIB, NONE})
ZSTD: Final = ".zst"
AGE: Final = ".age"
SEALED_SUFFIXES: Final = frozenset({ZSTD, ZSTD + AGE, GZIP + AGE, AGE})
SEALED: Final = "sealed/snapshots/"

LATEST_SECOND: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())
"""The end of what a calendar knows.  A name may say far more: EBR reads any 63 bits."""

_FINAL = ".final"
_FURTHER = re.compile(
    r"(.+?)/(?:v[12]/(?:Backup-\d+/)?(?:Full|Incr)-|" + SEALED + r"(?:full|delta)_)", re.ASCII
)
_GO_INTEGER = re.compile(r"\+?[0-9]+\Z", re.ASCII)  # a minus sign cannot occur: names are split at dashes
_INT64_MAX = 2**63 - 1
_SEALED_KEY = re.compile(
    SEALED + r"(full|delta)_(\d{8,19})_(\d{8,19})_(\d{1,19})((?:\.\w+)*?)(\.final)?\Z", re.ASCII
)


class Kind(StrEnum):
    """The two kinds of snapshot object; the value is the stem of the name."""

    FULL = "Full"
    DELTA = "Incr"


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """What a key says.  `created` is in unix seconds, UTC, taken just before the upload.

    `key` is relative to the store's prefix.  `directory` is the key up to the name (`v2/`, or
    `v1/Backup-1565021494/`).  `part` marks a piece of a large object (`<name>/0000000001`) that some stores
    keep beside the whole.  `extra` holds what EBR's parser skips over (`.sha256` in `....gz.sha256`, `/a/b`
    behind a name): not empty means that EBR sees a snapshot where there is none.
    """

    kind: Kind
    start: int
    last: int
    created: int
    suffix: str
    final: bool
    key: str
    directory: str
    part: bool = False
    extra: str = ""

    @property
    def name(self) -> str:
        """The name without its directory."""
        return self.key[len(self.directory) :]

    @property
    def created_at(self) -> datetime:
        """`created` as a person reads it, LATEST_SECOND for what lies behind."""
        return datetime.fromtimestamp(min(self.created, LATEST_SECOND), UTC)

    @property
    def is_sealed(self) -> bool:
        """Whether EBR neither sees nor reads it."""
        return self.directory == SEALED

    @property
    def is_encrypted(self) -> bool:
        return self.is_sealed and self.suffix.endswith(AGE)

    @property
    def is_snapshot(self) -> bool:
        """False for parts and for keys that only look like a snapshot."""
        return not self.part and not self.extra

    @property
    def order(self) -> tuple[int, bool, int]:
        """EBR's sort key: last revision, parts behind wholes, then time.  Its sort is not stable beyond
        that.
        """
        return self.last, self.part, self.created


def full(last: int, created: int, suffix: str = GZIP, *, final: bool = False) -> SnapshotName:
    """The name of a full that holds everything up to `last`.  Raises UsageError."""
    return _written(Kind.FULL, 0, last, created, suffix, final=final)


def delta(start: int, last: int, created: int, suffix: str = GZIP) -> SnapshotName:
    """The name of a delta; `start` is the previous snapshot's last revision + 1.  Raises UsageError."""
    return _written(Kind.DELTA, start, last, created, suffix, final=False)


def _written(kind: Kind, start: int, last: int, created: int, suffix: str, *, final: bool) -> SnapshotName:
    if suffix not in WRITABLE_SUFFIXES | SEALED_SUFFIXES:
        raise UsageError(
            f"snapshots are not written with suffix {suffix!r}",
            hint="choose gzip, zlib or none, which etcdbrctl reads, or zstd",
        )
    if not 0 <= start <= last <= _INT64_MAX or not 0 <= created <= _INT64_MAX:
        raise UsageError(f"no snapshot can hold revisions {start} to {last} at second {created}")
    if suffix in SEALED_SUFFIXES:
        directory = SEALED
        name = f"{kind.name.lower()}_{start:08d}_{last:08d}_{created}{suffix}{_FINAL if final else ''}"
    else:
        directory = "v2/"
        name = f"{kind.value}-{start:08d}-{last:08d}-{created}{suffix}{_FINAL if final else ''}"
    return SnapshotName(kind, start, last, created, suffix, final, directory + name, directory)


def parse(key: str) -> SnapshotName | None:
    """Read a key as EBR's parser does; None is what EBR ignores.

    Version directory: the last `v1/` anywhere in the key, else the last `v2/`; a substring, not a path
    segment.  Behind it at most three segments.  v1 takes the first as a directory and a third as a part; v2
    takes a second as a part, and a third makes it a snapshot again.  The name has exactly four tokens
    between dashes.  The fourth ends at the first `/`, and of its dotted pieces only the first two and the
    last count.
    """
    version, at = "v1/", key.rfind("v1/")
    if at < 0:
        version, at = "v2/", key.rfind("v2/")
    if at < 0:
        return None
    segments = key[at + 3 :].split("/")
    if len(segments) > 3:
        return None
    if version == "v1/":
        directory, name, part = segments[0] + "/", _go_join(segments[1:]), len(segments) == 3
    else:
        directory, name, part = "", _go_join(segments), len(segments) == 2
    tokens = name.split("-")
    if len(tokens) != 4 or tokens[0] not in (Kind.FULL, Kind.DELTA):
        return None
    last_token, slash, below = tokens[3].partition("/")
    pieces = last_token.split(".")
    start, last, created = _go_int(tokens[1]), _go_int(tokens[2]), _go_int(pieces[0])
    if start is None or last is None or created is None or start > last:
        return None
    final = len(pieces) > 1 and pieces[-1] == "final"
    suffix = "." + pieces[1] if len(pieces) > 1 and pieces[1] != "final" else ""
    known = suffix + (_FINAL if final else "")
    extra = last_token[len(pieces[0]) :].removeprefix(known)
    if not part:
        extra += slash + below
    return SnapshotName(
        kind=Kind(tokens[0]),
        start=start,
        last=last,
        created=created,
        suffix=suffix,
        final=final,
        key=key,
        directory=key[: at + 3] + directory,
        part=part,
        extra=extra,
    )


def parse_sealed(key: str) -> SnapshotName | None:
    """A key in `sealed/snapshots/`, with whatever suffix; None for any other."""
    match = _SEALED_KEY.match(key)
    if match is None:
        return None
    start, last, created = int(match[2]), int(match[3]), int(match[4])
    if start > last or max(last, created) > _INT64_MAX:
        return None
    kind = Kind[match[1].upper()]
    return SnapshotName(kind, start, last, created, match[5], match[6] is not None, key, SEALED)


def read(key: str) -> SnapshotName | None:
    """A key as `parse_sealed` or `parse` reads it."""
    return parse_sealed(key) or parse(key)


def further_down(key: str) -> str | None:
    """The prefix below this one whose snapshot a key is (`shoot--a--b/etcd-main`), without the slash."""
    match = _FURTHER.match(key)
    return match[1] if match is not None else None


def visibility_problem(prefix: str) -> str | None:
    """Why EBR would misread snapshots below this store prefix (bucket-relative, no slash at the ends), or
    None.

    EBR parses whole keys, so its view depends on the prefix; ours does not.
    """
    probe = full(1, 1).key
    seen = parse(f"{prefix}/{probe}" if prefix else probe)
    if seen is not None and seen.is_snapshot and seen.name == probe.removeprefix("v2/"):
        return None
    return f"etcdbrctl cannot see snapshots below {prefix!r}: a path segment there ends in 'v1'"


def _go_join(segments: list[str]) -> str:
    """Go's path.Join: empty segments vanish, then the path is cleaned."""
    joined = "/".join(segment for segment in segments if segment)
    return posixpath.normpath(joined) if joined else ""


def _go_int(text: str) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64) for text without a minus sign."""
    if len(text) > 1024 or not _GO_INTEGER.match(text):  # no store has keys longer than that
        return None
    value = int(text)
    return value if value <= _INT64_MAX else None
