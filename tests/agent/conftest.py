import pytest

from tests.agent.agents import Agents


@pytest.fixture
def agents(tmp_path):
    """Starts agents for this test; they are killed after it."""
    with Agents(tmp_path / "agents") as found:
        yield found
