from tests.agent.conftest import agents

__all__ = ["agents"]
