"""Members that are moved to other peer URLs, before their etcd starts and while it runs, on real ones."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from rootcellar.agent import peer_urls
from rootcellar.agent.board import Board
from rootcellar.agent.clock import SystemClock
from rootcellar.agent.initialization import initialize
from rootcellar.agent.members import MemberControl
from rootcellar.agent.peer_urls import Mover, listens
from rootcellar.agent.start_plan import Deed
from rootcellar.agent.state import Fault, Phase
from rootcellar.agent.validation import Mode
from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd.client import EtcdClient
from rootcellar.logs import make_log
from tests.agent.door_scene import closed_port, eventually, home
from tests.agent.peer_scene import Changing, three


@pytest.fixture(autouse=True)
def _quick_wrapper(monkeypatch):
    """The etcds of these tests have ended when the restart returns."""
    monkeypatch.setattr(peer_urls, "_RESTARTING", 0.5)


class Hasty(SystemClock):
    """A clock on which a second is a minute."""

    def monotonic(self):
        return super().monotonic() * 60


class Moving:
    """A mover at work.  `through` are the members behind the service endpoints."""

    def __init__(self, member, *through, restart=None):
        self.board = Board(Hasty(), make_log("text", io.StringIO()))
        self._open = ExitStack()
        local, service = (
            self._open.enter_context(EtcdClient([each.etcd.endpoint for each in asked], timeout=2))
            for asked in ([member], through or [member])
        )
        self.mover = Mover(
            local,
            (MemberControl(service), MemberControl(local)),
            lambda: member.configured,
            member.etcd.data_dir,
            board=self.board,
            clock=Hasty(),
            restart=restart,
        )

    def done(self):
        """Let it come to its end."""

        async def run():
            async with asyncio.timeout(90):
                await self.mover.run()

        with self._open:
            asyncio.run(run())

    def told(self, words=""):
        """What is wrong, once that is said to be it: an election may be in the way at first."""
        found = self.board.facts.faults.get(Fault.PEERS, "")
        return found if words in found else ""

    def until(self, condition):
        """Let it work until something holds."""

        async def run():
            task = asyncio.create_task(self.mover.run())
            await asyncio.to_thread(eventually, condition)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        with self._open:
            asyncio.run(run())


def listed(member):
    """Where the members look for each, by name."""
    with EtcdClient([member.etcd.endpoint]) as client:
        return {each.name: each.peer_urls for each in client.member_list()}


def is_listed(by, member):
    return listed(by)[member.etcd.name] == (member.new_url,)


@contextmanager
def asked_of(*members):
    with EtcdClient([each.etcd.endpoint for each in members], timeout=5) as client:
        yield MemberControl(client)


def rolled(member, others, authority):
    """Ended, and begun with the configuration of peers by TLS: what its sidecar did before etcd started."""
    member.etcd.stop()
    member.give(member.new_url, authority)
    with asked_of(*others) as control:
        there = replace(home(member.etcd), control=control, peer_urls=(member.new_url,))
        return initialize(there, Mode.SANITY)


# before etcd starts


@pytest.mark.parametrize("line", ["3.4", "3.7"])
def test_members_change_to_tls_one_after_the_other_with_one_start_each(etcd, line, authority):
    members = three(etcd, line)
    for member in reversed(members):
        others = [each for each in members if each is not member]
        assert rolled(member, others, authority).plan.deed is Deed.KEEP
        for each in others:  # before it has started; etcd 3.4 lists what this one has heard of so far
            eventually(partial(is_listed, each, member))
        member.etcd.start()
        Moving(member, *others, restart=pytest.fail).done()  # finds nothing to do
        member.etcd.etcdctl("put", "k", member.etcd.name)
    assert listed(members[0]) == {each.etcd.name: (each.new_url,) for each in members}
    last = members[0].etcd.hash_kv()
    eventually(lambda: all(each.etcd.hash_kv() == last for each in members))


def test_a_start_that_was_killed_behind_the_move_is_followed_by_one_that_finds_it_done(etcd, authority):
    members = three(etcd, "3.6")
    assert rolled(members[2], members[:2], authority).plan.move is not None
    with asked_of(*members[:2]) as control:
        there = replace(home(members[2].etcd), control=control, peer_urls=(members[2].new_url,))
        assert initialize(there, Mode.SANITY).plan.move is None
    members[2].etcd.start()


def test_a_member_whose_move_is_refused_starts_nonetheless_and_this_is_said(etcd, caplog):
    members = three(etcd, "3.6")
    members[2].etcd.stop()
    taken = members[0].old_url
    with asked_of(*members[:2]) as control, caplog.at_level(logging.WARNING):
        there = replace(home(members[2].etcd), control=control, peer_urls=(taken,))
        done = initialize(there, Mode.SANITY)
    assert done.plan.deed is Deed.KEEP
    assert f"does not move member {done.found.member_id:x} to {taken}: " in caplog.text
    assert listed(members[0])["m3"] == (members[2].old_url,)


def test_a_member_that_is_to_be_moved_asks_longer_for_a_quorum_than_one_that_only_starts(etcd):
    """A rolling update goes on to the next member once this one is ready."""
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    member.etcd.stop()
    founders = {"m1": (member.old_url,), "m2": ("http://127.0.0.1:1",)}
    asked = {}
    with closed_port() as port, EtcdClient([f"http://127.0.0.1:{port}"], timeout=1) as client:
        for url in (member.old_url, member.new_url):
            control = MemberControl(client, pause=asked.setdefault(url, []).append)
            there = home(member.etcd, initial_cluster=founders, control=control, peer_urls=(url,))
            assert initialize(there, Mode.SANITY).plan.deed is Deed.KEEP
    assert asked == {member.old_url: [2], member.new_url: [2, 4, 8]}


# while it runs


def test_a_single_member_is_moved_and_not_restarted_where_it_listens_already(etcd, authority):
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    member.etcd.stop()
    member.give(member.new_url, authority)
    member.etcd.start()
    Moving(member, restart=pytest.fail).done()
    assert listed(member) == {"m1": (member.new_url,)}


def test_an_etcd_that_runs_with_the_old_configuration_is_restarted_once(etcd, authority):
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    member.give(member.new_url, authority)
    restarts = []

    def restart():
        restarts.append(listed(member))
        member.again()

    Moving(member, restart=restart).done()
    assert restarts == [{"m1": (member.new_url,)}], "told to stop when the list was changed"
    Moving(member, restart=restart).done()  # killed behind it: the next sidecar finds it done
    assert len(restarts) == 1


def test_a_sidecar_killed_between_the_list_and_the_wrapper_is_followed_by_one_that_restarts_etcd(
    etcd, authority
):
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    member.give(member.new_url, authority)
    killed = Moving(member, restart=lambda: None)
    killed.until(lambda: listed(member) == {"m1": (member.new_url,)})
    restarts = []

    def restart():
        restarts.append(1)
        member.again()

    Moving(member, restart=restart).done()
    assert restarts == [1]
    assert listens(member.new_url, "")


def test_a_member_that_started_without_a_quorum_is_moved_as_soon_as_there_is_one(etcd, authority):
    members = three(etcd, "3.6")
    first, second, third = members
    for each in members:
        each.etcd.stop()
    third.give(third.new_url, authority)
    third.etcd.start_soon()
    moving = Moving(third, first, second, restart=pytest.fail)
    moving.until(moving.told)
    first.etcd.start_soon()
    second.etcd.start()
    first.etcd.wait_healthy()
    moving = Moving(third, first, second, restart=pytest.fail)
    moving.done()
    assert listed(first)["m3"] == (third.new_url,)
    assert moving.board.facts.faults == {}
    third.etcd.wait_healthy()


def test_members_that_were_all_moved_without_a_quorum_say_so_and_the_hint_helps(etcd, authority, caplog):
    members = three(etcd, "3.6")
    for each in members:
        each.etcd.stop()
        each.give(each.new_url, authority)
    for each in members:
        each.etcd.start_soon()
    stuck = Moving(members[0], *members[1:], restart=pytest.fail)
    with caplog.at_level(logging.WARNING):
        stuck.until(lambda: stuck.told(f"look for it at {members[0].old_url}"))
    told = stuck.told()
    assert f"only a quorum can change to {members[0].new_url}" in told
    assert "give them back the peer URLs that they had" in told
    assert told in caplog.text
    assert stuck.board.state.phase is Phase.DEGRADED
    for each in members:
        each.etcd.stop()
        each.give(each.old_url, authority)
    for each in members:
        each.etcd.start_soon()
    for each in members:
        each.etcd.wait_healthy()
    Moving(members[0], *members[1:], restart=pytest.fail).done()


def test_no_restart_costs_the_others_their_quorum(etcd, authority):
    members = three(etcd, "3.6")
    first, second, third = members
    second.etcd.stop()
    third.give(third.new_url, authority)
    waiting = Moving(third, first, restart=pytest.fail)
    waiting.until(lambda: waiting.told("there would be no quorum"))
    second.etcd.start()
    Moving(third, first, restart=third.again).done()
    third.etcd.wait_healthy()


def test_without_a_wrapper_a_restart_is_left_to_whoever_started_etcd(etcd, authority, caplog):
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    member.give(member.new_url, authority)
    with caplog.at_level(logging.WARNING):
        Moving(member).done()
    assert "etcd has to be restarted" in caplog.text
    assert listed(member) == {"m1": (member.new_url,)}


# how a peer port answers


def test_who_listens_at_a_peer_port_and_how_is_seen_from_its_answer(etcd, authority):
    member = Changing(etcd, "3.6", "m1")
    member.etcd.start()
    everywhere = member.old_url.replace("127.0.0.1", "0.0.0.0")
    assert [listens(url, "127.0.0.1") for url in (member.old_url, everywhere, member.new_url)] == [
        True,
        True,
        False,
    ]
    member.give(member.new_url, authority)
    member.again()
    eventually(lambda: listens(member.new_url, ""))
    assert not listens(member.old_url, "")
    with closed_port() as port:
        assert not listens(f"https://127.0.0.1:{port}", "")


def test_a_peer_port_that_says_nothing_is_no_reason_for_a_restart(monkeypatch):
    monkeypatch.setattr(peer_urls, "_ASK_SECONDS", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(EtcdUnavailableError, match="says nothing"):
            listens(f"http://127.0.0.1:{silent.getsockname()[1]}", "")
