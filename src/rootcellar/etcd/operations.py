"""The parts of a transaction: what to compare, what to do."""

from __future__ import annotations

from rootcellar.etcd._proto.rpc_pb2 import Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp

Comparison = Compare
Operation = RequestOp


def put(key: bytes, value: bytes, *, lease: int = 0) -> Operation:
    """Write a key."""
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, range_end: bytes = b"") -> Operation:
    """Delete a key or a range."""
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key, range_end=range_end))


def get(key: bytes, range_end: bytes = b"") -> Operation:
    """Read a key or a range."""
    return RequestOp(request_range=RangeRequest(key=key, range_end=range_end))


def mod_revision_is(key: bytes, revision: int) -> Comparison:
    """The key was last written at this revision; 0 means that it does not exist."""
    return Compare(key=key, target=Compare.MOD, result=Compare.EQUAL, mod_revision=revision)
