"""Captures of one stay as the leader, without the agent around them."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager, suppress
from functools import partial

from rootcellar.agent.board import Board
from rootcellar.agent.captures import Captures
from rootcellar.agent.clock import SystemClock
from rootcellar.agent.journal import Journal
from rootcellar.agent.leadership import Rule
from rootcellar.agent.settings import Settings
from rootcellar.logs import make_log
from tests.agent.agents import wait_until


class Stay:
    """One agent's captures, as the leader, in this process; `delta_every` is in seconds, None for never."""

    def __init__(self, scene, store, delta_every=0.1):
        self.scene = scene
        self.out = io.StringIO()
        self.log = make_log("json", self.out)
        self.clock = SystemClock()
        self.board = Board(self.clock, self.log)
        self.journal = Journal()
        settings = Settings(
            "tests/1",
            (scene.member.endpoint,),
            lambda: scene.client,
            None,
            Rule.ALWAYS,
            delta_every=delta_every,
        )
        self.captures = Captures(
            settings,
            scene.client,
            store,
            source=None,
            board=self.board,
            journal=self.journal,
            log=self.log,
            clock=self.clock,
        )

    def logged(self, event):
        return [each for each in map(json.loads, self.out.getvalue().splitlines()) if each["event"] == event]

    def run(self, until, *before):
        """Until a condition holds; each of `before` is waited for, and a change written behind it."""

        async def live():
            task = asyncio.create_task(self.captures.run())
            try:
                async with asyncio.timeout(60):
                    for each in (*before, until):
                        await asyncio.to_thread(wait_until, partial(each, self))
                        if each is not until:
                            await asyncio.to_thread(self.scene.write)
            finally:
                await self.captures.finish()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait_for(task, 30)

        asyncio.run(live())

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
