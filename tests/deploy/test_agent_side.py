"""What the agent has for its operator: pauses of schedules, proofs that failed, its door for root."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.agent import doorway
from rootcellar.agent.doorway import Doorway
from rootcellar.agent.journal import Journal
from rootcellar.agent.schedule import Cron
from rootcellar.backup.catalogue.records import Check, Finding, Proof, Result
from testbed.cache import UnavailableError

MONDAY = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "hours"),
    [
        ("0 */6 * * *", 6),
        ("0 0 * * 1-5", 72),  # from Friday to Monday
        ("0 8-18 * * *", 14),  # at night
        ("* * * * *", 1 / 60),
        ("0 0 1 1 *", 365 * 24),
    ],
)
def test_the_longest_pause_of_a_schedule_is_the_one_that_it_spares(expression, hours):
    assert Cron(expression).longest_pause(MONDAY) == timedelta(hours=hours)


def test_a_suspended_schedule_is_expected_at_no_time():
    assert Cron("0 0 * * *", suspend=True).longest_pause(MONDAY) is None


def proof(result, revision=7, check=Check.REPLAYED):
    return Proof(
        objects=(),
        revision=revision,
        findings=(Finding(check=check, result=result, detail="as found"),),
        started_at=MONDAY,
        finished_at=MONDAY,
        by="tests/1",
    )


def test_a_proof_that_failed_is_remembered_until_another_passes():
    journal = Journal()
    assert journal.failing == {}

    journal.proven(proof(Result.FAILED))
    assert (journal.failing, journal.proof) == ({Check.REPLAYED: "as found"}, None)

    journal.proven(proof(Result.PASSED, check=Check.HASH))
    assert list(journal.failing) == [Check.REPLAYED], "reading it again is not restoring it"

    journal.proven(proof(Result.PASSED))
    assert (journal.failing, journal.proof.revision) == ({}, 7)
    assert {check: seen.revision for check, seen in journal.proofs.items()} == {
        Check.HASH: 7,
        Check.REPLAYED: 7,
    }


def left_by_the_agents_user(directory, monkeypatch, owner, parent_mode):
    monkeypatch.setattr(Doorway, "ask", lambda *_arguments, **_how: {"health": True})
    directory.parent.mkdir()
    doorway.write(directory, Doorway("http://127.0.0.1:1", "token", "file:///store", 1))
    for each in (directory, doorway.place(directory, "file:///store")):
        os.chown(each, owner, owner)
    directory.parent.chmod(parent_mode)
    return doorway.find(directory, "file:///store")


@pytest.mark.parametrize(("parent_mode", "is_found"), [(0o755, True), (0o1777, False)])
def test_root_finds_the_agent_of_another_user_only_where_root_gave_that_user_the_directory(
    tmp_path, monkeypatch, parent_mode, is_found
):
    if os.geteuid() != 0:
        raise UnavailableError("only root can give files away")
    found = left_by_the_agents_user(tmp_path / "run" / "rootcellar", monkeypatch, 65534, parent_mode)

    assert (found is not None) == is_found
