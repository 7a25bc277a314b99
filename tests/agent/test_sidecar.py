"""The agent behind the reference's API, and the care for the member beside it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest
from starlette.responses import Response
from starlette.routing import Route

from rootcellar.agent.members import MemberControl
from rootcellar.agent.sidecar import AgentSnapshotter, promote, stop_wrapper
from rootcellar.backup.catalogue import names
from rootcellar.errors import FencedError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.agent.door_scene import captured, closed_port, eventually, lived, served

RELAXED = ("--strict-reconfig-check=false",)


def test_a_learner_becomes_a_voter_once_it_has_caught_up(etcd):
    first = lived(etcd, "3.6", "m1", flags=RELAXED)
    second = etcd.make("3.6", "m2")
    second.initial_cluster, second.joins = f"{first.initial_cluster},{second.initial_cluster}", True
    with EtcdClient([first.endpoint]) as service, EtcdClient([second.endpoint]) as local:
        service.member_add([second.peer_url], learner=True)
        second.start_soon()

        def votes():
            return [each.is_learner for each in service.member_list()] == [False, False]

        async def run():
            care = asyncio.create_task(promote(local, MemberControl(service), 0.1))
            try:
                await asyncio.to_thread(eventually, votes)
            finally:
                care.cancel()
                await asyncio.gather(care, return_exceptions=True)

        asyncio.run(run())
    assert second.hash_kv() == first.hash_kv()


# The agent itself is held elsewhere; here is what is asked of it.


@dataclass
class Led:
    leads: bool | None

    async def full(self, *, final):
        raise FencedError("this agent writes no backups now")


def snapshotter(agent, client, store=None, port=8080):
    return AgentSnapshotter(agent, client, lambda: store, scheme="http", port=port)


def test_the_leader_is_who_etcd_says_at_the_sidecars_port(etcd):
    three = etcd.start_cluster("3.6")
    with EtcdClient([member.endpoint for member in three]) as client:
        follower = snapshotter(Led(leads=False), client, port=8081)
        assert asyncio.run(follower.leader()) == "http://127.0.0.1:8081"
        assert asyncio.run(snapshotter(Led(leads=True), client).leader()) == ""


def test_without_etcd_nobody_is_known_to_lead():
    with closed_port() as port, EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as client:
        assert asyncio.run(snapshotter(Led(leads=None), client).leader()) is None


def test_what_is_newest_is_read_from_the_store(etcd, tmp_path):
    store = FileStore(tmp_path / "store")
    nothing = asyncio.run(snapshotter(Led(leads=True), None, store).latest())
    assert nothing == (None, ())
    member = lived(etcd, "3.6")
    with EtcdClient([member.endpoint]) as client:
        last = captured(client, store)
    full, deltas = asyncio.run(snapshotter(Led(leads=True), None, store).latest())
    assert full.kind is names.Kind.FULL
    assert [delta.last for delta in deltas] == [last]


def test_an_agent_that_writes_nothing_says_so():
    with pytest.raises(FencedError):
        asyncio.run(snapshotter(Led(leads=True), None).full(final=False))


def test_only_a_leader_is_healthy():
    assert [snapshotter(Led(leads=leads), None).healthy() for leads in (True, False, None)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_the_wrapper_is_told_to_stop_and_its_absence_is_only_logged(tls, authority, caplog):
    heard = []

    async def stop(request):
        heard.append(request.method)
        return Response(b"")

    pair = {"cert": authority.server.certificate, "key": authority.server.key} if tls else {}
    with served(lambda: [Route("/stop", stop, methods=["POST"])], **pair) as url:
        port = int(url.rpartition(":")[2])
        stop_wrapper(url.replace("127.0.0.1", "localhost"), str(authority.ca), port)
    assert heard == ["POST"]
    with caplog.at_level(logging.WARNING):
        stop_wrapper("http://localhost:2379", None, port)
    assert "was not told to restart" in caplog.text
