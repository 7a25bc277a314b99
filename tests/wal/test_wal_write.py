"""The log of a restored member, as far as it can be judged without an etcd (see test_restored_members)."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import TargetError, UsageError
from rootcellar.wal.messages import ConfState, HardState, Metadata, SnapshotMark, SnapshotMetadata
from rootcellar.wal.verify import verify_wal
from rootcellar.wal.write import write_wal

uint64s = st.integers(0, 2**64 - 1)
ids = st.lists(uint64s, max_size=4).map(tuple)
conf_states = st.builds(ConfState, ids, ids, ids, ids, st.booleans())
NEW = {"member_id": 3, "cluster_id": 9, "term": 7, "index": 5000, "voters": [5, 3]}


def test_a_restored_member_stands_at_its_index_with_nothing_to_replay(tmp_path):
    write_wal(tmp_path / "wal", **NEW, learners=[4])

    report = verify_wal(tmp_path / "wal")

    assert (report.member_id, report.cluster_id) == (3, 9)
    assert report.hard_state == HardState(term=7, vote=3, commit=5000)
    assert (report.first_index, report.last_index, report.last_term) == (5001, 5000, 7)
    assert report.conf_state == ConfState((3, 5), (4,))
    assert report.torn is None


def test_the_log_is_one_sparse_segment_that_only_its_owner_reads(tmp_path):
    path = write_wal(tmp_path / "wal", **NEW)

    assert path.name == "0000000000000000-0000000000000000.wal"
    assert path.stat().st_size == 64_000_000
    assert path.stat().st_blocks * 512 <= 64_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_members_of_a_cluster_differ_only_in_their_id(tmp_path):
    logs = {
        member: write_wal(tmp_path / f"wal-{member}", **{**NEW, "member_id": member}).read_bytes()
        for member in (3, 5)
    }

    assert logs[3] != logs[5]
    assert verify_wal(tmp_path / "wal-3").hard_state == verify_wal(tmp_path / "wal-5").hard_state


def test_a_log_is_never_overwritten(tmp_path):
    before = write_wal(tmp_path / "wal", **NEW).read_bytes()

    with pytest.raises(TargetError, match="wal cannot be written: File exists") as caught:
        write_wal(tmp_path / "wal", **{**NEW, "term": 8})

    assert caught.value.hint == "restore into an empty directory, or say that it may be replaced"
    assert (tmp_path / "wal" / "0000000000000000-0000000000000000.wal").read_bytes() == before


def test_a_place_that_takes_no_files_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(TargetError, match="cannot be written: Not a directory") as caught:
        write_wal(tmp_path / "file" / "wal", **NEW)

    assert caught.value.hint == "check its permissions and the free space"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"voters": []}, "one of them must vote"),
        ({"voters": [3, 3]}, "ids that differ"),
        ({"voters": [3], "learners": [3]}, "ids that differ"),
        ({"voters": [0, 3]}, "ids that differ"),
        ({"voters": [5]}, "member 3 is not one of the cluster"),
        ({"term": 0}, "no log stands at index 5000 of term 0"),
        ({"index": 0}, "no log stands at index 0 of term 7"),
    ],
)
def test_a_member_that_cannot_be_is_refused_and_nothing_written(tmp_path, change, complaint):
    with pytest.raises(UsageError, match=complaint):
        write_wal(tmp_path / "wal", **{**NEW, **change})

    assert not (tmp_path / "wal").exists()


@given(uint64s, uint64s)
def test_metadata_comes_back(member, cluster):
    assert Metadata.decode(Metadata(member, cluster).encode()) == Metadata(member, cluster)


@given(st.integers(1, 2**64 - 1), uint64s, uint64s)
def test_a_hard_state_comes_back(term, vote, commit):
    assert HardState.decode(HardState(term, vote, commit).encode()) == HardState(term, vote, commit)


@given(uint64s, uint64s, st.none() | conf_states)
def test_a_snapshot_mark_comes_back(index, term, conf_state):
    mark = SnapshotMark(index, term, conf_state)

    assert SnapshotMark.decode(mark.encode()) == mark


@given(uint64s, uint64s, conf_states)
def test_snapshot_metadata_comes_back(index, term, conf_state):
    metadata = SnapshotMetadata(conf_state, index, term)

    assert SnapshotMetadata.decode(metadata.encode()) == metadata


def test_messages_have_the_bytes_of_etcd(tmp_path):
    # From what etcdutl 3.5.1 restored: two members at index 2.
    voters = (0x5C76A90AE78BCEE7, 0xBB91926054364AFA)
    mark = SnapshotMark(2, 1, ConfState(voters))
    metadata = SnapshotMetadata(ConfState(voters), 2, 1)

    assert mark.encode().hex() == "080210011a1708e79dafbcaea1aabb5c08fa95d9a185cce4c8bb012800"
    assert metadata.encode().hex() == "0a1708e79dafbcaea1aabb5c08fa95d9a185cce4c8bb01280010021801"
    assert HardState(1, voters[0], 2).encode().hex() == "080110e79dafbcaea1aabb5c1802"
