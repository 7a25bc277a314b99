"""What is done before one of several members starts: who joins, who waits, who restores first."""

from __future__ import annotations

import shutil

import pytest

from rootcellar.agent.initialization import initialize
from rootcellar.agent.members import MemberControl
from rootcellar.agent.start_plan import Deed
from rootcellar.agent.validation import Mode
from rootcellar.backup.restore import place
from rootcellar.errors import EtcdUnavailableError, TargetError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from testbed.etcd import start_together
from tests.agent.door_scene import (
    Leases,
    backed_up_member,
    break_pages,
    closed_port,
    contents,
    database,
    eventually,
    home,
    lived,
    no_wait,
    stillborn,
    write,
)

RELAXED = ("--strict-reconfig-check=false",)


@pytest.fixture
def three(etcd):
    members = etcd.start_cluster("3.6", flags=RELAXED)
    with EtcdClient([members[0].endpoint]) as client:
        write(client, 20)
    return members


def beside(members, own, client, **more):
    """The home of one member of a cluster, its service endpoints being the others'."""
    return home(own, control=MemberControl(client, pause=no_wait), **more)


def others(members, own):
    return EtcdClient([each.endpoint for each in members if each is not own])


def join(member, members, client):
    """Start a member that was told to join, and wait until it votes."""
    there = [f"{each.name}={each.peer_url}" for each in members]
    member.initial_cluster = ",".join(there)
    member.joins = True
    member.start_soon()
    control = MemberControl(client, pause=no_wait)

    def votes():
        own = control.cluster().find(member.name, (member.peer_url,))
        return own.name and (not own.is_learner or control.promote(own.id))

    eventually(votes)
    member.wait_healthy()


def test_a_member_that_lost_its_data_joins_again_with_all_of_it(etcd, etcd_line):
    members = etcd.start_cluster(etcd_line, flags=RELAXED)
    own = members[1]
    with others(members, own) as client:
        write(client, 20)
        own.stop()
        break_pages(database(own))
        damaged = contents(own.data_dir / "member")
        done = initialize(beside(members, own, client), Mode.FULL)
        assert (done.plan.deed, done.joins) == (Deed.JOIN, True)
        assert contents(done.quarantined) == damaged
        listed = {each.name or "new": each.is_learner for each in client.member_list()}
        assert listed == {"m1": False, "m3": False, "new": True}
        join(own, members, client)
        assert own.hash_kv() == members[0].hash_kv()
        own.kill()
        again = initialize(beside(members, own, client), Mode.FULL)
        assert again.plan.deed is Deed.KEEP, again.found


def test_a_member_killed_between_leaving_and_joining_ends_it_at_the_next_start(three):
    own = three[1]
    with others(three, own) as client:
        own.stop()
        break_pages(database(own))
        there = beside(three, own, client)
        (listed,) = (each for each in client.member_list() if each.name == "m2")
        client.member_remove(listed.id)  # died here
        assert initialize(there, Mode.FULL).plan.deed is Deed.JOIN
        # died before etcd ran: it is listed, and is not added once more
        again = initialize(there, Mode.FULL)
        assert (again.plan.deed, again.plan.add, again.quarantined) == (Deed.JOIN, False, None)
        assert len(client.member_list()) == 3
        join(own, three, client)


def test_a_healthy_member_of_several_starts_without_asking_the_store(three):
    own = three[1]
    own.stop()

    def never():
        raise AssertionError("asked")

    with others(three, own) as client:
        assert initialize(beside(three, own, client, store=never), Mode.SANITY).plan.deed is Deed.KEEP


def test_a_single_member_is_joined_by_a_second(etcd):
    first = lived(etcd, "3.6", "m1", flags=RELAXED)
    second = etcd.make("3.6", "m2")
    second.initial_cluster = f"{first.initial_cluster},{second.initial_cluster}"
    with EtcdClient([first.endpoint]) as client:
        done = initialize(beside([first], second, client), Mode.FULL)
        assert (done.plan.deed, done.quarantined) == (Deed.JOIN, None)
        join(second, [first, second], client)
        assert second.hash_kv() == first.hash_kv()


