"""Raft snapshot files: what is written is read, what is damaged is refused."""

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import TargetError, WalError
from rootcellar.mvcc.membership import Member, parse_members
from rootcellar.mvcc.varint import put_field_bytes, put_field_uint
from rootcellar.wal.frames import crc32c
from rootcellar.wal.messages import ConfState, SnapshotMetadata
from rootcellar.wal.snapfile import StoredMembership, conf_state_of, read_membership, read_snap, write_snap

MEMBERS = (
    *parse_members(["a=http://a:1,b=http://b:1"], token="t"),
    Member(2**64 - 1, 'na<m>e"', ("http://c:1", "http://d:1"), ("http://c:2",), is_learner=True),
)


def snap_with(path, store):
    """A snapshot file whose CRC holds, with any bytes as its v2 store."""
    data = put_field_bytes(1, store) + put_field_bytes(2, SnapshotMetadata(ConfState((1,)), 5, 2).encode())
    path.write_bytes(put_field_uint(1, crc32c(data)) + put_field_bytes(2, data))
    return read_snap(path)


def store_of(snap):
    return json.loads(snap.path.read_bytes()[snap.store_offset :][: snap.store_size])


@pytest.mark.parametrize("version", [None, "3.5.0"])
def test_a_snapshot_file_comes_back_with_its_members(tmp_path, version):
    path = write_snap(tmp_path, term=7, index=5000, members=reversed(MEMBERS), cluster_version=version)

    snap = read_snap(path)

    assert path.name == "0000000000000007-0000000000001388.snap"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert snap.metadata == SnapshotMetadata(conf_state_of(MEMBERS), index=5000, term=7)
    assert snap.metadata.conf_state.learners == (2**64 - 1,)
    assert read_membership(snap) == StoredMembership(tuple(sorted(MEMBERS, key=lambda m: m.id)), (), version)


def test_the_store_has_the_shape_that_a_running_etcd_goes_on_with(tmp_path):
    store = store_of(read_snap(write_snap(tmp_path, term=1, index=3, members=MEMBERS)))
    queue = store["WatcherHub"]["EventHistory"]["Queue"]
    member = store["Root"]["Children"]["0"]["Children"]["members"]["Children"][MEMBERS[0].key]

    assert queue["Events"] == [None] * queue["Capacity"] == [None] * 1000
    assert store["CurrentVersion"] == 2
    assert store["Root"]["Children"]["1"]["Children"] == {}
    assert member["Path"] == f"/0/members/{MEMBERS[0].key}"
    assert member["Children"]["raftAttributes"] == {
        "Path": f"/0/members/{MEMBERS[0].key}/raftAttributes",
        "CreatedIndex": 1,
        "ModifiedIndex": 1,
        "ExpireTime": "0001-01-01T00:00:00Z",
        "Value": '{"peerURLs":["http://' + MEMBERS[0].name + ':1"]}',
        "Children": None,
    }


def test_a_file_is_never_overwritten(tmp_path):
    path = write_snap(tmp_path, term=1, index=3, members=MEMBERS)
    before = path.read_bytes()

    with pytest.raises(TargetError, match="cannot be written: File exists"):
        write_snap(tmp_path, term=1, index=3, members=MEMBERS[:1])

    assert path.read_bytes() == before


def test_every_flipped_bit_of_a_snapshot_file_is_found(tmp_path):
    path = write_snap(tmp_path, term=7, index=5000, members=MEMBERS[:1])
    good = path.read_bytes()

    for position in range(len(good)):
        flipped = bytearray(good)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(WalError, match=path.name) as caught:
            read_snap(path)
        assert caught.value.hint


def test_a_snapshot_file_cut_at_any_length_is_refused(tmp_path):
    path = write_snap(tmp_path, term=7, index=5000, members=MEMBERS[:1])
    good = path.read_bytes()

    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(WalError, match=path.name):
            read_snap(path)


def test_a_missing_snapshot_file_is_a_wal_error(tmp_path):
    with pytest.raises(WalError, match=r"x\.snap: No such file"):
        read_snap(tmp_path / "x.snap")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_snapshot_or_a_wal_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.snap"
    path.write_bytes(data)

    with pytest.raises(WalError):
        read_snap(path)


def test_a_snapshot_without_a_store_is_read_but_holds_no_members(tmp_path):
    data = put_field_bytes(2, SnapshotMetadata(ConfState((1,)), 5, 2).encode())
    (tmp_path / "x.snap").write_bytes(put_field_uint(1, crc32c(data)) + put_field_bytes(2, data))

    snap = read_snap(tmp_path / "x.snap")

    assert (snap.metadata.index, snap.store_size) == (5, 0)
    with pytest.raises(WalError, match="no v2 store"):
        read_membership(snap)


QUEUE = b'"WatcherHub":{"EventHistory":{"Queue":{"Events":[null],"Capacity":1}}}'


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (b"{}", "no v2 store"),
        (
            b'{"Root":{},"WatcherHub":{"EventHistory":{"Queue":{"Events":[],"Capacity":1000}}}}',
            "0 of 1000 places",
        ),
        (b'{"Root":{},"WatcherHub":{"EventHistory":{"Queue":{"Events":[],"Capacity":0}}}}', "0 of 0 places"),
        (
            b'{"Root":{"Children":{"0":{"Children":{"members":{"Children":{"x":{}}}}}}},' + QUEUE + b"}",
            "member x",
        ),
        (
            b'{"Root":{"Children":{"0":{"Children":{"members":{"Children":{"1":{}}}}}}},' + QUEUE + b"}",
            "member 1",
        ),
        (
            b'{"Root":{"Children":{"0":{"Children":{"removed_members":{"Children":{"x":{}}}}}}},'
            + QUEUE
            + b"}",
            "'x' is no member id",
        ),
        (b'{"Root":' + b'{"Children":{"a":' * 50_000, "no v2 store"),
        (b"[" * 100_000, "no v2 store"),
        (b"\xff", "no v2 store"),
        (b" " * (9 << 20), "has 9437184 bytes"),
    ],
)
def test_a_store_on_which_etcd_would_panic_is_refused(tmp_path, store, complaint):
    snap = snap_with(tmp_path / "x.snap", store)

    with pytest.raises(WalError, match=complaint):
        read_membership(snap)


def test_removed_members_are_told(tmp_path):
    store = (
        b'{"Root":{"Children":{"0":{"Children":{"removed_members":{"Children":{"b":{},"a":{}}}}}}},'
        + QUEUE
        + b"}"
    )

    assert read_membership(snap_with(tmp_path / "x.snap", store)).removed == (10, 11)
