"""Who belongs to a cluster, asked and changed on real ones."""

from __future__ import annotations

import pytest

from rootcellar.agent.members import ADD_TRIES, LIST_TRIES, Cluster, MemberControl, quorum
from rootcellar.errors import EtcdError, EtcdUnavailableError, TargetError
from rootcellar.etcd.answers import Member
from rootcellar.etcd.client import EtcdClient
from testbed.ports import free_port
from tests.agent.door_scene import closed_port, eventually, half_rolled, lived


@pytest.fixture
def three(etcd):
    return etcd.start_cluster("3.6", flags=("--strict-reconfig-check=false",))


@pytest.fixture
def client(three):
    with EtcdClient([member.endpoint for member in three], timeout=5) as client:
        yield client


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def control(client, pauses):
    return MemberControl(client, pause=pauses.append)


def named(control, name):
    return control.cluster().find(name, ())


def test_the_cluster_is_seen_with_those_who_answer(control, three):
    three[2].stop()
    cluster = control.cluster()
    assert {member.name for member in cluster.members} == {"m1", "m2", "m3"}
    assert {member.name for member in cluster.members if member.id in cluster.answering} == {"m1", "m2"}


def test_a_member_that_still_listens_in_the_clear_is_silent_to_who_has_tls_files(etcd, authority):
    """A roll that gives clients TLS is half done at its second start."""
    with half_rolled(etcd, authority) as client:
        cluster = MemberControl(client).cluster()
        assert {member.name for member in cluster.members if member.id in cluster.answering} == {"m2"}


def test_a_member_that_answers_is_not_removed(control):
    with pytest.raises(TargetError, match="it is not gone"):
        control.remove(named(control, "m3"))
    assert len(control.cluster().members) == 3


def test_a_silent_member_is_removed_and_only_once(control, three):
    three[2].stop()
    gone = named(control, "m3")
    control.remove(gone)
    control.remove(gone)
    assert {member.name for member in control.cluster().members} == {"m1", "m2"}


def test_without_a_leader_the_tries_are_the_references(etcd, pauses):
    with (
        closed_port() as port,
        EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as client,
        pytest.raises(EtcdUnavailableError),
    ):
        MemberControl(client, pause=pauses.append).cluster()
    assert pauses == [2, 4, 8]


def test_a_second_learner_waits_longer_for_the_first(control, pauses):
    first = control.add_learner([f"http://127.0.0.1:{free_port()}"])
    assert first.is_learner
    with pytest.raises(EtcdError, match="too many learner"):
        control.add_learner([f"http://127.0.0.1:{free_port()}"])
    assert pauses == [7, 9, 13, 21, 37]
    assert len(pauses) == ADD_TRIES - 1


def test_a_learner_that_is_listed_is_not_added_again(control):
    urls = [f"http://127.0.0.1:{free_port()}"]
    assert control.add_learner(urls).id == control.add_learner(urls).id


def test_a_learner_that_has_not_caught_up_is_not_promoted(control):
    learner = control.add_learner([f"http://127.0.0.1:{free_port()}"])
    assert control.promote(learner.id) is False


def test_promoting_what_is_not_there_is_an_error(control):
    with pytest.raises(EtcdError):
        control.promote(12345)


def test_peer_urls_are_changed_once(control, three):
    member = named(control, "m3")
    urls = (member.peer_urls[0], f"http://127.0.0.1:{free_port()}")
    assert control.update_peer_urls(member, urls) is True
    changed = eventually(lambda: (found := named(control, "m3")).peer_urls != member.peer_urls and found)
    assert set(changed.peer_urls) == set(urls)
    assert control.update_peer_urls(changed, urls[::-1]) is False


def test_a_move_is_tried_as_often_as_asked_while_nobody_answers(pauses):
    with closed_port() as port, EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as client:
        control = MemberControl(client, pause=pauses.append)
        with pytest.raises(EtcdUnavailableError):
            control.update_peer_urls(seat(1), ("https://m1",), tries=LIST_TRIES)
    assert pauses == [2, 4, 8]


def test_a_change_that_etcd_puts_off_is_tried_again(etcd):
    """With its strict check etcd refuses changes until all members were connected for five seconds."""
    member = lived(etcd, "3.6")
    waited = []
    with EtcdClient([member.endpoint]) as client:
        control = MemberControl(client, pause=waited.append)
        assert control.add_learner([f"http://127.0.0.1:{free_port()}"]).is_learner


# pure


def seat(number, *, learner=False, name=None):
    return Member(number, f"m{number}" if name is None else name, (f"http://m{number}",), (), learner)


@pytest.mark.parametrize(
    ("voters", "answering", "can"),
    [
        (1, {1}, False),
        (2, {2}, False),
        (3, {2, 3}, True),
        (3, {1, 2, 3}, True),
        (3, {3}, False),
        (5, {2, 3, 4}, True),
    ],
)
def test_a_voter_can_be_lost_while_a_quorum_answers_without_it(voters, answering, can):
    members = tuple(seat(number) for number in range(1, voters + 1))
    assert Cluster(1, members, frozenset(answering)).can_lose(members[0]) is can


def test_a_learner_can_always_be_lost():
    learner = seat(2, learner=True)
    assert Cluster(1, (seat(1), learner), frozenset()).can_lose(learner)


def test_learners_make_no_quorum():
    members = (seat(1), seat(2), seat(3, learner=True))
    assert not Cluster(1, members, frozenset({2, 3})).can_lose(members[0])


def test_a_member_is_found_by_name_then_by_url_then_by_id():
    unnamed = seat(2, name="")
    cluster = Cluster(1, (seat(1), unnamed, seat(3)), frozenset())
    assert cluster.find("m3", ("http://m2",)).id == 3
    assert cluster.find("new", ("http://m2",)) == unnamed
    assert cluster.find("new", ("http://m3",)) is None
    assert cluster.find("new", (), 3).id == 3


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_more_than_half(voters, needed):
    assert quorum(voters) == needed
