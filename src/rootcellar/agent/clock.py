"""Time as the agent sees it, so that a test can make it jump."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The wall clock decides what is due, the monotonic one how long is waited."""

    def now(self) -> datetime:
        """Aware UTC; may jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds; never jumps."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
