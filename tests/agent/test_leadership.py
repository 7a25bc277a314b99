from __future__ import annotations

from datetime import datetime, timedelta

from rootcellar.etcd.client import EtcdClient
from tests.agent.agents import wait_until


def moment(entry):
    return datetime.fromisoformat(entry["time"])


def test_an_agent_whose_member_lost_its_cluster_soon_stops_to_lead(agents, etcd, tmp_path):
    """Later than the other members elect a leader it must not go on for long: there are two until then."""
    members = etcd.start_cluster("3.6")
    with EtcdClient([member.endpoint for member in members]) as client:
        client.put(b"a", b"b")
        status = client.status()
        by_id = {
            client.member(each.endpoint).status().header.member_id: index
            for index, each in enumerate(members)
        }
    leader = members[by_id[status.leader]]
    agent = agents.start([leader.endpoint], f"file://{tmp_path / 'store'}")
    agent.wait_reached(2)
    for member in members:
        if member is not leader:
            member.kill()
    agent.wait_phase("waiting-for-etcd")
    began = agent.logged("state", state="waiting-for-etcd")[-1]
    ended = agent.wait_logged("leadership-lost")
    assert moment(ended) - moment(began) < timedelta(seconds=9)
    members[by_id[status.leader] - 1].start_soon()
    wait_until(lambda: agent.phase() in ("leader", "follower", "capturing"), "etcd again")
    assert agent.terminate() == 0
