"""Raft snapshot files, `TERM-INDEX.snap`: what etcd 3.4-3.6 start from, beside the database.

The file holds a CRC and a raft snapshot, whose data is a JSON dump of the long dead v2 store.  etcd keeps
the membership in it: 3.4 and 3.5 read it from there, 3.6 demands that it parses, and 3.7 only writes it.
It has to be a store that can go on: its event history must have its full thousand places, or the first v2
event panics.

A restore must write this file, and the matching record in the WAL.  Without them a cluster starts and looks
right, but a member that joins later is fed the log from its first entry instead of the database, and ends
up empty.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from rootcellar.errors import RecordError, WalError
from rootcellar.mvcc.membership import Member, decode_attributes, go_json, parse_member_key
from rootcellar.mvcc.varint import get_uvarint, put_field_bytes, put_field_uint
from rootcellar.wal.durable import cannot_write, write_file
from rootcellar.wal.frames import KEPT, crc32c
from rootcellar.wal.messages import ConfState, SnapshotMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SNAP_SUFFIX = ".snap"

_EVENT_PLACES = 1000
_MAX_STORE = 8 << 20  # the membership and its event history take some 100 KiB
_MAX_METADATA = 1 << 16
_HEAD = 32  # room for the tags, CRC and length before the data
_TAG_CRC, _TAG_DATA, _TAG_STORE, _TAG_METADATA = b"\x08", b"\x12", b"\x0a", b"\x12"
_DAMAGED_HINT = "etcd sets it aside and starts from an older one, if the log still reaches back so far"
_NO_EXPIRY = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class SnapFile:
    """A snapshot file whose CRC holds.  The v2 store lies at `store_offset`, `store_size` bytes long."""

    path: Path
    metadata: SnapshotMetadata
    store_offset: int
    store_size: int


@dataclass(frozen=True, slots=True)
class StoredMembership:
    """The membership in a snapshot's v2 store.  `cluster_version` is None until the members agreed on one."""

    members: tuple[Member, ...]
    removed: tuple[int, ...]
    cluster_version: str | None


def conf_state_of(members: Iterable[Member]) -> ConfState:
    """Voters and learners among the members, each ascending by id, as raft keeps them."""
    ordered = sorted(members, key=lambda member: member.id)
    return ConfState(
        voters=tuple(member.id for member in ordered if not member.is_learner),
        learners=tuple(member.id for member in ordered if member.is_learner),
    )


def write_snap(
    directory: Path, *, term: int, index: int, members: Iterable[Member], cluster_version: str | None = None
) -> Path:
    """Write the snapshot file of a restored cluster into `member/snap`, durably, and return its path.

    `cluster_version` (as `3.5.0`) may be left out: the members agree on one within seconds of their start.
    TargetError if the file is there already, or cannot be written.
    """
    members = sorted(members, key=lambda member: member.id)
    metadata = SnapshotMetadata(conf_state_of(members), index, term)
    store = go_json(_store(members, cluster_version))
    data = put_field_bytes(1, store) + put_field_bytes(2, metadata.encode())
    path = directory / f"{term:016x}-{index:016x}{SNAP_SUFFIX}"
    try:
        write_file(path, put_field_uint(1, crc32c(data)) + put_field_bytes(2, data))
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def _store(members: list[Member], cluster_version: str | None) -> dict[str, Any]:
    nodes = {member.key: _member_node(number, member) for number, member in enumerate(members, 1)}
    cluster = {"members": _directory("/0/members", 1, dict(sorted(nodes.items())))}
    if cluster_version is not None:
        cluster["version"] = _file("/0/version", len(members) + 1, cluster_version)
    root = _directory("/", 0, {"0": _directory("/0", 0, cluster), "1": _directory("/1", 0, {})})
    queue = {"Events": [None] * _EVENT_PLACES, "Size": 0, "Front": 0, "Back": 0, "Capacity": _EVENT_PLACES}
    return {
        "Root": root,
        "WatcherHub": {"EventHistory": {"Queue": queue, "StartIndex": 0, "LastIndex": 0}},
        "CurrentIndex": len(members) + 1,
        "Stats": {},
        "CurrentVersion": 2,
    }


def _member_node(number: int, member: Member) -> dict[str, Any]:
    path = f"/0/members/{member.key}"
    attributes = {"attributes": member.attributes(), "raftAttributes": member.raft_attributes()}
    files = {
        name: _file(f"{path}/{name}", number, go_json(value).decode()) for name, value in attributes.items()
    }
    return _directory(path, number, files)


def _directory(path: str, index: int, children: dict[str, Any]) -> dict[str, Any]:
    return {**_file(path, index, ""), "Children": children}


