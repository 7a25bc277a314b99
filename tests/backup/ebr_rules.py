"""EBR's rules, executable: what `etcdbrctl restore` would say of a prefix, from what it reads and nothing
else.

It knows the listing and the bytes of what parses as a snapshot.  It shares no code with rootcellar, so that a
misunderstanding there is not repeated here.  One string per violation; an empty list means that EBR restores
the prefix to the last revision named in it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
import zlib
from itertools import groupby, pairwise
from typing import Any, NamedTuple

MAX_MESSAGE = 2 << 20  # gRPC's send limit in EBR's client, bytes
MAX_OPS = 10_240
HASH_SIZE = 32


class Seen(NamedTuple):
    """What EBR's parser makes of a key."""

    key: str
    kind: str
    start: int
    last: int
    created: int
    suffix: str
    chunk: bool


_NUMBER = r"(\+?[0-9]+)"
_TOKENS = re.compile(rf"(Full|Incr)-{_NUMBER}-{_NUMBER}-{_NUMBER}(?=[./]|\Z)([^-/]*)(/[^-]*)?\Z")
_MEANT = re.compile(
    r"(v2|v1/Backup-[0-9]+)/(Full-00000000|Incr-[0-9]{8,})-[0-9]{8,}-[0-9]+(\.gz|\.zlib|\.Z)?(\.final)?\Z"
)


def parse(path: str) -> Seen | None:
    """A whole key, bucket-relative, with the prefix."""
    if "v1/" in path:
        below = path.rsplit("v1/", 1)[1].split("/")
        name, chunk = below[1:], len(below) == 3
    elif "v2/" in path:
        below = path.rsplit("v2/", 1)[1].split("/")
        name, chunk = below, len(below) == 2
    else:
        return None
    match = _TOKENS.match("/".join(part for part in name if part))
    if len(below) > 3 or match is None:
        return None
    start, last, created = (int(match[group]) for group in (2, 3, 4))
    if start > last or max(last, created) >= 2**63:
        return None
    dotted = match[5].split(".")[1:]
    suffix = f".{dotted[0]}" if dotted and dotted[0] != "final" else ""
    return Seen(path, match[1], start, last, created, suffix, chunk)


def check_prefix(store: Any, prefix: str = "shoot/etcd-main") -> list[str]:
    """Violations of EBR's rules by what lies in the store, were it mounted at this prefix of a bucket."""
    violations: list[str] = []
    seen = _listing(store, prefix, violations)
    fulls = [index for index, each in enumerate(seen) if each.kind == "Full"]
    if not fulls:
        return [*violations, "EBR finds no full"]
    try:
        revision = _restore_full(store, seen[fulls[-1]], violations)
        for index, delta in enumerate(seen[fulls[-1] + 1 :]):
            revision = _apply(store, delta, revision, violations, is_first=index == 0)
    except Abort as abort:
        violations.append(str(abort))
    return violations


class Abort(Exception):  # noqa: N818  it is where EBR's restore ends
    """What EBR cannot go on after."""


def _listing(store: Any, prefix: str, violations: list[str]) -> list[Seen]:
    """What EBR takes for snapshots, in its order."""
    seen = []
    for info in store.list():
        parsed = parse(f"{prefix}/{info.key}" if prefix else info.key)
        if parsed is None or parsed.chunk:
            continue
        if not _MEANT.match(info.key):
            violations.append(f"{info.key}: EBR takes it for a snapshot")
        seen.append(parsed._replace(key=info.key))
    seen.sort(key=lambda each: (each.last, each.created))
    for one, other in pairwise(each for each in seen if each.kind == "Full"):
        if (one.last, one.created) == (other.last, other.created):
            violations.append(f"{other.key}: EBR cannot tell it from {one.key}")
    return seen


