"""Members that stand on our WAL and snapshot file, judged by etcd itself.

The database is what etcdutl restores, so that nothing but these two files is ours.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from rootcellar.mvcc.membership import cluster_id, parse_members
from rootcellar.wal.snapfile import write_snap
from rootcellar.wal.verify import verify_member
from rootcellar.wal.write import write_wal
from testbed.etcd import HashKV, start_together

TOKEN = "a-token-of-its-own"
FLAGS = ["--strict-reconfig-check=false"]  # else a member may only be added when all were up for 5 s


@dataclass(frozen=True)
class Backup:
    path: object
    hash: HashKV


@pytest.fixture
def backup(etcd, etcd_line, tmp_path):
    """A snapshot with a history: overwritten, deleted and compacted keys."""
    source = etcd.start(etcd_line)
    for number in range(30):
        source.etcdctl("put", f"key-{number % 20}", f"value-{number}")
    source.etcdctl("del", "key-3")
    source.etcdctl("compact", "10")
    source.etcdctl("put", "last", "value")
    path = tmp_path / "snapshot.db"
    source.etcdctl("snapshot", "save", path)
    found = source.hash_kv()
    source.kill()
    return Backup(path, found)


def restore(member, backup, *, index, term, cluster_version=None):
    """Let etcdutl restore a data directory, then put our log and snapshot file in place of its own."""
    member.etcdutl(
        *("snapshot", "restore", backup.path, "--data-dir", member.data_dir),
        *("--name", member.name, "--initial-advertise-peer-urls", member.peer_url),
        *("--initial-cluster", member.initial_cluster, "--initial-cluster-token", TOKEN),
    )
    members = parse_members([member.initial_cluster], token=TOKEN)
    me = next(m for m in members if m.name == member.name)
    theirs = verify_member(member.data_dir / "member")
    assert (theirs.wal.member_id, theirs.wal.cluster_id) == (me.id, cluster_id(m.id for m in members))
    place(member.data_dir / "member" / "snap" / "db", index, term)

    shutil.rmtree(member.data_dir / "member" / "wal")
    theirs.snapshot.path.unlink()
    position = {"index": index, "term": term}
    write_wal(
        member.data_dir / "member" / "wal",
        member_id=me.id,
        cluster_id=theirs.wal.cluster_id,
        voters=[m.id for m in members],
        **position,
    )
    write_snap(
        member.data_dir / "member" / "snap", members=members, cluster_version=cluster_version, **position
    )
    ours = verify_member(member.data_dir / "member")
    assert (ours.wal.member_id, ours.wal.cluster_id) == (theirs.wal.member_id, theirs.wal.cluster_id)
    assert not ours.lacks_snapshot


def place(db, index, term):
    """Move a database to another raft position, in place: values of the same length have no checksum."""
    data = db.read_bytes()
    data, count = re.subn(rb"(consistent_index)[\0-\xff]{8}", lambda m: m[1] + index.to_bytes(8, "big"), data)
    assert count
    db.write_bytes(re.sub(rb"(term)\0{7}\x01", lambda m: m[1] + term.to_bytes(8, "big"), data))


def join(etcd, line, members):
    """Add one more member to a running cluster, empty, and wait until it serves."""
    joiner = etcd.make(line, "joiner", flags=["--initial-cluster-state", "existing"])
    joiner.initial_cluster = f"{members[0].initial_cluster},joiner={joiner.peer_url}"
    members[0].etcdctl("member", "add", "joiner", f"--peer-urls={joiner.peer_url}")

    def serves():
        try:
            # Beyond index 5000 an etcd that got a snapshot refuses all until one more entry comes by itself.
            members[0].etcdctl("put", "writes", "go on")
            joiner.etcdctl("endpoint", "health", "--command-timeout=5s")
        except subprocess.CalledProcessError:
            return False
        return True

    joiner.start_soon()
    joiner.wait_until(serves, "serving")
    return joiner


def hashes(members):
    """What each member says of the whole keyspace, once it has caught up."""
    revision = members[0].hash_kv().revision
    for member in members:
        member.etcdctl("get", "anything")
    return {member.hash_kv(revision) for member in members}


@pytest.mark.parametrize(("index", "term"), [pytest.param(1, 1, marks=pytest.mark.long), (5000, 7)])
def test_a_member_on_our_log_serves_restarts_and_hands_its_data_to_one_that_joins(
    etcd, etcd_line, backup, index, term
):
    member = etcd.make(etcd_line, "m1", flags=FLAGS)
    restore(member, backup, index=index, term=term)

    member.start()
    assert member.hash_kv() == backup.hash
    member.etcdctl("put", "after", "restore")
    member.stop()
    member.start()
    assert "restore" in member.etcdctl("get", "after")
    member.etcdctl("put", "after", "restart")

    joiner = join(etcd, etcd_line, [member])
    assert len(hashes([member, joiner])) == 1
    assert "restart" in joiner.etcdctl("get", "after", "--consistency", "s")
    status = member.etcdctl_json("endpoint", "status")[0]["Status"]
    report = verify_member(member.data_dir / "member").wal
    assert report.member_id == status["header"]["member_id"]
    assert report.cluster_id == status["header"]["cluster_id"]
    assert report.term == status["raftTerm"] > term


def test_three_members_on_our_logs_form_a_quorum_and_take_in_a_fourth(etcd, etcd_line, backup):
    members = etcd.make_cluster(etcd_line, 3, flags=FLAGS)
    for member in members:
        restore(member, backup, index=5000, term=7, cluster_version=f"{etcd_line}.0")

    start_together(members)
    assert hashes(members) == {backup.hash}
    members[1].etcdctl("put", "after", "restore")
    for member in members:
        member.stop()
    start_together(members)
    members[2].etcdctl("put", "after", "restart")

    joiner = join(etcd, etcd_line, members)
    assert len(hashes([*members, joiner])) == 1
    assert {m["name"] for m in joiner.etcdctl_json("member", "list")["members"]} == {
        "m1",
        "m2",
        "m3",
        "joiner",
    }