def _file(path: str, index: int, value: str) -> dict[str, Any]:
    return {
        "Path": path,
        "CreatedIndex": index,
        "ModifiedIndex": index,
        "ExpireTime": _NO_EXPIRY,
        "Value": value,
        "Children": None,
    }


def read_snap(path: Path) -> SnapFile:
    """Check a snapshot file's CRC, streaming, and read who was a member at which index; else WalError."""
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        raise WalError(f"{path.name}: {error.strerror}", hint="check the permissions") from error
    except (RecordError, WalError) as error:
        raise WalError(f"{path.name}: {error.message}", hint=_DAMAGED_HINT) from error


def _read(path: Path, file: BinaryIO) -> SnapFile:
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD)
    if head[:1] != _TAG_CRC:
        raise RecordError("it does not begin with a CRC")
    crc, pos = get_uvarint(head, 1)
    length, start = _sized(head, pos, _TAG_DATA)
    if start + length != size:
        raise RecordError(f"it has {size} bytes instead of {start + length}")
    computed = 0
    file.seek(start)
    while chunk := file.read(KEPT):
        computed = crc32c(chunk, computed)
    if computed != crc or not crc:
        raise RecordError(f"its CRC is {computed:08x} instead of {crc:08x}")
    file.seek(start)
    head = file.read(_HEAD)
    store_size, store = _sized(head, 0, _TAG_STORE) if head[:1] == _TAG_STORE else (0, 0)
    left = length - store - store_size
    if not 0 < left <= _MAX_METADATA:
        raise RecordError(f"{left} bytes are left for its metadata")
    file.seek(start + store + store_size)
    tail = file.read(left)
    metadata_size, at = _sized(tail, 0, _TAG_METADATA)
    if at + metadata_size != left:
        raise RecordError(f"its metadata has {left - at} bytes instead of {metadata_size}")
    return SnapFile(path, SnapshotMetadata.decode(tail[at:]), start + store, store_size)


def _sized(buf: bytes, pos: int, tag: bytes) -> tuple[int, int]:
    if buf[pos : pos + 1] != tag:
        raise RecordError(f"field {tag[0] >> 3} is not where it belongs")
    return get_uvarint(buf, pos + 1)


class _Node(msgspec.Struct):
    value: str = msgspec.field(name="Value", default="")
    children: dict[str, _Node] | None = msgspec.field(name="Children", default=None)

    def child(self, name: str) -> _Node:
        return (self.children or {}).get(name) or _Node()


class _Queue(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(name="Events")
    capacity: int = msgspec.field(name="Capacity")


class _History(msgspec.Struct):
    queue: _Queue = msgspec.field(name="Queue")


class _Hub(msgspec.Struct):
    history: _History = msgspec.field(name="EventHistory")


class _Dump(msgspec.Struct):
    root: _Node = msgspec.field(name="Root")
    hub: _Hub = msgspec.field(name="WatcherHub")


_DUMP_DECODER = msgspec.json.Decoder(_Dump)


def read_membership(snap: SnapFile) -> StoredMembership:
    """The membership that etcd 3.4 and 3.5 take from a snapshot file; WalError where they would panic."""
    if snap.store_size > _MAX_STORE:
        raise WalError(
            f"{snap.path.name}: its v2 store has {snap.store_size} bytes",
            hint="keys of the v2 API fill it; remove them with etcdctl of 3.4 or 3.5 first",
        )
    try:
        with snap.path.open("rb") as file:
            file.seek(snap.store_offset)
            dump = _DUMP_DECODER.decode(file.read(snap.store_size))
        return _membership(dump)
    except OSError as error:
        raise WalError(f"{snap.path.name}: {error.strerror}", hint="check the permissions") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WalError(f"{snap.path.name}: no v2 store: {error}", hint=_DAMAGED_HINT) from error
    except RecordError as error:
        raise WalError(f"{snap.path.name}: {error.message}", hint=_DAMAGED_HINT) from error


def _membership(dump: _Dump) -> StoredMembership:
    queue = dump.hub.history.queue
    if len(queue.events) != queue.capacity or not queue.capacity:
        raise RecordError(f"its event history has {len(queue.events)} of {queue.capacity} places")
    cluster = dump.root.child("0")
    members = [
        decode_attributes(key, node.child("raftAttributes").value, node.child("attributes").value)
        for key, node in (cluster.child("members").children or {}).items()
    ]
    return StoredMembership(
        members=tuple(sorted(members, key=lambda member: member.id)),
        removed=tuple(
            sorted(parse_member_key(key) for key in cluster.child("removed_members").children or {})
        ),
        cluster_version=cluster.child("version").value or None,
    )
