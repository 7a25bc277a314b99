"""Deleting many objects for an extension object: a slice of time in each reconcile, its progress told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from rootcellar.errors import LockedError, RootcellarError
from rootcellar.kube.steps import Outcome, Requeue
from rootcellar.stores.limit import Bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable

    from rootcellar.operator.shared.subject import Subject
    from rootcellar.stores.admin.values import Deletion

SLICE: Final = timedelta(seconds=60)
"""How long one reconcile deletes before others of the same worker have their turn."""
_A_SECOND: Final = 1000.0
"""Objects that all deletions of a controller take away together in a second: captures of living clusters ask
the same store at the same time, and come first.
"""
_STEP: Final = 1000
"""Objects per percent of progress: nobody knows how many there are before all have been listed."""


class Delete(Protocol):
    """`delete_objects` of one prefix, or `empty`."""

    def __call__(self, *, go_on: Deletion | None, stop: Callable[[], bool], rate: Bandwidth) -> Deletion: ...


@dataclass(slots=True)
class Removals:
    """Those under way, by the UID of their object.  Killed: the next process begins at the first object that
    is left.
    """

    may_write: Callable[[], bool]
    rate: Bandwidth = field(default_factory=lambda: Bandwidth(_A_SECOND))
    _under_way: dict[str, Deletion] = field(default_factory=dict)
    _left: dict[str, Deletion] = field(default_factory=dict)

    def go_on(self, subject: Subject[Any], what: str, delete: Delete, *, ways_out: str) -> Outcome | None:
        """Delete on; an outcome where there is more to delete.  Raises LockedError for what retention or a
        hold keeps, with `ways_out` as its hint, and the first error of what could not be deleted otherwise.
        """
        uid = subject.object.metadata.uid
        self._left.pop(uid, None)
        until = subject.ground.now() + SLICE
        found = delete(
            go_on=self._under_way.get(uid),
            stop=lambda: subject.ground.now() >= until or not self.may_write(),
            rate=self.rate,
        )
        if not found.complete:
            self._under_way[uid] = found
            subject.begin(
                progress=min(99, 1 + found.deleted // _STEP),
                doing=f"Deleting the objects of {what}: {found.deleted} are gone",
            )
            return Requeue(0)
        self.forget(uid)
        if not found.gone:
            self._left[uid] = found
            raise _left(found, what, ways_out)
        return None

    def is_under_way(self, uid: str) -> bool:
        """Whether this process has deleted some of it, and not all."""
        return uid in self._under_way

    def left(self, uid: str) -> Deletion | None:
        """What came of the last deletion that left something."""
        return self._left.get(uid)

    def forget(self, uid: str) -> None:
        """It needs no deletion any more."""
        self._under_way.pop(uid, None)
        self._left.pop(uid, None)


def _left(found: Deletion, what: str, ways_out: str) -> RootcellarError:
    if found.failures:
        key, error = next(iter(found.examples.items()))
        return type(error)(f"{found.failures} objects of {what} are not deleted, such as {key}: {error}")
    when = f"until {found.latest:%Y-%m-%dT%H:%M:%SZ}" if found.latest else "by a legal hold"
    return LockedError(f"{found.locked} objects of {what} are locked {when}", hint=ways_out)
