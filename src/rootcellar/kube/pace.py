"""How long a key that failed waits, by what went wrong.  Nothing is ever given up."""

from __future__ import annotations

from typing import NamedTuple

from rootcellar.errors import (
    KubeConflictError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    NotFoundError,
    RootcellarError,
    ThrottledError,
)


class Pace(NamedTuple):
    """The first and the longest pause in seconds; it doubles between them."""

    first: float
    longest: float


EXPONENTIAL = Pace(0.005, 1000.0)
"""As controller-runtime does by default: what may come back by itself, soon or late."""
CONFLICT = Pace(0.005, 1.0)
"""Somebody wrote in between, or our cache was behind: it hears of that within moments."""
THROTTLED = Pace(1.0, 1000.0)
LONG = Pace(5.0, 300.0)
"""A person has to act, and not always where a watch hears of it: a right that is granted, say."""
BUG = Pace(1.0, 300.0)

_PACES: tuple[tuple[type[Exception], Pace], ...] = (
    (KubeConflictError, CONFLICT),
    (KubeExistsError, CONFLICT),
    (KubeGoneError, CONFLICT),
    (ThrottledError, THROTTLED),
    (KubeNotFoundError, EXPONENTIAL),  # whoever makes it may be about to
    (NotFoundError, EXPONENTIAL),
)


def pace_for(error: Exception) -> Pace:
    """The pauses after this error."""
    for kind, pace in _PACES:
        if isinstance(error, kind):
            return pace
    if isinstance(error, RootcellarError):
        return EXPONENTIAL if error.retryable else LONG
    return BUG
