import pytest

from rootcellar.errors import CompactedError, ConfigError, EtcdError
from rootcellar.etcd import operations as ops
from rootcellar.etcd.answers import Alarm, AlarmKind
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess


def test_the_header_names_the_newest_revision(shared):
    before = shared.header().revision
    written = shared.put(b"header/a", b"1")
    assert written.revision == before + 1
    assert shared.header() == written


def test_a_member_says_its_own_status(shared, binary):
    status = shared.status()
    assert status.version == binary.version
    assert status.leader == status.header.member_id
    assert status.db_size >= status.db_size_in_use > 0
    assert not status.is_learner
    assert status.errors == ()


def test_a_range_is_paged_at_the_revision_of_its_first_page(shared):
    for number in range(25):
        shared.put(b"page/%02d" % number, b"old")
    pages = shared.pages(b"page/", b"page0", keys=10)
    first = next(pages)
    shared.put(b"page/20", b"new")
    shared.put(b"page/99", b"new")
    rest = list(pages)
    assert [len(page.kvs) for page in (first, *rest)] == [10, 10, 5]
    assert {page.total for page in (first, *rest)} <= {25, 15, 5}
    assert all(kv.value == b"old" for page in rest for kv in page.kvs)


def test_a_range_reads_the_past(shared):
    then = shared.put(b"past", b"1").revision
    shared.put(b"past", b"2")
    assert [kv.value for kv in shared.range(b"past", revision=then).kvs] == [b"1"]
    assert [kv.value for kv in shared.range(b"past").kvs] == [b"2"]


def test_a_deleted_range_is_counted(shared):
    for number in range(3):
        shared.put(b"delete/%d" % number, b"")
    assert shared.delete(b"delete/", b"delete0") == 3
    assert shared.delete(b"delete/0") == 0


def test_a_transaction_takes_one_branch(shared):
    absent = [ops.mod_revision_is(b"txn", 0)]
    write = [ops.put(b"txn", b"1"), ops.get(b"txn")]
    first = shared.txn(write, compare=absent, otherwise=[ops.get(b"txn")])
    second = shared.txn(write, compare=absent, otherwise=[ops.get(b"txn")])
    assert first.succeeded
    assert not second.succeeded
    assert [kv.value for kv in second.ranges[0].kvs] == [b"1"]


def test_a_lease_says_what_it_was_granted_and_takes_its_keys_with_it(shared):
    lease = shared.lease_grant(1000)
    assert shared.lease_grant(500, lease=77) == 77
    shared.put(b"leased", b"1", lease=lease)
    ttl = shared.lease_ttl(lease)
    assert ttl.granted == 1000
    assert 990 < ttl.remaining <= 1000
    assert set(shared.leases()) >= {lease, 77}
    shared.lease_revoke(lease)
    assert shared.lease_ttl(lease) is None
    assert shared.range(b"leased").total == 0


def test_what_is_compacted_is_told_from_what_fails(client):
    for value in b"1", b"2", b"3":
        newest = client.put(b"a", value).revision
    client.compact(newest, physical=True)
    with pytest.raises(CompactedError, match="compacted") as caught:
        client.range(b"a", revision=newest - 1)
    assert caught.value.hint == "take a new full"
    with pytest.raises(CompactedError):
        client.hash_kv(newest - 1)
    assert client.range(b"a", revision=newest).total == 1


def test_equal_histories_have_equal_hashes(client):
    assert client.hash_kv().compact_revision == -1
    for value in b"1", b"2", b"3":
        newest = client.put(b"a", value).revision
    old, new = client.hash_kv(newest - 1), client.hash_kv()
    assert (old.revision, new.revision) == (newest - 1, newest)
    assert old.hash != new.hash
    client.put(b"a", b"4")
    assert client.hash_kv(newest) == new


def test_an_alarm_is_raised_and_disarmed(binary, tmp_path):
    def fill():
        for number in range(100):
            client.put(b"%d" % number, bytes(100_000))

    flags = ["--quota-backend-bytes=1000000", "--unsafe-no-fsync"]
    with (
        EtcdProcess(binary, tmp_path / "data", flags=flags) as member,
        EtcdClient([member.client_url]) as client,
    ):
        member.wait_ready(client)
        assert client.alarms() == ()
        with pytest.raises(EtcdError, match="database space exceeded") as caught:
            fill()
        assert "compact" in caught.value.hint
        alarm = Alarm(client.status().header.member_id, AlarmKind.NOSPACE)
        assert client.alarms() == (alarm,)
        client.disarm(alarm)
        assert client.alarms() == ()


def test_defragmenting_gives_space_back(client):
    for _ in range(20):
        newest = client.put(b"a", bytes(100_000)).revision
    client.compact(newest, physical=True)
    before = client.status().db_size
    client.defragment()
    assert client.status().db_size < before


def test_too_large_a_write_has_a_hint(shared):
    with pytest.raises(EtcdError, match="request is too large") as caught:
        shared.put(b"large", bytes(1_600_000))
    assert "--max-request-bytes" in caught.value.hint


@pytest.mark.parametrize(
    ("endpoints", "message"),
    [
        ([], "no etcd endpoint is given"),
        (["ftp://a:1"], "not an etcd endpoint"),
        (["http://"], "not an etcd endpoint"),
        (["http://a:1/v3"], "not an etcd endpoint"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused(endpoints, message):
    with pytest.raises(ConfigError, match=message) as caught:
        EtcdClient(endpoints)
    assert "http://" in caught.value.hint
