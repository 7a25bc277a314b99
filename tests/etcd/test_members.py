import pytest

from rootcellar.errors import EtcdError, EtcdUnavailableError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import EtcdProcess


@pytest.fixture
def learner(binary, alone, client, tmp_path):
    """A learner of the cluster that `alone` leads, caught up or not."""
    joining = EtcdProcess(binary, tmp_path / "learner", name="learner")
    try:
        client.member_add([joining.peer_url], learner=True)
        joining.start(initial_cluster=f"default={alone.peer_url},learner={joining.peer_url}", existing=True)
        yield joining
    finally:
        joining.close()


def has_started(client, member):
    """Wait until the learner answers what a learner answers."""
    while True:
        try:
            return client.member(member.client_url).status(timeout=5)
        except EtcdUnavailableError:
            assert member.running, member.output


def test_the_member_list_names_all_and_their_roles(client, learner):
    has_started(client, learner)
    roles = {member.peer_urls: member.is_learner for member in client.member_list()}
    assert roles[(learner.peer_url,)] is True
    assert list(roles.values()).count(False) == 1


def test_a_learner_is_promoted_once_it_has_caught_up_and_removed_again(client, learner):
    status = has_started(client, learner)
    assert status.is_learner
    refusals = []
    while any(member.is_learner for member in client.member_list()):
        try:
            client.member_promote(status.header.member_id)
        except EtcdError as error:
            refusals.append(error.message)
    assert all("in sync" in refusal for refusal in refusals)
    assert not any(member.is_learner for member in client.member_list())
    client.member_remove(status.header.member_id)
    assert len(client.member_list()) == 1


def test_what_a_learner_does_not_answer_is_asked_of_a_voter(client, learner):
    has_started(client, learner)
    with pytest.raises(EtcdUnavailableError, match="learner") as caught:
        client.member(learner.client_url).header()
    assert caught.value.hint == "ask a voting member"
    with EtcdClient([learner.client_url, *client.endpoints]) as both:
        assert both.header().revision == client.header().revision
        with both.watch(1) as watch:
            revision = client.put(b"a", b"1").revision
            assert watch.get(20).last == revision


def test_leadership_moves_to_the_chosen_member(three, leader):
    with EtcdClient([member.client_url for member in three]) as client:
        old = leader(three, client)
        chosen = next(member for member in three if member is not old)
        target = client.member(chosen.client_url).status().header.member_id
        client.member(old.client_url).move_leader(target)
        client.header()
        assert leader(three, client) is chosen
