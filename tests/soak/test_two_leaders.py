"""Two agents that both believe that they lead, one of them paused at every step of what it publishes.

The network between members is cut, so that etcd elects another leader while the last one's agent stands
still, with its request on the way to the store: which comes there late, before or after the agent goes on.
"""

from __future__ import annotations

import signal

import pytest

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from tests.agent.agents import wait_until
from tests.backup import ebr_rules
from tests.soak.ground import PREFIX, Ground
from tests.soak.lines import Mode
from tests.soak.observer import Observer
from tests.soak.proof import settle_and_prove
from tests.soak.storm import MEMBERS
from tests.soak.writers import Writers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]


@pytest.fixture
def ground(tmp_path):
    with Ground(tmp_path / "ground") as found:
        yield found


def writing(ground, among=range(MEMBERS)):
    """An agent that believes that it leads, and has stored something."""

    def found():
        for number in among:
            status = ground.status(number)
            if status is not None and status["leads"] and status["recovery"]["last"]:
                return number + 1
        return None

    return wait_until(found, "an agent that writes") - 1


def claimed(ground, among):
    """The newest revision that one of these agents says is stored; 0 while none says anything."""
    found = (ground.status(number) for number in among)
    return max((status["recovery"]["last"] or 0 for status in found if status is not None), default=0)


def agree(ground, claims=()):
    """The catalogue at this moment: whatever two writers do, it can be restored up to every claim."""
    catalogue = read_catalogue(ground.store)
    assert catalogue.damaged == ()
    assert len(catalogue.timelines) == 1
    reach = plan_chain(catalogue, Latest()).reach
    assert reach >= max(claims, default=2)
    assert ebr_rules.check_prefix(ground.store, PREFIX) == []


def take_turns(ground, step, *, full=False, late=True):
    """The leader's agent stops at its `step`-th writing request; another takes over; the first goes on.

    `late`: the request comes to the store when the other has written already.
    """
    first = writing(ground)
    stopped = ground.store_lines[first].stop_at(step)
    asking = None
    if full:
        asking = ground.ask_soon(first, "/snapshot/full")
    assert stopped.wait(60), f"no {step} requests came"
    ground.signal_agent(first, signal.SIGSTOP)
    if not late:
        ground.store_lines[first].set(Mode.OPEN)
    ground.isolate(first, Mode.CUT)
    others = [number for number in range(MEMBERS) if number != first]
    writing(ground, others)
    claim = wait_until(lambda: claimed(ground, others), "what it has stored")
    agree(ground, [claim])
    ground.store_lines[first].set(Mode.OPEN)
    lost = len(ground.ours[first].logged("leadership-lost"))
    ground.signal_agent(first, signal.SIGCONT)
    wait_until(lambda: len(ground.ours[first].logged("leadership-lost")) > lost, "the first to notice")
    newer = wait_until(lambda: (found := claimed(ground, others)) > claim and found, "the others to go on")
    agree(ground, [newer])
    ground.isolate(first, Mode.OPEN)
    if asking is not None:
        asking.join(60)


def both_believe(ground, turns):
    with Observer(ground) as observer, Writers(ground.endpoints, 3) as writers:
        for turn in turns:
            take_turns(ground, **turn)
        writers.end()
        proof = settle_and_prove(ground, observer, writers, samples=2)
        assert proof.gaps == 0
        assert proof.epochs > len(turns)


def test_a_delta_published_too_late_by_a_paused_leader_does_no_harm(ground):
    both_believe(ground, [{"step": 2}, {"step": 3, "late": False}])


@pytest.mark.long
@pytest.mark.parametrize("late", [True, False])
def test_whichever_request_of_a_delta_comes_late_it_does_no_harm(ground, late):
    both_believe(ground, [{"step": step, "late": late} for step in range(1, 9)])


@pytest.mark.long
@pytest.mark.parametrize("late", [True, False])
def test_whichever_request_of_a_full_comes_late_it_does_no_harm(ground, late):
    both_believe(ground, [{"step": step, "full": True, "late": late} for step in range(1, 9)])