def _restore_full(store: Any, full: Seen, violations: list[str]) -> int:
    """The revision etcd comes up with."""
    database = _payload(store, full)
    if len(database) % 512:
        raise Abort(f"{full.key}: database and hash are not 32 bytes above a multiple of 512")
    revision = current_revision(database)
    if revision < full.last:
        violations.append(f"{full.key}: it ends at revision {revision}, before its name's")
    return revision


def _apply(store: Any, delta: Seen, revision: int, violations: list[str], *, is_first: bool) -> int:
    """The revision etcd is at afterwards."""
    payload = _payload(store, delta)
    if is_first and revision == delta.last:
        return revision  # EBR skips a first delta that the full already holds
    events = [_event(element) for element in json.loads(payload)]
    if events[-1].revision != delta.last:
        violations.append(f"{delta.key}: its last event has revision {events[-1].revision}")
    if is_first:
        events = [event for event in events if event.revision > revision]
        if not events:
            raise Abort(f"{delta.key}: the full holds all of it and more (it ends at {revision})")
    for of_event, group in groupby(events, key=lambda event: event.revision):
        revision += 1
        if of_event != revision:
            raise Abort(f"{delta.key}: its revision {of_event} would be replayed as {revision}")
        violations += _transaction_problems(delta, of_event, list(group))
    if revision != delta.last:
        raise Abort(f"{delta.key}: after it etcd would be at revision {revision}")
    return revision


class Event(NamedTuple):
    revision: int
    delete: bool
    key: bytes
    value: bytes


def _event(element: dict[str, Any]) -> Event:
    event = element["etcdEvent"]
    kv = event["kv"]
    return Event(
        kv["mod_revision"],
        event.get("type", 0) == 1,
        base64.b64decode(kv["key"], validate=True),
        base64.b64decode(kv.get("value", ""), validate=True),
    )


def _transaction_problems(delta: Seen, revision: int, events: list[Event]) -> list[str]:
    problems = []
    if len(events) > MAX_OPS:
        problems.append(f"{delta.key}: revision {revision} has {len(events)} operations")
    size = 0
    for event in events:
        request = _field(event.key) if event.delete else _field(event.key) + _field(event.value)
        size += _nested(_nested(request))
    if size > MAX_MESSAGE:
        problems.append(f"{delta.key}: revision {revision} is a request of {size} bytes")
    return problems


def _nested(size: int) -> int:
    return 1 + (max(size.bit_length(), 1) + 6) // 7 + size


def _field(value: bytes) -> int:
    return _nested(len(value)) if value else 0


def _payload(store: Any, seen: Seen) -> bytes:
    raw = b"".join(store.get(seen.key))
    unpack = {"": bytes, ".gz": gzip.decompress, ".zlib": zlib.decompress, ".Z": lzw}.get(seen.suffix)
    if unpack is None:
        raise Abort(f"{seen.key}: unsupported compression {seen.suffix}")
    try:
        payload = unpack(raw)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise Abort(f"{seen.key}: cannot be decompressed ({error})") from error
    if len(payload) <= HASH_SIZE:
        raise Abort(f"{seen.key}: too short for a hash")
    if hashlib.sha256(payload[:-HASH_SIZE]).digest() != payload[-HASH_SIZE:]:
        raise Abort(f"{seen.key}: the hash at its end is wrong")
    return payload[:-HASH_SIZE]


def lzw(raw: bytes) -> bytes:
    """Go's compress/lzw, LSB first, 8-bit literals, one code after the other."""
    out = bytearray()
    stream, bits = int.from_bytes(raw, "little"), len(raw) * 8
    at, width = 0, 9
    table: list[bytes] = []
    previous = b""
    while True:
        if at + width > bits:
            raise EOFError("no end code")
        code = stream >> at & ((1 << width) - 1)
        # Shifting the whole number for every code would be quadratic.
        at += width
        if at > 1 << 15:
            stream, bits, at = stream >> at, bits - at, 0
        if code == 257:
            return bytes(out)
        if code == 256:
            table, previous, width = [], b"", 9
            continue
        if code < 256:
            entry = bytes([code])
        elif code - 258 < len(table):
            entry = table[code - 258]
        elif code - 258 == len(table) and previous:
            entry = previous + previous[:1]
        else:
            raise ValueError("no such code")
        if previous and len(table) < 4096 - 258:
            table.append(previous + entry[:1])
        out += entry
        # The reader is one string behind the writer: it has seen one code more than it has strings.
        coming = len(table) + 258 + 1
        width = max(9, min(12, (coming - 1).bit_length()))
        previous = entry


