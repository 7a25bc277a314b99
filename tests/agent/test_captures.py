"""When an agent that leads captures, and how it comes out of what goes wrong with a full."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise

import pytest

from rootcellar.agent import backoff, captures
from rootcellar.agent.state import UNREAD, Fault
from rootcellar.errors import ConfigError, FencedError, TransientError
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.stay import Stay
from tests.backup.capture_scene import a_scene
from tests.backup.session_scene import opened


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(5)
        yield scene


class Breaking(StoreDecorator):
    """A store in which the first fulls break off behind their first bytes, once `may_break` says so."""

    def __init__(self, inner, times):
        super().__init__(inner)
        self.times = times
        self.began = []
        self.may_break = lambda: True

    def put(self, key, chunks, *, condition=None):
        if key.startswith("v2/Full"):
            self.began.append(time.monotonic())
            if len(self.began) <= self.times:
                next(iter(chunks))
                wait_until(self.may_break, "what is to come before it breaks off")
                raise TransientError("connection reset")
        return self.inner.put(key, chunks, condition=condition)


class Hanging(StoreDecorator):
    """A store, such as a mount, that keeps its first full in the air until it is told to go on."""

    def __init__(self, inner):
        super().__init__(inner)
        self.began, self.ended, self.may_go_on = (threading.Event() for _ in range(3))

    def put(self, key, chunks, *, condition=None):
        if not key.startswith("v2/Full") or self.began.is_set():
            return self.inner.put(key, chunks, condition=condition)
        self.began.set()
        self.may_go_on.wait(60)
        try:
            return self.inner.put(key, chunks, condition=condition)
        finally:
            self.ended.set()


@pytest.mark.parametrize("reload_fails", [False, True])
def test_what_a_capture_finds_wrong_with_the_configuration_is_told_until_it_is_right(
    scene, store, reload_fails
):
    """It stayed told, and the agent degraded, until the next reload."""

    class Misread(StoreDecorator):
        is_right = False

        def put(self, key, chunks, *, condition=None):
            if not self.is_right:
                raise ConfigError("the file of credentials is half written")
            return self.inner.put(key, chunks, condition=condition)

    misread = Misread(store)
    led = Stay(scene, misread, 0.1)

    async def live():
        async with led.running():
            await led.until(lambda: Fault.CONFIG in led.board.facts.faults, "the fault")
            misread.is_right = True
            if reload_fails:
                led.board.fault(Fault.CONFIG, f"{UNREAD}a typo")
            led.captures._wake.set()  # noqa: SLF001  instead of the pause
            await led.stored(scene.client.header().revision)
            assert (Fault.CONFIG in led.board.facts.faults) is reload_fails

    asyncio.run(live())


def test_deltas_that_are_asked_for_leave_the_next_period_where_it_was(scene, store):
    stay = Stay(scene, store, delta_every=2)

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


@pytest.mark.parametrize("delta_every", [0.1, 300, None])
def test_a_full_that_deltas_need_and_that_breaks_off_is_a_fault_and_tried_with_growing_pauses(
    scene, store, delta_every
):
    """Also where the next delta is far away, or none is ever due."""
    breaking = Breaking(store, times=2)
    stay = Stay(scene, breaking, delta_every)
    breaking.may_break = lambda: stay.captures._session.is_following  # noqa: SLF001  deltas have begun behind it

    async def live():
        async with stay.running():
            await stay.until(lambda: Fault.STORE_UNAVAILABLE in stay.board.facts.faults, "the fault")
            await stay.until(lambda: stay.journal.full.count == 1, "a full")
            await stay.until(lambda: not stay.board.facts.faults, "all is well")

    asyncio.run(live())
    assert [each["fault"] for each in stay.logged("capture-failed")] == ["store-unavailable"] * 2
    assert len(breaking.began) == 3
    # Between half and the whole of one second and of two.
    pauses = [late - early for early, late in pairwise(breaking.began)]
    assert all(pause >= least for pause, least in zip(pauses, (0.5, 1), strict=True)), pauses
    assert stay.journal.epoch == 1


def test_a_delta_that_is_asked_for_while_a_full_is_waited_for_holds_what_was_written_since_it_began(
    scene, store
):
    """That full was the answer, and had less than etcd when it was asked for."""
    hanging = Hanging(store)
    stay = Stay(scene, hanging, delta_every=300)

    async def live():
        async with stay.running():
            await stay.until(hanging.began.is_set, "a full")
            asked_at = time.monotonic()
            first = asyncio.create_task(stay.captures.delta())
            session = stay.captures._session  # noqa: SLF001
            await stay.until(lambda: session.asked_at >= asked_at, "nothing to store")
            last = scene.write()
            second = asyncio.create_task(stay.captures.delta())
            await stay.until(lambda: len(stay.captures._waiters) == 2, "both")  # noqa: SLF001
            hanging.may_go_on.set()
            await first
            return last, await second

    last, capture = asyncio.run(live())
    assert capture.full is not None
    assert [each.record.last_revision for each in capture.deltas] == [last]


@pytest.fixture
def soon(monkeypatch):
    """A writer that was fenced comes back without waiting long."""
    rule = FencedError, backoff.Rule(Fault.FENCED, 0.2, 1)
    monkeypatch.setattr(backoff, "_RULES", (rule, *backoff._RULES))  # noqa: SLF001


@pytest.mark.usefixtures("soon")
def test_without_periodic_deltas_a_writer_that_was_fenced_comes_back(scene, store):
    stay = Stay(scene, store, delta_every=None)

    async def live():
        async with stay.running():
            await stay.until(lambda: stay.journal.full.count == 1, "the first full")
            await asyncio.to_thread(lambda: opened(scene).close())
            with pytest.raises(FencedError, match="superseded"):
                await stay.captures.full(why="schedule")
            await stay.until(lambda: stay.journal.epoch == 3, "a session")
            return await stay.captures.full(why="schedule")

    assert asyncio.run(live()).record.epoch == 3


@pytest.mark.usefixtures("soon")
def test_a_full_that_hangs_neither_keeps_the_next_session_from_one_nor_ends_it(scene, store):
    hanging = Hanging(store)
    stay = Stay(scene, hanging, delta_every=0.1)

    async def live():
        async with stay.running():
            await stay.until(hanging.began.is_set, "a full")
            asked = asyncio.create_task(stay.captures.full(why="asked for"))
            await asyncio.to_thread(lambda: opened(scene).close())
            await stay.until(lambda: stay.journal.epoch == 3, "a session")
            assert (await asked).record.epoch == 3
            hanging.may_go_on.set()
            await stay.until(hanging.ended.is_set, "its end")
            await stay.stored(scene.write())

    asyncio.run(live())
    assert stay.journal.epoch == 3
    assert Fault.FENCED not in stay.board.facts.faults
    scene.must_equal(scene.restored(), scene.client.header().revision)


@pytest.mark.usefixtures("soon")
def test_a_full_that_takes_many_times_its_bound_is_given_up_with_its_session(scene, store, monkeypatch):
    monkeypatch.setattr(captures, "FULL_BOUND", 0.5)
    hanging = Hanging(store)
    stay = Stay(scene, hanging, delta_every=300)

    async def live():
        async with stay.running():
            await stay.until(hanging.began.is_set, "a full")
            monkeypatch.setattr(captures, "FULL_BOUND", 60)  # for the next, which may take its time
            await stay.until(lambda: stay.journal.full.count == 1, "another")
            hanging.may_go_on.set()

    asyncio.run(live())
    assert "full took longer than 2 s: the session was given up" in stay.logged("full-failed")[0]["error"]
    assert stay.journal.epoch == 2
