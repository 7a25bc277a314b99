"""The agents of these tests: none outlives the process that started it."""

from __future__ import annotations

from tests.killed import outlives_its_run

# A test run in small: it starts an agent, says its pid, and waits to be killed.
RUN = """
import sys
from pathlib import Path
from tests.agent.agents import AgentProcess

agent = AgentProcess(Path(sys.argv[1]), ["http://127.0.0.1:1"], f"file://{sys.argv[1]}/store").start()
agent.wait_logged("started")
print(agent.process.pid, flush=True)
sys.stdin.read()
"""


def test_an_agent_dies_with_a_test_run_that_is_killed(tmp_path):
    assert not outlives_its_run(RUN, tmp_path)
