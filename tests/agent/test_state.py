from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.agent.backoff import Backoff, rule_for
from rootcellar.agent.board import PATIENCE as STARTING
from rootcellar.agent.board import Board
from rootcellar.agent.leadership import PATIENCE, Role, Rule, Sight, Standing
from rootcellar.agent.state import Facts, Fault, Phase, States, derive
from rootcellar.errors import (
    DeniedError,
    EtcdDeniedError,
    EtcdUnavailableError,
    FencedError,
    IdentityError,
    ThrottledError,
)
from rootcellar.logs import make_log

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        (Facts(), Phase.STARTING),
        (Facts(leads=False), Phase.FOLLOWER),
        (Facts(leads=True), Phase.LEADER),
        (Facts(leads=True, work=frozenset({"full"})), Phase.CAPTURING),
        (Facts(leads=True, faults={Fault.ETCD_UNAVAILABLE: "gone"}), Phase.WAITING),
        (Facts(faults={Fault.ETCD_NO_LEADER: "none"}), Phase.WAITING),
        (Facts(leads=True, work=frozenset({"full"}), faults={Fault.STORE: "full"}), Phase.DEGRADED),
        (Facts(faults={Fault.CONFIG: "wrong"}), Phase.DEGRADED),
        (Facts(stopping=True, faults={Fault.ETCD_UNAVAILABLE: "gone"}), Phase.STOPPING),
    ],
)
def test_the_state_follows_from_the_facts(facts, phase):
    found, reason = derive(facts)
    assert found is phase
    assert reason


def test_a_degraded_agent_says_all_that_is_wrong():
    _, reason = derive(Facts(leads=True, faults={Fault.STORE: "no space left", Fault.GAP: "no full"}))
    assert reason == "no space left; no full"


def test_an_agent_that_waits_for_a_leader_also_says_where_its_member_is_looked_for():
    faults = {Fault.PEERS: "looked for at http://m1:2380", Fault.ETCD_NO_LEADER: "no leader"}
    assert derive(Facts(faults=faults)) == (Phase.WAITING, "no leader; looked for at http://m1:2380")
    assert derive(Facts(leads=False, faults={Fault.PEERS: "refused"})) == (Phase.DEGRADED, "refused")


def test_since_is_when_the_phase_began_not_when_its_reason_changed():
    states = States(NOW)
    later = NOW + timedelta(minutes=1)
    assert states.learn(Facts(leads=True), NOW).after.phase is Phase.LEADER
    assert states.learn(Facts(leads=True), later) is None
    states.learn(Facts(leads=True, faults={Fault.STORE: "a"}), later)
    change = states.learn(Facts(leads=True, faults={Fault.STORE: "b"}), later + timedelta(minutes=1))
    assert (change.after.reason, change.after.since) == ("b", later)


