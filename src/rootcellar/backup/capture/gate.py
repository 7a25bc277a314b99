"""Where deltas may end while fulls are taken beside them.

A full is named H, read before its stream, and its database ends with R.  No delta may end in [H, R)
(`capture.base` says why), and R is known only when all of the database has passed.  But it is at most H2, a
revision that etcd tells once the stream has brought its first bytes: the member began its read transaction
before it sent any, and what that transaction sees was committed before H2 was asked for.  So:

1. the gate is shut: a delta that is being written is waited for, and none is cut.
2. H is read, the stream begins, H2 is read.  The gate opens, and forbids [H, H2).
3. the full is stored and recorded.  The gate forbids [H, R).

If the full fails after 2, the larger range stays forbidden: it may become visible at any time.  So do the
ranges of fulls that others have claimed before us (`capture.rivals`).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rootcellar.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Gate:
    """Between the thread that cuts deltas and the one that takes fulls."""

    def __init__(self, *forbidden: range) -> None:
        self._changed = threading.Condition()
        self._forbidden = set(forbidden)
        self._is_shut = False
        self._is_writing = False
        self._is_closed = False

    @property
    def is_shut(self) -> bool:
        return self._is_shut

    def admits(self, revision: int) -> bool:
        """Whether a delta may end here.  If so it counts as being written, until `leave`."""
        with self._changed:
            if self._is_shut or any(revision in each for each in self._forbidden):
                return False
            self._is_writing = True
            return True

    def leave(self) -> None:
        """The delta is written, or given up."""
        with self._changed:
            self._is_writing = False
            self._changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """No delta is cut while this lasts, or until `open`.

        Raises FencedError when the gate is closed while it waits for the delta that is being written.
        """
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._is_writing or self._is_closed)
            if self._is_closed:
                raise FencedError(
                    "the session was closed", hint="whoever closed it goes on, or another agent"
                )
        try:
            yield
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()

    def open(self) -> None:
        """Let deltas be cut again."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()

    def forbid(self, forbidden: range, instead_of: range = range(0)) -> None:
        """Let no delta end in this range, whether shut or not; in another one they may again."""
        with self._changed:
            self._forbidden.discard(instead_of)
            self._forbidden.add(forbidden)

    def wait(self, timeout: float) -> None:
        """Until it is open, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut or self._is_closed, timeout)

    def close(self) -> None:
        """Free whoever waits, for good."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
