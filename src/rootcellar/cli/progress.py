"""Progress on a terminal: how much, how fast, how long still.  Nothing anywhere else."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.cli import columns
from rootcellar.stores.meter import MeteredStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.progress import Task

    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.cli.console import Console
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the work.  `total` is in bytes, or in `noun`s; None when nobody knows."""

    label: str
    total: int | None = None
    noun: str = ""

    def amount(self, done: float) -> str:
        """What has been done, or is done per second."""
        return f"{done:,.0f} {self.noun}" if self.noun else columns.size(done)


@contextmanager
def progress(console: Console, phases: Mapping[str, Phase]) -> Iterator[Callable[[str, int], None]]:
    """A function to call with a phase and how much more of it is done; what is not called is not shown."""
    if not console.shows_progress:
        yield lambda _phase, _more: None
        return
    from rich import progress as bars  # noqa: PLC0415 - a tenth of a second, and only terminals need it
    from rich.console import Console as RichConsole  # noqa: PLC0415

    class Amount(bars.ProgressColumn):
        def render(self, task: Task) -> str:
            phase: Phase = task.fields["phase"]
            of = f" of {phase.amount(task.total)}" if task.total else ""
            return f"{phase.amount(task.completed)}{of}"

    class Rate(bars.ProgressColumn):
        def render(self, task: Task) -> str:
            speed = task.finished_speed or task.speed
            phase: Phase = task.fields["phase"]
            return f"{phase.amount(speed)}/s" if speed else ""

    rich = RichConsole(file=console.err.file, no_color=not console.err.styled)
    shown = bars.Progress(
        bars.TextColumn("{task.description:<10}"),
        bars.BarColumn(bar_width=30),
        Amount(),
        Rate(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(compact=True),
        console=rich,
        transient=True,
    )
    tasks: dict[str, bars.TaskID] = {}

    def advance(name: str, more: int) -> None:
        if name not in tasks:
            phase = phases.get(name, Phase(name))
            tasks[name] = shown.add_task(phase.label, total=phase.total, phase=phase)
        shown.advance(tasks[name], more)

    with shown:
        yield advance


@contextmanager
def reading(
    console: Console, store: Store, plan: RestorePlan
) -> Iterator[tuple[Store, Callable[[str, int], None]]]:
    """The store to read a plan's objects from, and the function to call while they are worked on.

    Nobody knows how large a database will be that another tool compressed, but how much is to be read is
    known: that is what the remaining time is told by.
    """
    metered = MeteredStore(store)
    total = plan.full.size + sum(planned.size for planned in plan.deltas)
    phases = {
        "read": Phase("read", total),
        "full": Phase("write"),
        "deltas": Phase("apply", None, "events"),
    }
    read = 0
    with progress(console, phases) as advance:

        def both(name: str, more: int) -> None:
            nonlocal read
            before, read = read, metered.meter.read().downloaded
            advance("read", read - before)
            advance(name, more)

        yield metered, both