class Hands:
    """A clock that goes as it is told."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds


def test_a_step_over_its_bound_is_noticed_and_forgotten_when_it_ends():
    clock, out = Hands(), io.StringIO()
    board = Board(clock, make_log("text", out))
    board.lead(True)
    with board.step("full", 10):
        clock.seconds = 9
        board.watch()
        assert board.state.phase is Phase.LEADER
        clock.seconds = 11
        board.watch()
        assert (board.state.phase, board.state.reason) == (Phase.DEGRADED, "full takes longer than 10 s")
    assert board.state.phase is Phase.LEADER
    assert "event=step-late step=full" in out.getvalue()


def levels(out):
    return re.findall(r"level=(\w+) event=state", out.getvalue())


def test_an_etcd_that_starts_is_news_and_a_warning_only_once_that_lasts():
    clock, out = Hands(), io.StringIO()
    board = Board(clock, make_log("text", out))
    board.fault(Fault.ETCD_UNAVAILABLE, "refused")
    board.fault(Fault.ETCD_UNAVAILABLE, "hung up")
    clock.seconds = STARTING
    board.watch()
    assert levels(out) == ["info", "info"]
    clock.seconds += 1
    board.watch()
    board.watch()
    assert levels(out) == ["info", "info", "warning"]
    assert f'reason="hung up" seconds={STARTING + 1}' in out.getvalue()
    board.fault(Fault.ETCD_UNAVAILABLE, "refused")
    assert levels(out)[3:] == ["warning"]


def test_an_etcd_that_went_away_is_a_warning_at_once_also_behind_a_calm_start():
    clock, out = Hands(), io.StringIO()
    board = Board(clock, make_log("text", out))
    board.fault(Fault.ETCD_UNAVAILABLE, "refused")
    board.clear(Fault.ETCD_UNAVAILABLE)
    board.lead(False)
    clock.seconds = STARTING + 1
    board.watch()
    assert "warning" not in levels(out)
    board.fault(Fault.ETCD_UNAVAILABLE, "refused")
    assert levels(out)[-1] == "warning"


def test_log_lines_hold_no_secret_and_no_line_break():
    out = io.StringIO()
    log = make_log("text", out)
    log.info("asked", token="abcdef", Password="x", error="two\nlines", seconds=1.23456)
    (line,) = out.getvalue().splitlines()
    assert "abcdef" not in line
    assert 'error="two lines"' in line
    assert "seconds=1.235" in line
    assert "Password=***" in line


def test_a_member_leads_backups_while_it_leads_etcd():
    standing = Standing(Rule.FOLLOW)
    assert standing.leads is None
    assert standing.learn(Sight(Role.SILENT), is_alone=False) is None
    assert standing.learn(Sight(Role.FOLLOWER), is_alone=False) is False
    assert standing.learn(Sight(Role.LEADER), is_alone=False) is True
    assert standing.learn(Sight(Role.LEARNER), is_alone=False) is False


@pytest.mark.parametrize("role", [Role.SILENT, Role.LEADERLESS])
def test_a_leader_that_falls_silent_is_believed_for_a_while_and_a_single_member_for_ever(role):
    of_three, alone = Standing(Rule.FOLLOW), Standing(Rule.FOLLOW)
    for standing in (of_three, alone):
        standing.learn(Sight(Role.LEADER), is_alone=standing is alone)
    for _ in range(PATIENCE - 1):
        assert of_three.learn(Sight(role), is_alone=False) is True
    assert of_three.learn(Sight(role), is_alone=False) is False
    for _ in range(PATIENCE * 3):
        assert alone.learn(Sight(role), is_alone=True) is True


def test_an_agent_beside_no_member_leads_once_etcd_has_answered():
    assert Rule.for_endpoints(("http://a", "http://b")) is Rule.ALWAYS
    assert Rule.for_endpoints(("http://a",)) is Rule.FOLLOW
    standing = Standing(Rule.ALWAYS)
    assert standing.learn(Sight(Role.SILENT), is_alone=False) is None
    assert standing.learn(Sight(Role.FOLLOWER, status=object()), is_alone=False) is True
    for _ in range(9):
        assert standing.learn(Sight(Role.SILENT), is_alone=False) is True


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (EtcdUnavailableError("x"), Fault.ETCD_UNAVAILABLE),
        (EtcdDeniedError("x"), Fault.ETCD_DENIED),
        (ThrottledError("x"), Fault.STORE_UNAVAILABLE),
        (DeniedError("x"), Fault.STORE_DENIED),
        (FencedError("x"), Fault.FENCED),
        (IdentityError("x"), Fault.FOREIGN),
        (ZeroDivisionError("x"), Fault.INTERNAL),
    ],
)
def test_pauses_grow_to_a_bound_while_one_fault_lasts(error, fault):
    rule = rule_for(error)
    assert rule.fault is fault
    backoff = Backoff(chance=lambda: 1.0)
    pauses = [backoff.pause(error) for _ in range(40)]
    assert pauses[0] == rule.first
    assert pauses == sorted(pauses)
    assert pauses[-1] == rule.longest
    backoff.reset()
    assert backoff.pause(error) == rule.first
    assert Backoff(chance=lambda: 0.0).pause(error) == rule.first / 2
