"""The agents of these tests: none outlives the process that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with run:
        agent = os.pidfd_open(int(run.stdout.readline()))
        try:
            assert not ended(agent, 0)
            run.send_signal(signal.SIGKILL)
            assert ended(agent, 30)
        finally:
            os.close(agent)


def ended(pidfd, seconds):
    """Whether the process ended within so many seconds."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
