"""Defragmentation: whom, when, in which order; and on three real members."""

from __future__ import annotations

import pytest

from rootcellar.agent.defragment import (
    ALWAYS,
    Seat,
    Threshold,
    defragment,
    look,
    plan_defragmentation,
)
from rootcellar.agent.members import MemberControl
from rootcellar.errors import EtcdError, EtcdUnavailableError
from rootcellar.etcd.answers import AlarmKind
from rootcellar.etcd.client import EtcdClient
from tests.agent.door_scene import eventually, half_rolled, lived

MIB = 1 << 20


def seat(number, **more):
    return Seat(number, f"m{number}", f"http://m{number}", **{"size": 100 * MIB, "in_use": 10 * MIB, **more})


def order(*seats, threshold=ALWAYS):
    return [each.name for each in plan_defragmentation(seats, threshold).turns]


def test_the_leader_comes_last():
    assert order(seat(1, is_leader=True), seat(2), seat(3)) == ["m2", "m3", "m1"]


def test_a_learner_is_spared_even_when_it_is_full():
    plan = plan_defragmentation([seat(1, is_leader=True), seat(2, is_learner=True, is_full=True)], ALWAYS)
    assert [each.name for each in plan.turns] == ["m1"]
    assert [each.name for each in plan.spared] == ["m2"]


def test_only_members_that_waste_enough_have_a_turn():
    seats = seat(1, is_leader=True, in_use=95 * MIB), seat(2), seat(3, size=20 * MIB)
    plan = plan_defragmentation(seats, Threshold(0.3, 64 * MIB))
    assert [each.name for each in plan.turns] == ["m2"]
    assert {each.name for each in plan.spared} == {"m1", "m3"}


@pytest.mark.parametrize(
    ("size", "in_use", "met"),
    [(1000, 700, True), (1000, 701, False), (200, 100, True), (198, 99, False), (100, 200, False)],
)
def test_both_the_share_and_the_bytes_have_to_be_met(size, in_use, met):
    assert Threshold(0.3, 100).is_met(seat(1, size=size, in_use=in_use)) is met


def test_nothing_is_begun_while_a_voter_is_silent():
    silent = Seat(2, "m2", "")
    with pytest.raises(EtcdUnavailableError, match="m2 does not answer"):
        plan_defragmentation([seat(1, is_leader=True), silent, seat(3)], ALWAYS)


def test_a_silent_learner_is_passed_over():
    assert order(seat(1, is_leader=True), Seat(2, "m2", "", is_learner=True)) == ["m1"]


def test_a_full_member_has_a_turn_whatever_it_says_it_uses():
    assert order(seat(1, is_leader=True, in_use=100 * MIB, is_full=True), threshold=Threshold()) == ["m1"]


def test_nothing_is_begun_without_a_leader():
    with pytest.raises(EtcdUnavailableError, match="no leader"):
        plan_defragmentation([seat(1), seat(2)], ALWAYS)


# real members


def fill(client, rounds=30):
    """Write and compact, so that most of the file is holes."""
    for number in range(rounds):
        for key in range(8):
            client.put(b"k%d" % key, bytes([number]) * 20_000)
    client.compact(client.header().revision, physical=True)


def wasteful(client):
    """Once every member has done its compaction, and counted anew what it uses, as each write makes it do."""

    def look_again():
        client.put(b"count", b"again")
        seats = look(client)
        return all(each.waste > each.size // 2 for each in seats) and seats

    return eventually(look_again)


@pytest.fixture
def three(etcd, etcd_line):
    return etcd.start_cluster(etcd_line)


@pytest.fixture
def client(three):
    with EtcdClient([member.endpoint for member in three]) as client:
        yield client


def test_three_members_are_defragmented_the_leader_last_and_lose_nothing(three, client):
    fill(client)
    before = {each.id: each for each in wasteful(client)}
    # A follower may take the last write later than the leader tells it.
    hashed = eventually(lambda: len(found := {member.hash_kv() for member in three}) == 1 and found)
    result = defragment(client, Threshold(0.3, 1))
    assert len(result.done) == 3
    assert [done.seat.is_leader for done in result.done] == [False, False, True]
    for done in result.done:
        assert done.size < before[done.seat.id].size // 2
    assert {member.hash_kv() for member in three} == hashed
    assert defragment(client, Threshold(0.3, MIB)).done == ()


def test_a_member_that_is_down_keeps_the_others_from_their_turn(etcd):
    three = etcd.start_cluster("3.6")
    with EtcdClient([member.endpoint for member in three], timeout=5) as client:
        fill(client, 3)
        three[1].stop()
        with pytest.raises(EtcdUnavailableError, match="m2 does not answer"):
            defragment(client, ALWAYS)


def test_a_member_that_still_listens_in_the_clear_counts_as_silent(etcd, authority):
    with (
        half_rolled(etcd, authority) as client,
        pytest.raises(EtcdUnavailableError, match="m1 does not answer"),
    ):
        defragment(client, ALWAYS)


def test_a_member_that_goes_down_on_the_way_stops_it(etcd):
    three = etcd.start_cluster("3.6")
    with EtcdClient([member.endpoint for member in three], timeout=5) as client:
        fill(client, 3)
        by_name = {member.name: member for member in three}

        def strike(done):
            next(each for name, each in by_name.items() if name != done.seat.name).stop()

        with pytest.raises(EtcdUnavailableError, match="does not answer"):
            defragment(client, ALWAYS, told=strike)


def test_beside_a_learner_the_voters_are_defragmented(etcd, etcd_line):
    first = lived(etcd, etcd_line, "m1")
    second = etcd.make(etcd_line, "m2")
    with EtcdClient([first.endpoint]) as client:
        MemberControl(client).add_learner([second.peer_url])
        second.initial_cluster = f"{first.initial_cluster},{second.initial_cluster}"
        second.joins = True
        second.start_soon()
        eventually(lambda: all(each.answers for each in look(client)))
        assert [each.name for each in look(client) if each.is_learner] == ["m2"]
        fill(client, 3)
        assert [done.seat.name for done in defragment(client, ALWAYS).done] == ["m1"]


def overfill(client):
    """Write more than the quota has room for."""
    for number in range(400):
        client.put(b"k%d" % (number % 20), bytes(100_000))


def overfull(client):
    """The alarms that etcd raises then."""
    with pytest.raises(EtcdError, match="space"):
        overfill(client)
    return eventually(client.alarms)


def test_a_nospace_alarm_is_taken_back_once_there_is_room_and_not_before(etcd, etcd_line):
    quota = 16 * MIB
    member = etcd.start(etcd_line, flags=("--quota-backend-bytes", str(quota)))
    with EtcdClient([member.endpoint]) as client:
        (alarm,) = overfull(client)
        assert alarm.kind is AlarmKind.NOSPACE
        full = defragment(client, ALWAYS, quota=quota)
        assert (full.disarmed, [each for each, _ in full.armed]) == ((), [alarm])
        assert "compact first" in full.armed[0][1]
        client.compact(client.header().revision, physical=True)
        freed = defragment(client, ALWAYS, quota=quota)
        assert (freed.disarmed, freed.armed) == ((alarm,), ())
        client.put(b"again", b"v")


def test_without_a_known_quota_an_alarm_is_kept(etcd):
    member = etcd.start("3.5", flags=("--quota-backend-bytes", str(16 * MIB)))
    with EtcdClient([member.endpoint]) as client:
        overfull(client)
        client.compact(client.header().revision, physical=True)
        result = defragment(client, ALWAYS)
        assert result.disarmed == ()
        assert "give it" in result.armed[0][1]
