"""Where everything in the agent says how it fares: faults, work under way, steps that take too long.

From this follow the state, the metrics and half of `status`.  In the event loop's thread only.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rootcellar.agent.state import Fault, Phase, States

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.agent.clock import Clock
    from rootcellar.agent.state import Facts, State
    from rootcellar.logs import Log

PATIENCE = 60.0
"""Seconds that an etcd which has not answered yet may take to start before it is more than news."""


@dataclass(eq=False, slots=True)
class Step:
    """Something that has begun, and how many seconds it may take."""

    name: str
    began: float
    bound: float
    is_told: bool = False


class Board:
    """The facts, and the log line and state that every change of them makes."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._states = States(clock.now())
        self._steps: list[Step] = []
        self._work: list[str] = []
        self._starting_since: float | None = None

    @property
    def state(self) -> State:
        return self._states.state

    @property
    def facts(self) -> Facts:
        return self._states.facts

    def _learn(self, facts: Facts) -> None:
        change = self._states.learn(facts, self._clock.now())
        if change is None:
            return
        phase = change.after.phase
        if phase is not Phase.WAITING:
            self._starting_since = None
        elif change.before.phase is Phase.STARTING:
            self._starting_since = self._clock.monotonic()
        calm = phase is Phase.WAITING and self._starting_since is not None
        tell = self._log.warning if phase in (Phase.DEGRADED, Phase.WAITING) and not calm else self._log.info
        tell("state", was=change.before.phase, state=phase, reason=change.after.reason)

    def fault(self, fault: Fault, reason: str) -> None:
        """Something is wrong, until it is cleared."""
        self._learn(replace(self.facts, faults={**self.facts.faults, fault: reason}))

    def clear(self, *faults: Fault) -> None:
        """These are not wrong, or no longer."""
        left = {fault: reason for fault, reason in self.facts.faults.items() if fault not in faults}
        if len(left) < len(self.facts.faults):
            self._learn(replace(self.facts, faults=left))

    def lead(self, leads: bool | None) -> None:
        self._learn(replace(self.facts, leads=leads))

    def stop(self) -> None:
        self._learn(replace(self.facts, stopping=True))

    @contextmanager
    def step(self, name: str, bound: float, *, work: bool = False) -> Iterator[None]:
        """A step under way.  `work`: one that makes the state `capturing`."""
        step = Step(name, self._clock.monotonic(), bound)
        self._steps.append(step)
        if work:
            self._work.append(name)
            self._learn(replace(self.facts, work=frozenset(self._work)))
        try:
            yield
        finally:
            self._steps.remove(step)
            if work:
                self._work.remove(name)
                self._learn(replace(self.facts, work=frozenset(self._work)))
            if step.is_told:
                self._log.info("step-ended", step=name, seconds=self._clock.monotonic() - step.began)
                self.watch()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)

    def watch(self) -> None:
        """Look for what takes longer than it should.  To be called every few seconds."""
        now = self._clock.monotonic()
        if self._starting_since is not None and (waited := now - self._starting_since) > PATIENCE:
            self._starting_since = None  # every further reason is a warning
            state = self.state
            self._log.warning(
                "state", was=state.phase, state=state.phase, reason=state.reason, seconds=waited
            )
        late = [step for step in self._steps if now - step.began > step.bound]
        for step in late:
            if not step.is_told:
                step.is_told = True
                self._log.warning("step-late", step=step.name, bound=step.bound)
        if late:
            names = ", ".join(f"{step.name} takes longer than {step.bound:.0f} s" for step in late)
            self.fault(Fault.STUCK, names)
        else:
            self.clear(Fault.STUCK)
