"""What to change of a bucket: the differences between its state and the wish.  Pure.

Nothing is ever weakened by accident: versioning is not turned off, encryption not replaced, and immutability
only shortened or lifted where the wish says so and the store still allows it.  What a server cannot say is
not touched; where it was explicitly asked for, that is refused rather than hoped for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.errors import ConfigError, LockedError, RootcellarError, UnsupportedError
from rootcellar.stores.admin.values import UNKNOWN, Aspect, Change, Immutability

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from rootcellar.stores.admin.values import BucketState, BucketWish, Unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in the order in which they are made; wishes that are refused, with the reason; and what was
    wished for and cannot be known.
    """

    changes: tuple[Change, ...]
    refused: tuple[RootcellarError, ...]
    unknown: tuple[Aspect, ...]


def drift(state: BucketState, wish: BucketWish) -> Plan:
    """The plan that brings a bucket from `state` to `wish`."""
    changes: list[Change] = []
    refused: list[RootcellarError] = []
    unknown: list[Aspect] = []
    # Google answers in capitals what it was asked for in small letters.
    if (
        wish.region is not None
        and state.region is not UNKNOWN
        and wish.region.lower() != state.region.lower()
    ):
        refused.append(
            ConfigError(
                f"{state.name}: the bucket lies in {state.region}, not in {wish.region}",
                hint="buckets do not move: ask for its region, or for a bucket of another name",
                operation="harden",
            )
        )
    for aspect, wanted, found in _switches(state, wish):
        if wanted and found is UNKNOWN:
            unknown.append(aspect)
        elif wanted and not found:
            changes.append(Change(aspect, "off", "on"))
    _uploads(state.uploads_aborted_after, wish.uploads_aborted_after, changes, unknown)
    _immutability(state, wish, changes, refused, unknown)
    if Aspect.VERSIONING in unknown:
        refused.append(_unsaid(state, Aspect.VERSIONING))
    return Plan(tuple(changes), tuple(refused), tuple(unknown))


def _switches(state: BucketState, wish: BucketWish) -> Iterator[tuple[Aspect, bool, bool | Unknown]]:
    """Public access first: it is the one that an attacker need not wait for."""
    yield Aspect.PUBLIC_ACCESS, wish.public_access_blocked, state.public_access_blocked
    yield Aspect.TRANSPORT, wish.encrypted_transport, state.encrypted_transport
    yield Aspect.ENCRYPTION, wish.encrypted, state.encrypted
    yield Aspect.VERSIONING, wish.versioning, state.versioning


def _uploads(
    found: timedelta | Unknown | None,
    wanted: timedelta | None,
    changes: list[Change],
    unknown: list[Aspect],
) -> None:
    """A rule that aborts sooner than wished for is somebody's own, and good enough."""
    if wanted is None:
        return
    if found is UNKNOWN:
        unknown.append(Aspect.LEFTOVERS)
    elif found is None or found > wanted:
        before = "kept" if found is None else f"aborted after {found.days} days"
        changes.append(Change(Aspect.LEFTOVERS, before, f"aborted after {wanted.days} days"))


def _immutability(
    state: BucketState,
    wish: BucketWish,
    changes: list[Change],
    refused: list[RootcellarError],
    unknown: list[Aspect],
) -> None:
    found, wanted = state.immutability, wish.immutability
    if found is UNKNOWN:
        if wanted is not None:
            unknown.append(Aspect.IMMUTABILITY)
            refused.append(_unsaid(state, Aspect.IMMUTABILITY))
        return
    if found == wanted or (found is None and wanted is None):
        return
    if found is not None and _is_weaker(wanted, found):
        if wanted is None and (found.locked or not wish.weaken):
            return  # nobody asked for anything: what is there was set by somebody who did
        if found.locked:
            refused.append(
                _refusal(state, f"its immutability is locked ({found})", "it can be extended only")
            )
            return
        if not wish.weaken:
            hint = "allow it to be weakened, or ask for as much as there is"
            refused.append(_refusal(state, f"its immutability ({found}) is stronger than {wanted}", hint))
            return
    changes.append(Change(Aspect.IMMUTABILITY, _told(found), _told(wanted)))


def _is_weaker(wanted: Immutability | None, found: Immutability) -> bool:
    return wanted is None or wanted.period < found.period or (found.locked and not wanted.locked)


def _told(immutability: Immutability | None) -> str:
    return "none" if immutability is None else str(immutability)


def _refusal(state: BucketState, message: str, hint: str) -> RootcellarError:
    return LockedError(f"{state.name}: {message}", hint=hint, operation="harden")


def _unsaid(state: BucketState, aspect: Aspect) -> RootcellarError:
    reason = state.unsaid.get(aspect, "this kind of store has none")
    return UnsupportedError(
        f"{state.name}: {aspect} is wanted, and the store does not tell of it: {reason}",
        hint="use a store that has it, or do not ask for it",
        operation="harden",
    )
