"""When an agent that leads captures, and how it comes out of what goes wrong with a full."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.test_proving import Stay
from tests.backup.capture_scene import a_scene


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(5)
        yield scene


class Led(Stay):
    """Captures of one stay as the leader, with deltas in a period of one's own."""

    def __init__(self, scene, store, delta_every):
        super().__init__(scene, store)
        captures = self.captures
        captures._settings = replace(captures._settings, delta_every=delta_every)  # noqa: SLF001

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.captures.run())
        try:
            async with asyncio.timeout(60):
                yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, condition, what=""):
        await asyncio.to_thread(wait_until, condition, what)

    async def stored(self, revision):
        await self.until(lambda: self.journal.point and self.journal.point.revision >= revision, "a point")


def test_deltas_that_are_asked_for_leave_the_next_period_where_it_was(scene, store):
    stay = Led(scene, store, delta_every=2)

    async def live():
        async with stay.running():
            await stay.until(lambda: stay.journal.point)
            for _ in range(10):
                scene.write()
                await stay.captures.delta()
            began = stay.clock.monotonic()
            await stay.stored(scene.write())
            return stay.clock.monotonic() - began

    assert asyncio.run(live()) < 12, "the next tick, not the tenth"
