"""What may be seen of an agent by those that show it: its metrics, its status, its HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from rootcellar.agent.board import Board
    from rootcellar.agent.clock import Clock
    from rootcellar.agent.jobs import Diary
    from rootcellar.agent.journal import Journal
    from rootcellar.agent.mirror import Reached
    from rootcellar.agent.settings import Settings
    from rootcellar.agent.standby import Standby
    from rootcellar.backup.capture.outcome import Capture, Captured
    from rootcellar.backup.catalogue.records import Check
    from rootcellar.stores.meter import Meter


class View(Protocol):
    """`leads` is None before etcd has answered, `store_url` where there is no store; `is_writing`: a session
    of its own is open or being opened.  Intervals are in seconds.  `needs_restart` are settings that were
    changed and that a reload does not take.
    """

    settings: Settings
    clock: Clock
    board: Board
    journal: Journal
    meter: Meter
    began_at: datetime
    needs_restart: tuple[str, ...]
    store_url: str | None

    @property
    def leads(self) -> bool | None: ...
    @property
    def is_writing(self) -> bool: ...
    @property
    def diaries(self) -> Sequence[Diary]: ...
    @property
    def reached(self) -> Mapping[str, Reached]: ...
    @property
    def standby(self) -> Standby | None: ...

    def expected_intervals(self) -> dict[str, float]:
        """Between two deltas, and at most between two runs of each job."""
        ...

    def proof_intervals(self) -> dict[Check, float]:
        """At most between two proofs that are scheduled for a check."""
        ...


class Captor(View, Protocol):
    """One that can be asked for captures.  Both raise FencedError where it writes none, and what stopped
    them.
    """

    async def full(self, *, final: bool | None = None) -> Captured | None: ...
    async def delta(self) -> Capture: ...
