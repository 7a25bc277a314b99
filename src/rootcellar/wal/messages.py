"""The messages in WAL records and raft snapshots (`raftpb`, `walpb`, `etcdserverpb.Metadata`), by hand.

They are written as etcd 3.4-3.6 write them, zero scalars included and fields in ascending order; 3.7 leaves
out what it does not set.  Every version reads both forms, and so does this module.  Beyond that it is
stricter than etcd: a field that a message does not have, or one that comes twice or out of order, is
refused.  The CRC of a WAL record does not cover its type, so this is what tells an entry from a hard state
when a type byte was hit.  Every error is a `WalError`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rootcellar.errors import RecordError, WalError
from rootcellar.mvcc.varint import (
    LENGTH,
    VARINT,
    Field,
    fields,
    get_uvarint,
    put_field_bytes,
    put_field_uint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NORMAL, _CONF_CHANGE_V2 = 0, 2


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        raise WalError(f"a {what} cannot be read: {error.message}") from error


@dataclass(frozen=True, slots=True)
class Metadata:
    """What every segment of a WAL repeats: whose log it is."""

    member_id: int
    cluster_id: int

    def encode(self) -> bytes:
        return put_field_uint(1, self.member_id) + put_field_uint(2, self.cluster_id)

    @classmethod
    @_reading("metadata")
    def decode(cls, data: bytes) -> Self:
        member_id, cluster_id = _uints(data, 2)
        return cls(member_id, cluster_id)


@dataclass(frozen=True, slots=True)
class HardState:
    """What a raft node must not forget: its term, its vote in it, and how far the log is committed."""

    term: int
    vote: int
    commit: int

    def encode(self) -> bytes:
        return put_field_uint(1, self.term) + put_field_uint(2, self.vote) + put_field_uint(3, self.commit)

    @classmethod
    @_reading("hard state")
    def decode(cls, data: bytes) -> Self:
        state = cls(*_uints(data, 3))
        if not state.term:
            raise WalError("a hard state has no term")  # etcd never saves an empty one
        return state


@dataclass(frozen=True, slots=True)
class ConfState:
    """Who takes part in consensus.  The outgoing and next sets are empty except in a joint configuration."""

    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False

    def encode(self) -> bytes:
        sets = (self.voters, self.learners, self.voters_outgoing, self.learners_next)
        ids = [put_field_uint(number, member) for number, members in enumerate(sets, 1) for member in members]
        return b"".join(ids) + put_field_uint(5, int(self.auto_leave))

    @classmethod
    @_reading("conf state")
    def decode(cls, data: bytes) -> Self:
        sets: dict[int, list[int]] = {1: [], 2: [], 3: [], 4: []}
        auto_leave = 0
        for field in _strict(data, 5, repeated=True):
            if field.number == 5:
                auto_leave = field.uint64()
            elif field.wire_type == LENGTH:
                sets[field.number] += _packed(field.bytes())
            else:
                sets[field.number].append(field.uint64())
        return cls(tuple(sets[1]), tuple(sets[2]), tuple(sets[3]), tuple(sets[4]), bool(auto_leave))


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """A WAL's note that everything up to `index` is in a snapshot.  etcd 3.4 writes no conf state into it."""

    index: int
    term: int
    conf_state: ConfState | None = None

    def encode(self) -> bytes:
        data = put_field_uint(1, self.index) + put_field_uint(2, self.term)
        return data if self.conf_state is None else data + put_field_bytes(3, self.conf_state.encode())

    @classmethod
    @_reading("snapshot record")
    def decode(cls, data: bytes) -> Self:
        index = term = 0
        conf_state = None
        for field in _strict(data, 3):
            if field.number == 1:
                index = field.uint64()
            elif field.number == 2:
                term = field.uint64()
            else:
                conf_state = ConfState.decode(field.bytes())
        return cls(index, term, conf_state)


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """The end of a raft snapshot: who was a member at `index`, an entry of `term`."""

    conf_state: ConfState
    index: int
    term: int

    def encode(self) -> bytes:
        conf_state = put_field_bytes(1, self.conf_state.encode())
        return conf_state + put_field_uint(2, self.index) + put_field_uint(3, self.term)

    @classmethod
    @_reading("snapshot metadata")
    def decode(cls, data: bytes) -> Self:
        conf_state, index, term = ConfState(()), 0, 0
        for field in _strict(data, 3):
            if field.number == 1:
                conf_state = ConfState.decode(field.bytes())
            elif field.number == 2:
                index = field.uint64()
            else:
                term = field.uint64()
        return cls(conf_state, index, term)


@dataclass(frozen=True, slots=True)
class EntryHead:
    """Where an entry stands in the log.  What it says (a request, a conf change) is not read."""

    type: int
    term: int
    index: int

    @classmethod
    def decode(cls, data: bytes, size: int) -> Self:
        """`data` is the entry or at least its beginning; `size` is the whole entry's length in bytes."""
        values = [0, 0, 0]
        pos, least = 0, 1
        try:
            while pos < size:
                tag, pos = get_uvarint(data, pos)
                number, wire_type = tag >> 3, tag & 7
                if number == 4 and wire_type == LENGTH:
                    length, pos = get_uvarint(data, pos)
                    if pos + length != size:
                        raise WalError(f"an entry of {size} bytes holds {length} bytes of data")
                    break
                if wire_type != VARINT or not least <= number <= 3:
                    raise WalError(f"an entry has an unexpected field {number} of wire type {wire_type}")
                values[number - 1], pos = get_uvarint(data, pos)
                least = number + 1
        except RecordError as error:
            raise WalError(f"an entry cannot be read: {error.message}") from error
        head = cls(*values)
        if not head.term or not head.index or not _NORMAL <= head.type <= _CONF_CHANGE_V2:
            raise WalError(f"no entry has type {head.type}, term {head.term} and index {head.index}")
        return head


def encode_entry(entry_type: int, term: int, index: int, data: bytes | None = None) -> bytes:
    """A raft entry as etcd 3.4-3.6 write it; the leader's first entry of a term has no data at all."""
    head = put_field_uint(1, entry_type) + put_field_uint(2, term) + put_field_uint(3, index)
    return head if data is None else head + put_field_bytes(4, data)


def _strict(data: bytes, last: int, *, repeated: bool = False) -> Iterator[Field]:
    least = 1
    for field in fields(data):
        if not least <= field.number <= last:
            raise RecordError(f"field {field.number} is unexpected")
        least = field.number if repeated else field.number + 1
        yield field


def _uints(data: bytes, count: int) -> list[int]:
    values = [0] * count
    for field in _strict(data, count):
        values[field.number - 1] = field.uint64()
    return values


def _packed(data: bytes) -> list[int]:
    values, pos = [], 0
    while pos < len(data):
        value, pos = get_uvarint(data, pos)
        values.append(value)
    return values
