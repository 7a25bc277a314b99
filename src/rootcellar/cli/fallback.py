"""Which of several stores is read, where none is named: the one whose backups reach furthest.

The first store and what is kept beside it (mirrors, and the chains that are written while the first is away)
are looked at together.  One that cannot be read is told and done without; among those that reach as far, the
earlier one is taken.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import plan_chain, recovery_window
from rootcellar.cli import sources
from rootcellar.cli.configuration import standby
from rootcellar.errors import ChainError, NothingToRestoreError, RootcellarError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.backup.catalogue.ownership import Timeline
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True)
class Candidate:
    """A store that could be read, and what it holds."""

    name: str
    store: Store
    catalogue: Catalogue

    @property
    def living(self) -> Timeline | None:
        timelines = self.catalogue.timelines
        return timelines[-1] if timelines else None

    @property
    def last(self) -> int | None:
        """The newest revision that can be restored."""
        return recovery_window(self.catalogue, (), self.catalogue.newest_timeline).last

    @property
    def at(self) -> int:
        """When the newest object was taken, in unix nanoseconds; 0 without any."""
        here = self.catalogue.on(self.catalogue.newest_timeline)
        return max((each.ended_at for each in here), default=0)


def others(context: Context) -> tuple[str, ...]:
    """What is kept beside STORE, by @NAME: mirrors, then their standbys.  Raises ConfigError."""
    mirrors = sources.mirrors(context)
    return tuple(f"@{each.name}" for each in (*mirrors, *map(standby, mirrors)))


def has_several(context: Context) -> bool:
    """Whether a verb that is given no store has several to read."""
    return sources.word(context) is None and bool(others(context))


def furthest(context: Context, target: Target | None = None) -> tuple[Store, Catalogue]:
    """The store to read, from which `target` can be restored.

    Raises what reading the first store does, where none can be read; NothingToRestoreError and ChainError of
    the best one, where none leads to the target.
    """
    if not has_several(context):
        store = sources.readable(context)
        return store, read_catalogue(store)
    found, failures = _read(context)
    for name, error in failures.items():
        context.console.warn(f"{name} cannot be read, and may hold more: {error.message}")
    if not found:
        raise next(iter(failures.values()))
    ordered = order(found)
    chosen = next((each for each in ordered if _leads(each, target)), ordered[0])
    if chosen is not found[0]:
        reach = f", which ends with revision {found[0].last}" if found[0].last else ""
        context.console.warn(
            f"{chosen.name} is read, to revision {chosen.last}, in the place of {found[0].name}{reach}"
        )
    elif failures:
        context.console.note(f"{chosen.name} is read, to revision {chosen.last}")
    return chosen.store, chosen.catalogue


def order(found: Sequence[Candidate]) -> list[Candidate]:
    """The one that reaches furthest, then the others as they were.  Pure."""
    best = found[0]
    for each in found[1:]:
        if _is_newer(each, best):
            best = each
    return [best, *(each for each in found if each is not best)]


def _is_newer(one: Candidate, other: Candidate) -> bool:
    """Whether `one` has a later state than `other`.

    By history where both have the same: who knows of a fork behind the other's timeline is ahead.  Within a
    cluster by revision, and between two, as after a restore, by time.
    """
    if one.last is None or other.last is None:
        return one.last is not None
    mine, theirs = one.living, other.living
    if mine is not None and theirs is not None and mine.nonce != theirs.nonce:
        if mine.nonce in {each.nonce for each in other.catalogue.timelines}:
            return False
        if theirs.nonce in {each.nonce for each in one.catalogue.timelines}:
            return True
        if mine.cluster_id != theirs.cluster_id:
            return one.at > other.at
    return one.last > other.last


def _leads(candidate: Candidate, target: Target | None) -> bool:
    if target is None:
        return True
    try:
        plan_chain(candidate.catalogue, target)
    except (ChainError, NothingToRestoreError):
        return False
    return True


def _read(context: Context) -> tuple[list[Candidate], dict[str, RootcellarError]]:
    """All of them at once, as one that is away takes its time to be given up."""
    first = sources.configured(context)
    assert first is not None  # noqa: S101  it has others beside it
    names = (f"@{first.name}", *others(context))

    def read(name: str) -> Candidate | RootcellarError:
        try:
            store = sources.opened(context, name)
            return Candidate(name, store, read_catalogue(store))
        except RootcellarError as error:
            return error

    with ThreadPoolExecutor(len(names), thread_name_prefix="stores") as pool:
        outcomes = dict(zip(names, pool.map(read, names), strict=True))
    failures = {name: each for name, each in outcomes.items() if isinstance(each, RootcellarError)}
    return [each for each in outcomes.values() if isinstance(each, Candidate)], failures
