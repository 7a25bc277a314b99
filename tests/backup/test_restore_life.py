"""An etcd on restored data and the one that was backed up: no client can tell one from the other."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack

import msgspec
import pytest

from rootcellar.backup.capture.capture import capture
from rootcellar.backup.restore.restore import restore
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import CompactedError, EtcdDeniedError, EtcdError
from rootcellar.etcd.client import ALL_KEYS, EtcdClient
from rootcellar.mvcc.hashkv import hash_kv
from testbed.etcd import start_together
from tests.backup.plans import plan_of, restore_members
from tests.backup.session_scene import wait_until
from tests.backup.source import Source
from tests.mvcc.workload import Workload

# Else a member may only be added when all have been up for 5 s.
FLAGS = ["--strict-reconfig-check=false"]


@pytest.fixture
def clients():
    """Clients of members, closed after the test."""
    with ExitStack() as stack:
        yield lambda member, **user: stack.enter_context(EtcdClient([member.endpoint], **user))


@pytest.fixture
def lived(etcd, etcd_line, store, clients):
    """A source with a full and two deltas behind it, at rest now."""
    client = clients(etcd.start(etcd_line))
    workload = Workload(client, 11)
    workload.run(40)
    source = Source(client, store)
    source.full()
    for _ in range(2):
        workload.run(60)
        source.delta()
    return source


def history(client, first, last):
    """Everything a client can learn: the keys at each revision, and the events from each third one on."""
    keys = {}
    for revision in range(first, last + 1):
        kvs = client.range(*ALL_KEYS, revision=revision).kvs
        keys[revision] = [kv.SerializeToString(deterministic=True) for kv in kvs]
    return keys


def events(client, first, last):
    with client.watch(first) as watch:
        found = []
        for batch in watch:
            found += [event.SerializeToString(deterministic=True) for event in batch.events]
            if batch.last >= last and batch.events:
                return found
    raise AssertionError("a watch without end has ended")


def test_it_serves_the_whole_history_and_goes_on_like_the_source(etcd, etcd_line, lived, clients):
    source, last = lived.client, lived.last
    member = etcd.make(etcd_line)
    restore_members([member], lived.store)
    member.start()
    restored = clients(member)

    assert restored.header().revision == last
    assert history(restored, 1, last) == history(source, 1, last)
    for first in (2, last // 2, last):
        assert events(restored, first, last) == events(source, first, last)

    for client in (source, restored):
        workload = Workload(client, 12)
        workload.run(50)
        client.compact(last - 5, physical=True)
        client.defragment()
        workload.run(50)
    now = source.header().revision
    assert restored.header().revision == now
    assert history(restored, last - 5, now) == history(source, last - 5, now)
    assert restored.hash_kv() == source.hash_kv()

    member.stop()
    member.start()
    assert restored.hash_kv() == source.hash_kv()


def test_a_member_that_joins_gets_the_keyspace_and_not_an_empty_one(etcd, etcd_line, lived, clients):
    members = etcd.make_cluster(etcd_line, 3, flags=FLAGS)
    restore_members(members, lived.store)
    start_together(members)
    members[0].etcdctl("put", "written", "before")

    joiner = etcd.make(etcd_line, "joiner", flags=["--initial-cluster-state", "existing"])
    joiner.initial_cluster = f"{members[0].initial_cluster},joiner={joiner.peer_url}"
    members[0].etcdctl("member", "add", "joiner", f"--peer-urls={joiner.peer_url}")
    joiner.start()
    members[1].etcdctl("put", "written", "after")

    last = members[1].hash_kv().revision  # of the one that answered; others may not know of it yet
    for member in (*members, joiner):
        member.wait_until(lambda asked=member: asked.hash_kv().revision == last, "caught up")
    assert {member.hash_kv(last) for member in (*members, joiner)} == {members[0].hash_kv(last)}
    assert len(members[0].etcdctl_json("member", "list")["members"]) == 4


def test_users_and_their_permissions_come_back_with_auth_on(etcd, etcd_line, store, clients):
    origin = etcd.start(etcd_line)
    admin = clients(origin)
    admin.user_add("root", "secret", roles=["root"])
    admin.role_add("reader", (b"a", b"c"))
    admin.role_add("writer", (b"c", b"d"), write=True)
    admin.user_add("ann", "word", roles=["reader", "writer"])
    admin.put(b"b", b"1")
    admin.put(b"z", b"1")
    admin.auth_enable()
    source = Source(clients(origin, user="root", password="secret"), store)
    source.full()
    source.client.put(b"c", b"1")
    source.delta()

    member = etcd.make(etcd_line)
    restored = restore_members([member], store)
    member.start()

    assert restored.auth_enabled
    as_root = ("--user", "root:secret")
    for question in ("user list", "user get ann", "role get reader", "role get writer"):
        assert member.etcdctl(*question.split(), *as_root) == origin.etcdctl(*question.split(), *as_root)
    ann = clients(member, user="ann", password="word")
    assert ann.range(b"b").kvs[0].value == b"1"
    ann.put(b"c", b"2")
    with pytest.raises(EtcdDeniedError):
        ann.put(b"b", b"2")
    with pytest.raises(EtcdDeniedError):
        clients(member).range(b"b")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_cluster_that_has_not_met_all_its_members_yet_is_brought_back(
    etcd, etcd_line, store, clients, is_recorded
):
    *started, _never = etcd.make_cluster(etcd_line)
    start_together(started)
    client = clients(started[0])
    client.put(b"a", b"1")
    wait_until(lambda: cluster_version(started[0]) == "3.0.0")
    if is_recorded:
        capture(client, store, full=True, writer="rootcellar/1")
    else:
        Source(client, store).full()

    member = etcd.make(etcd_line)
    restored = restore_members([member], store)
    member.start()

    said = etcd_line if is_recorded else "3.4" if etcd_line == "3.4" else "3.5"
    assert restored.for_etcd == said
    assert clients(member).range(b"a").kvs[0].value == b"1"


def cluster_version(member):
    with urllib.request.urlopen(f"{member.endpoint}/version", timeout=30) as answer:
        return json.load(answer)["etcdcluster"]


def put_on_a_brief_lease(client, key):
    """The lease; where the machine stood still until it had ended, another."""
    while True:
        lease = client.lease_grant(3)
        try:
            client.put(key, b"", lease=lease)
        except EtcdError as error:
            assert "lease not found" in error.message  # noqa: PT017  as the next one may do
        else:
            return lease


def test_leases_hold_their_keys_and_take_them_along_when_they_end(etcd, etcd_line, store, clients):
    source = Source(clients(etcd.start(etcd_line)), store)
    client = source.client
    kept = client.lease_grant(5000)
    client.put(b"in-full/kept", b"", lease=kept)
    ending = put_on_a_brief_lease(client, b"in-full/ending")
    source.full()
    recorded, forgotten, unused = (client.lease_grant(ttl) for ttl in (600, 700, 800))
    client.put(b"in-delta/recorded", b"", lease=recorded)
    client.put(b"in-delta/forgotten", b"", lease=forgotten)
    client.put(b"in-delta/moved", b"", lease=recorded)
    client.put(b"in-delta/moved", b"", lease=kept)
    client.lease_revoke(unused)
    source.delta()

    member = etcd.make(etcd_line)
    plan = plan_of(store, members=[f"{member.name}={member.peer_url}"])
    plan = msgspec.structs.replace(plan, lease_ttls={recorded: 2})
    restored = restore(plan, store, {member.name: member.data_dir})
    member.start()

    assert (restored.leases_created, restored.leases_of_unknown_ttl) == (2, 1)
    copy = clients(member)
    assert {kept, forgotten} <= set(copy.leases()) <= {kept, ending, recorded, forgotten}
    assert copy.lease_ttl(kept).granted == 5000
    assert copy.lease_ttl(forgotten).granted == 3600  # the stated default
    left = {b"in-full/kept", b"in-delta/forgotten", b"in-delta/moved"}
    member.wait_until(lambda: {kv.key for kv in copy.range(*ALL_KEYS).kvs} == left, "without ended leases")


def test_a_key_of_a_full_that_is_cut_back_still_ends_with_its_lease(etcd, etcd_line, store, clients):
    source = Source(clients(etcd.start(etcd_line)), store)
    client = source.client
    ended, lasting, unused = (client.lease_grant(ttl) for ttl in (20, 5000, 30))
    client.put(b"leader", b"", lease=ended)
    client.put(b"let-go", b"", lease=unused)
    client.put(b"let-go", b"")
    revision = client.put(b"kept", b"", lease=lasting).revision
    client.lease_revoke(ended)
    client.lease_revoke(unused)
    source.full()

    member = etcd.make(etcd_line)
    plan = plan_of(store, revision, members=[f"{member.name}={member.peer_url}"])
    plan = msgspec.structs.replace(plan, lease_ttls={ended: 2})
    restored = restore(plan, store, {member.name: member.data_dir})
    member.start()

    assert (restored.leases_created, restored.leases_of_unknown_ttl) == (1, 0)
    copy = clients(member)
    left = {b"let-go", b"kept"}
    member.wait_until(lambda: {kv.key for kv in copy.range(*ALL_KEYS).kvs} == left, "without the ended lease")
    assert copy.leases() == (lasting,)


def fill(client):
    for number in range(100):
        client.put(b"%d" % number, bytes(100_000))


def test_a_full_disk_alarm_of_the_source_does_not_come_along(etcd, etcd_line, store, clients):
    source = Source(clients(etcd.start(etcd_line, flags=["--quota-backend-bytes=1000000"])), store)
    with pytest.raises(EtcdError, match="space"):
        fill(source.client)
    assert source.client.alarms()
    source.full()

    member = etcd.make(etcd_line)
    restored = restore_members([member], store)
    member.start()

    assert [alarm.split(" of ")[0] for alarm in restored.alarms_dropped] == ["NOSPACE"]
    copy = clients(member)
    assert copy.alarms() == ()
    copy.put(b"again", b"writable")


@pytest.mark.parametrize("bump", [None, 5000])
def test_clients_that_knew_later_revisions_are_told_that_theirs_are_gone(
    etcd, etcd_line, store, clients, bump
):
    """Kubernetes' keys are raised by themselves, so that no watch cache ever sees a revision twice."""
    source = Source(clients(etcd.start(etcd_line)), store)
    Workload(source.client, 3, prefix=b"/registry/").run(50)
    source.full()
    Workload(source.client, 4, prefix=b"/registry/").run(50)
    last = source.delta()
    before = [kv.SerializeToString() for kv in source.client.range(*ALL_KEYS).kvs]

    member = etcd.make(etcd_line)
    restored = restore_members([member], store, bump_revision=bump)
    with BoltFile(member.data_dir / "member" / "snap" / "db") as file:
        bumped = hash_kv(file)
    member.start()
    copy = clients(member)

    raised = last + (bump or 1_000_000_000)
    assert (restored.revision, restored.bumped_to) == (last, raised)
    assert copy.header().revision == raised
    said = copy.hash_kv()
    assert (said.hash, said.revision, said.compact_revision) == (bumped.hash, raised, raised)
    assert [kv.SerializeToString() for kv in copy.range(*ALL_KEYS).kvs] == before
    for revision in (last, raised - 1):
        with pytest.raises(CompactedError):
            copy.range(*ALL_KEYS, revision=revision)
        with copy.watch(revision) as watch, pytest.raises(CompactedError):
            watch.get()
    assert copy.put(b"/registry/next", b"").revision == raised + 1
    member.stop()
    member.start()
    assert copy.header().revision == raised + 1