def current_revision(database: bytes) -> int:
    """The revision etcd comes up with on this bbolt file: its last row's, or a later compaction's."""
    size, root = _meta(database)
    revision = 1
    rows = _bucket(database, size, root, b"key")
    if rows is not None and (row := _last_key(database, size, *rows)) is not None:
        revision = max(revision, struct.unpack(">q", row[:8])[0])
    meta = _bucket(database, size, root, b"meta")
    if meta is not None:
        for name in (b"finishedCompactRev", b"scheduledCompactRev"):
            found = _find(database, size, *meta, name)
            if found is not None:
                revision = max(revision, struct.unpack(">q", found[1][:8])[0])
    return revision


def _meta(database: bytes) -> tuple[int, int]:
    best = (-1, 0, 0)
    for at in (0, 4096, 16384, 65536):
        if len(database) < at + 80:
            continue
        magic, version, size, _, root, _, _, _, txid, checksum = struct.unpack_from(
            "<IIIIQQQQQQ", database, at + 16
        )
        fnv = 0xCBF29CE484222325
        for byte in database[at + 16 : at + 72]:
            fnv = (fnv ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        if magic == 0xED0CDAED and version == 2 and fnv == checksum and at in (0, size):
            best = max(best, (txid, size, root))
    if best[0] < 0:
        raise ValueError("no valid meta page")
    return best[1], best[2]


def _page(database: bytes, size: int, number: int, inline: bytes | None) -> bytes:
    if inline is not None:
        return inline
    _, _, _, overflow = struct.unpack_from("<QHHI", database, number * size)
    return database[number * size : (number + 1 + overflow) * size]


def _elements(page: bytes) -> list[tuple[bytes, int, bytes]]:
    """(key, child page or flags, value) of a branch or leaf page."""
    _, flags, count, _ = struct.unpack_from("<QHHI", page)
    found = []
    for at in range(16, 16 + 16 * count, 16):
        if flags & 1:
            position, key_size, child = struct.unpack_from("<IIQ", page, at)
            found.append((page[at + position : at + position + key_size], child, b""))
        else:
            kind, position, key_size, value_size = struct.unpack_from("<IIII", page, at)
            key_at = at + position
            value_at = key_at + key_size
            found.append((page[key_at:value_at], kind, page[value_at : value_at + value_size]))
    return found


def _is_branch(page: bytes) -> bool:
    return bool(struct.unpack_from("<QH", page)[1] & 1)


def _find(
    database: bytes, size: int, number: int, inline: bytes | None, key: bytes
) -> tuple[int, bytes] | None:
    page = _page(database, size, number, inline)
    while _is_branch(page):
        below = [child for first, child, _ in _elements(page) if first <= key]
        if not below:
            return None
        page = _page(database, size, below[-1], None)
    return next(((kind, value) for found, kind, value in _elements(page) if found == key), None)


def _bucket(database: bytes, size: int, root: int, name: bytes) -> tuple[int, bytes | None] | None:
    found = _find(database, size, root, None, name)
    if found is None:
        return None
    number = struct.unpack_from("<Q", found[1])[0]
    return (number, None) if number else (0, found[1][16:])


def _last_key(database: bytes, size: int, number: int, inline: bytes | None) -> bytes | None:
    page = _page(database, size, number, inline)
    while _is_branch(page):
        page = _page(database, size, _elements(page)[-1][1], None)
    elements = _elements(page)
    return elements[-1][0] if elements else None
