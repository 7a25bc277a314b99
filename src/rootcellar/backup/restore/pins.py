"""Pins: while a chain is read, no prune takes it away.

A pin is a courtesy between readers and prunes, and nobody waits for it: a thread writes it, renews it while
the reader is at work, and takes it away at the end.  A store that refuses it, or hangs over it, is read all
the same; what a prune then takes away is told as gone.

Killed anywhere: a pin that expires.  A renewal is written before the one that it replaces is removed.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import ledger, names
from rootcellar.backup.catalogue.history import Snapshot
from rootcellar.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from rootcellar.backup.catalogue.records import Pin
    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.stores.protocol import Store

STAY: Final = timedelta(minutes=15)
"""How long a pin lasts; when half of that has passed, another takes its place."""

_PATIENCE = 1.0
"""Seconds that a reader who is done gives the thread to take the pin away; later it expires."""


@contextmanager
def pinned(
    store: Store,
    full: Snapshot,
    through: int | None,
    *,
    by: str,
    is_awaited: bool = False,
    stay: timedelta = STAY,
) -> Generator[None]:
    """Keep a full, and what leads from it to the revision `through`, while the context lasts.

    `is_awaited`: begin when the pin is there or was refused, for those who write to the store anyway.
    """
    keeper = _Keeper(store, full, through, by, stay)
    keeper.start()
    if is_awaited:
        keeper.tried.wait()
    try:
        yield
    finally:
        keeper.done.set()
        keeper.join(None if is_awaited else _PATIENCE)


@contextmanager
def pinned_plan(store: Store, plan: RestorePlan, *, by: str) -> Generator[None]:
    """Keep what a plan reads.  A file that belongs to no catalogue needs no pin, and gets none."""
    name = names.read(plan.full.key)
    if name is None:
        yield
        return
    through = plan.deltas[-1].last if plan.deltas else None
    with pinned(store, Snapshot(name, plan.full.key, plan.full.size), through, by=by):
        yield


class _Keeper(threading.Thread):
    """A daemon, as a process does not stay alive for a store that hangs."""

    def __init__(self, store: Store, full: Snapshot, through: int | None, by: str, stay: timedelta) -> None:
        super().__init__(name="pin", daemon=True)
        self._store = store
        self._full = full
        self._through = through
        self._by = by
        self._stay = stay
        self._pin: Pin | None = None
        self.tried = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        try:
            while True:
                self._renew()
                self.tried.set()
                if self.done.wait(self._stay.total_seconds() / 2):
                    break
            self._remove(self._pin)
        finally:
            self.tried.set()

    def _renew(self) -> None:
        now, before = datetime.now(UTC), self._pin
        with suppress(StoreError):  # denied, read-only, hanging: the chain is read all the same
            until = now + self._stay
            self._pin = ledger.write_pin(
                self._store, self._full, by=self._by, now=now, until=until, through=self._through
            )
            # Killed here: two pins, which both expire.
            self._remove(before)

    def _remove(self, pin: Pin | None) -> None:
        if pin is not None:
            with suppress(StoreError):  # it expires
                ledger.remove_pin(self._store, pin)
