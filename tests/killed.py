"""What becomes of a process when the test run that started it is killed."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def outlives_its_run(code, directory):
    """Run Python code, which prints the id of a process that it started and waits, and kill it: whether that
    process still runs half a minute later.
    """
    run = subprocess.Popen(
        [sys.executable, "-c", code, directory], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with run:
        started = os.pidfd_open(int(run.stdout.readline()))
        try:
            assert _runs(started, 0.2), "it ended by itself"
            run.send_signal(signal.SIGKILL)
            return _runs(started, 30)
        finally:
            os.close(started)


def _runs(pidfd, seconds):
    """Whether the process still runs after so many seconds; as soon as it does not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(seconds * 1000)
