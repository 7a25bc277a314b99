"""A reconcile as a list of named steps, carried out in order by one runner.

    STEPS = [Step("finalizer", add_finalizer), Step("secret", find_secret), Step("bucket", make_bucket)]

    def reconcile(key: Key) -> Outcome:
        return run(STEPS, Subject(key))

A step takes the subject, and returns None to go on or an outcome that ends the run.  What it raises ends the
run too; the name of the step is then in the log, in the metrics, and for a status in `reached()`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

S = TypeVar("S")


class Done(NamedTuple):
    """All is as it shall be: nothing to do until something changes."""


class Requeue(NamedTuple):
    """It went well, and is to be looked at again in `after` seconds."""

    after: float


Outcome = Done | Requeue


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """One step, by the name that a person reads."""

    name: str
    act: Callable[[S], Outcome | None]


class Taken(NamedTuple):
    """A step that was taken: how long it took in seconds, and `done`, `requeue` or the code of its error."""

    step: str
    seconds: float
    result: str


@dataclass(slots=True)
class Trace:
    """What one reconcile has come to."""

    reached: str = ""
    taken: list[Taken] = field(default_factory=list)


_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def tracing() -> Iterator[Trace]:
    """Follow the steps that this thread takes while the context is entered."""
    trace = Trace()
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def reached() -> str:
    """The step that this thread's reconcile is at, or stopped at; empty before the first."""
    trace = _trace.get()
    return trace.reached if trace is not None else ""


def run(steps: Iterable[Step[S]], subject: S) -> Outcome:
    """Take the steps until one returns an outcome; `Done` after the last.  Raises what a step raises."""
    trace = _trace.get() or Trace()
    for step in steps:
        trace.reached = step.name
        began, result = time.monotonic(), "done"
        try:
            outcome = step.act(subject)
        except Exception as error:
            result = code_of(error)
            raise
        else:
            result = result_of(outcome)
        finally:
            trace.taken.append(Taken(step.name, time.monotonic() - began, result))
        if outcome is not None:
            return outcome
    return Done()


def result_of(outcome: Outcome | None) -> str:
    """What an outcome is called in metrics."""
    return "requeue" if isinstance(outcome, Requeue) else "done"


def code_of(error: Exception) -> str:
    """What an error is called there."""
    return error.code if isinstance(error, RootcellarError) else "internal"
