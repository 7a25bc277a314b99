"""Logs that etcd of every line wrote: read to their end, after an orderly stop, a kill and a torn write."""

import base64
import contextlib
import http.client
import itertools
import json
import threading

import pytest

from rootcellar.errors import WalError
from rootcellar.wal.frames import ENTRY, FrameWriter
from rootcellar.wal.messages import encode_entry
from rootcellar.wal.segments import list_segments, read_log
from rootcellar.wal.snapfile import read_membership
from rootcellar.wal.verify import verify_member, verify_wal
from testbed.server import ServerError


def put(member, numbers, size=10):
    """Put values through etcd's JSON gateway, one after the other, and yield how many are acknowledged."""
    connection = http.client.HTTPConnection(member.endpoint.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        for number in numbers:
            value = (b"%d " % number) * (size // 2)
            pair = {"key": b"key-%d" % (number % 100), "value": value[:size]}
            body = json.dumps({name: base64.b64encode(data).decode() for name, data in pair.items()})
            connection.request("POST", "/v3/kv/put", body)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()
            yield number + 1


def put_all(member, count, size=10):
    assert list(put(member, range(count), size))[-1] == count


def status_of(member):
    (answer,) = member.etcdctl_json("endpoint", "status")
    return answer["Status"]


def member_dir(member):
    return member.data_dir / "member"


def test_a_stopped_member_left_what_it_said_of_itself(etcd, etcd_line):
    member = etcd.start(etcd_line)
    put_all(member, 20)
    status = status_of(member)
    member.stop()

    report = verify_member(member_dir(member))

    assert report.wal.member_id == status["header"]["member_id"]
    assert report.wal.cluster_id == status["header"]["cluster_id"]
    assert report.wal.term == status["raftTerm"]
    assert report.wal.first_index == 1
    # From 3.6 on, the commit of the last entry is saved with the next one.
    assert report.wal.last_index >= report.wal.commit >= status["raftIndex"] - 1
    assert report.wal.last_index >= status["raftIndex"]
    assert report.wal.torn is None
    assert not report.lacks_snapshot


def test_a_running_member_can_be_read(etcd, etcd_line):
    member = etcd.start(etcd_line)
    put_all(member, 20)
    before = status_of(member)

    report = verify_wal(member_dir(member) / "wal")

    assert report.last_index >= before["raftIndex"]
    put_all(member, 1)


def test_a_member_can_be_read_at_any_moment_while_it_writes(etcd, etcd_line):
    member = etcd.start(etcd_line, flags=["--snapshot-count", "100"])
    done = threading.Event()
    acknowledged = []

    def write():
        acknowledged.extend(
            put(member, itertools.takewhile(lambda _: not done.is_set(), itertools.count()), 5000)
        )

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    reports = []
    try:
        for _ in range(10):
            reports.append(verify_wal(member_dir(member) / "wal"))
            # What each of them waits for may be in the log already: only the write behind that is new.
            enough = len(acknowledged) + len(writers)
            member.wait_until(lambda enough=enough: len(acknowledged) > enough, "written to")
    finally:
        done.set()
        for writer in writers:
            writer.join()

    indexes = [report.last_index for report in reports]
    assert indexes == sorted(set(indexes))


def test_a_lost_block_amid_synced_writes_is_damage(etcd, etcd_line):
    # etcd would start on it and forget all writes behind the block.
    member = etcd.start(etcd_line)
    put_all(member, 50, size=2000)
    member.kill()
    wal = member_dir(member) / "wal"
    with list_segments(wal)[-1].path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(bytes(4096))

    with pytest.raises(WalError, match="later writes follow"):
        verify_wal(wal)


def test_snapshots_of_a_member_agree_with_its_log_and_its_membership(etcd, etcd_line):
    members = etcd.start_cluster(etcd_line, 3, flags=["--snapshot-count", "100"])
    put_all(members[0], 450)
    listed = members[0].etcdctl_json("member", "list")["members"]
    cluster_version = f"{etcd_line}.0"
    for member in members:  # one of them may be behind what the other two agree on
        member.wait_until(lambda asked=member: status_of(asked)["raftAppliedIndex"] > 450, "up to date")
    for member in members:
        member.stop()

    for member in members:
        report = verify_member(member_dir(member))
        stored = read_membership(report.snapshot)
        assert report.snapshot.metadata.index >= 300
        assert report.broken == ()
        assert set(report.snapshot.metadata.conf_state.voters) == {m["ID"] for m in listed}
        assert {(m.id, m.name, m.peer_urls, m.client_urls) for m in stored.members} == {
            (m["ID"], m["name"], tuple(m["peerURLs"]), tuple(m["clientURLs"])) for m in listed
        }
        assert stored.cluster_version == cluster_version
        mark = report.wal.snapshots[-1]
        assert (mark.index, mark.term) == (report.snapshot.metadata.index, report.snapshot.metadata.term)
        if etcd_line != "3.4":
            assert report.wal.conf_state == report.snapshot.metadata.conf_state


def test_a_removed_member_is_in_the_snapshot(etcd, etcd_line):
    members = etcd.start_cluster(
        etcd_line, 3, flags=["--snapshot-count", "50", "--strict-reconfig-check=false"]
    )
    statuses = {member.name: status_of(member) for member in members}
    ids = {name: status["header"]["member_id"] for name, status in statuses.items()}
    leader = next(m for m in members if ids[m.name] == statuses[m.name]["leader"])
    gone = next(ids[m.name] for m in members if m is not leader)
    leader.etcdctl("member", "remove", f"{gone:x}")
    put_all(leader, 150)
    leader.stop()

    report = verify_member(member_dir(leader))

    assert read_membership(report.snapshot).removed == (gone,)
    assert gone not in report.snapshot.metadata.conf_state.voters


def test_a_member_killed_under_load_loses_nothing_acknowledged(etcd, etcd_line):
    member = etcd.start(etcd_line, flags=["--snapshot-count", "100"])
    acknowledged = []

    def write():
        with contextlib.suppress(OSError, http.client.HTTPException):
            acknowledged.extend(put(member, itertools.count(), size=3000))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    member.wait_until(lambda: len(acknowledged) > 400, "written to")
    member.kill()
    for writer in writers:
        writer.join()

    report = verify_member(member_dir(member))

    assert report.wal.last_index >= len(acknowledged)
    assert report.snapshot.metadata.index <= report.wal.commit <= report.wal.last_index
    member.start()
    assert status_of(member)["raftIndex"] > report.wal.last_index


def test_a_log_of_several_segments_is_one_log(etcd, etcd_line):
    member = etcd.start(etcd_line)
    put_all(member, 52, size=1_300_000)
    member.stop()

    report = verify_wal(member_dir(member) / "wal")

    assert len(report.segments) == 2
    assert report.last_index - report.first_index >= 52
    assert report.torn is None


def test_etcd_cuts_a_torn_tail_where_we_say_and_goes_on(etcd, etcd_line):
    member = etcd.start(etcd_line)
    put_all(member, 20)
    member.stop()
    before = verify_wal(member_dir(member) / "wal")
    path = tear(member_dir(member) / "wal")

    torn = verify_wal(member_dir(member) / "wal")
    member.start()

    assert torn.torn.segment == path.name
    assert (torn.last_index, torn.commit) == (before.last_index, before.commit)
    assert path.with_name(f"{path.name}.broken").exists()
    put_all(member, 1)
    member.stop()
    after = verify_wal(member_dir(member) / "wal")
    assert after.torn is None
    assert after.last_index > before.last_index
    # What etcd wrote next begins where we said that the log ends.
    ends = {record.offset for _, record in read_log(list_segments(member_dir(member) / "wal"))}
    assert torn.torn.valid_length in ends


def tear(wal):
    """Append the first two sectors of an entry that has eight; in which segment."""
    report = verify_wal(wal)
    *_, (segment, last) = read_log(list_segments(wal))
    data = encode_entry(0, report.last_term, report.last_index + 1, b"t" * 4000)
    frame = FrameWriter(last.crc).frame(ENTRY, data)
    with segment.path.open("r+b") as file:
        file.seek(last.offset)
        size = int.from_bytes(file.read(7), "little")
        file.seek(last.offset + 8 + size + -size % 8)
        file.write(frame[:1024])
    return segment.path


def test_etcd_refuses_what_we_call_damage(etcd, etcd_line):
    member = etcd.start(etcd_line)
    put_all(member, 20, size=400)
    member.stop()
    wal = member_dir(member) / "wal"
    entries = [(segment, record) for segment, record in read_log(list_segments(wal)) if record.type == ENTRY]
    segment, record = entries[len(entries) // 2]
    with segment.path.open("r+b") as file:
        file.seek(record.offset + 100)
        byte = file.read(1)[0]
        file.seek(record.offset + 100)
        file.write(bytes([byte ^ 1]))

    with pytest.raises(
        WalError, match=f"{segment.path.name}: damaged at byte {record.offset}: a record's CRC"
    ):
        verify_wal(wal)
    with pytest.raises(ServerError, match="exited with"):
        member.start()
