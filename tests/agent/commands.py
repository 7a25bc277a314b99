"""Commands beside an agent, with its configuration."""

from __future__ import annotations

import json
import os
import subprocess

from tests.agent.agents import COMMAND


def run(agent, *words):
    """What the command prints as JSON."""
    done = subprocess.run(
        [*COMMAND, *words, "--config", agent.config, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **agent.environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