def test_a_member_that_cannot_reach_its_peers_for_long_joins_when_it_can(etcd, etcd_line):
    """etcd makes a database before it asks them, and every try leaves one: none is worth a quarantine."""
    first = lived(etcd, etcd_line, "m1", flags=RELAXED)
    second = stillborn(etcd, etcd_line)
    wrong = second.initial_cluster
    second.initial_cluster = f"{first.initial_cluster},m2={second.peer_url}"
    with EtcdClient([first.endpoint]) as client:
        there = beside([first], second, client)
        for _ in range(3):
            done = initialize(there, Mode.FULL)
            assert (done.plan.deed, done.quarantined) == (Deed.JOIN, None)
            assert not (second.data_dir / "member").exists()
            right, second.initial_cluster = second.initial_cluster, wrong
            second.start_soon()
            eventually(lambda: not second.running)
            second.initial_cluster = right
            assert database(second).exists()
        assert initialize(there, Mode.FULL).plan.deed is Deed.JOIN
        join(second, [first, second], client)
        assert place.quarantines(second.data_dir) == []
        assert second.hash_kv() == first.hash_kv()


def test_members_killed_while_they_found_a_cluster_found_it_then(etcd):
    """A kill behind the database and before the log leaves what an etcd does that cannot bootstrap."""
    left = stillborn(etcd, "3.6").data_dir / "member"
    members = etcd.make_cluster("3.6")
    with closed_port() as port, EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as nobody:
        for member in members:
            shutil.copytree(left, member.data_dir / "member")
            done = initialize(beside(members, member, nobody, leases=Leases([])), Mode.FULL)
            assert done.plan.deed is Deed.START_EMPTY
            assert not (member.data_dir / "member").exists()
    start_together(members)
    assert len({member.hash_kv() for member in members}) == 1


def test_a_member_that_lived_and_has_no_log_waits_for_its_cluster(etcd):
    """Its lease tells: with an empty log it could vote for another what it had voted for one."""
    member = stillborn(etcd, "3.6")
    with (
        closed_port() as port,
        EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as nobody,
        pytest.raises(EtcdUnavailableError, match="has been a member"),
    ):
        initialize(beside([], member, nobody, leases=Leases(["m2"])), Mode.FULL)
    assert database(member).exists()


def test_the_data_of_one_cluster_is_not_given_up_for_the_endpoint_of_another(etcd):
    """Druid's D26."""
    own = lived(etcd, "3.6", "m1")
    own.stop()
    other = lived(etcd, "3.6", "x1")
    own.initial_cluster += ",m2=http://127.0.0.1:1"
    before = contents(own.data_dir / "member")
    with EtcdClient([other.endpoint]) as client:
        with pytest.raises(TargetError, match="the data is of cluster"):
            initialize(beside([], own, client), Mode.FULL)
        assert [each.name for each in client.member_list()] == ["x1"]
    assert contents(own.data_dir / "member") == before


def test_without_a_quorum_a_member_that_lost_its_data_waits(three):
    own = three[0]
    own.stop()
    three[1].stop()
    break_pages(database(own))
    with (
        EtcdClient([three[2].endpoint], timeout=2) as client,
        pytest.raises(EtcdUnavailableError, match="has been a member"),
    ):
        initialize(beside(three, own, client), Mode.FULL)
    assert database(own).exists()


def test_three_members_over_a_backup_come_up_one_after_the_other(etcd, tmp_path):
    """Druid's 3.8 (issue 621): there, they wait for each other for ever."""
    store = FileStore(tmp_path / "store")
    _source, hashed = backed_up_member(etcd, store, name="source")
    first, second, third = members = etcd.make_cluster("3.6", flags=RELAXED)
    leases = Leases([])
    with closed_port() as port, EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as nobody:
        with pytest.raises(EtcdUnavailableError, match="m1 restores the cluster first"):
            initialize(beside(members, second, nobody, store=lambda: store, leases=leases), Mode.FULL)
        done = initialize(beside(members, first, nobody, store=lambda: store, leases=leases), Mode.FULL)
        assert done.plan.deed is Deed.RESTORE
    first.start()
    with EtcdClient([first.endpoint]) as client:
        for joined, member in ([first, second], second), (members, third):
            found = initialize(beside(members, member, client, store=lambda: store), Mode.FULL)
            assert found.plan.deed is Deed.JOIN
            join(member, joined, client)
    assert first.hash_kv() == second.hash_kv() == third.hash_kv() == hashed
