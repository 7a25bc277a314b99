"""`check`: one line and an exit code for a monitoring system.

0 is fine, 1 a warning, 2 critical, 3 unknown, as Nagios and its kin read them.  Critical is what costs data
or makes a restore fail: no full, a newest backup too old, an object that is not as it was written, a failed
proof. A warning is what may: nothing proven lately, revisions missing between chains.  Unknown is how old a
backup is that says it is of a time to come: nothing would tell when no more come.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import chains
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document
from rootcellar.cli.values import SECOND
from rootcellar.cli.window import Window, latest_proof, window
from rootcellar.errors import RootcellarError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Chain
    from rootcellar.cli.context import Context


class State(IntEnum):
    """What a monitoring system knows; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_WORST = (State.CRITICAL, State.UNKNOWN, State.WARNING)
_AHEAD = 300.0
"""Seconds that the clocks of an agent and of this machine may differ."""


class Finding(NamedTuple):
    """One thing that is wrong."""

    state: State
    message: str


class CheckResult(Document, frozen=True):
    """The state, what speaks against a better one, and the figures.  Ages are in seconds."""

    state: str
    exit_code: int
    problems: tuple[str, ...]
    store: str | None
    window: Window | None
    backup_age: float | None
    proof_age: float | None


def run(context: Context) -> int:
    """Look, and say it in one line."""
    try:
        result = _result(context)
    except (RootcellarError, OSError) as error:
        result = CheckResult(
            state=State.UNKNOWN.name,
            exit_code=State.UNKNOWN,
            problems=(error.message if isinstance(error, RootcellarError) else str(error),),
            store=None,
            window=None,
            backup_age=None,
            proof_age=None,
        )
    if context.console.is_text:
        context.console.lines([_line(result)])
    else:
        context.console.document(result)
    return result.exit_code


def _result(context: Context) -> CheckResult:
    arguments = context.arguments
    store = sources.readable(context)
    catalogue = read_catalogue(store)
    timeline = catalogue.lineage()[0].timeline
    found = window(catalogue, timeline)
    now = datetime.now(UTC)
    newest = found.alive_until or found.last_time
    backup_age = None if newest is None else (now - newest).total_seconds()
    proof_age = None if found.proven is None else found.proven.age(now)
    findings = [
        *_of_age(backup_age, arguments.need(flags.MAX_AGE) / SECOND),
        *_of_proof(proof_age, arguments.need(flags.PROOF_AGE) / SECOND),
        *_of_objects(catalogue, timeline),
    ]
    findings.sort(key=lambda finding: _WORST.index(finding.state))
    state = findings[0].state if findings else State.OK
    return CheckResult(
        state=state.name,
        exit_code=state,
        problems=tuple(finding.message for finding in findings),
        store=store.url,
        window=found,
        backup_age=backup_age,
        proof_age=proof_age,
    )


def _of_age(age: float | None, limit: float) -> Iterator[Finding]:
    if age is None:
        yield Finding(State.CRITICAL, "there is no full")
    elif age < -_AHEAD:
        told = f"the newest backup says that it is of {columns.seconds(-age)} from now"
        yield Finding(State.UNKNOWN, f"{told}: see whether a clock was wrong or is")
    elif age > limit:
        told = f"the newest backup is {columns.seconds(age)} old, more than {columns.seconds(limit)}"
        yield Finding(State.CRITICAL, told)


def _of_proof(age: float | None, limit: float) -> Iterator[Finding]:
    if age is None:
        yield Finding(State.WARNING, "nothing was ever proven by a replay")
    elif age < -_AHEAD:
        yield Finding(State.WARNING, f"the newest proof says that it is of {columns.seconds(-age)} from now")
    elif age > limit:
        told = f"the newest proof is {columns.seconds(age)} old, more than {columns.seconds(limit)}"
        yield Finding(State.WARNING, told)


def _of_objects(catalogue: Catalogue, timeline: int) -> Iterator[Finding]:
    here = {each.key for each in catalogue.on(timeline)}
    for snapshot in catalogue.resized:
        if snapshot.key in here:
            yield Finding(State.CRITICAL, f"{snapshot.key} is not as long as it was when it was written")
    for record in catalogue.lost:
        if record.timeline == timeline:
            yield Finding(State.CRITICAL, f"{record.key} is gone")
    found = chains(catalogue, timeline)
    for index, chain in enumerate(found):
        proof = latest_proof(catalogue, chain)
        if proof is not None and proof.failed:
            yield Finding(State.CRITICAL, f"{chain.full.key}: {proof.failed[0]} failed")
        is_last = chain is found[-1]
        if chain.gap is not None and (is_last or not _is_bare(chain, found[index + 1])):
            told = f"revisions {chain.gap.first} to {chain.gap.last} are missing"
            yield Finding(State.CRITICAL if is_last else State.WARNING, told)
    for damage in catalogue.damaged:
        yield Finding(State.WARNING, f"{damage.key} cannot be believed")


def _is_bare(chain: Chain, following: Chain) -> bool:
    """Whether nothing was ever promised, or it was pruned: a full and the next one, no delta between them."""
    return not chain.deltas and chain.gap is not None and chain.gap.last == following.full.last - 1


def _line(result: CheckResult) -> str:
    """What is wrong, worst first, or what is right; then figures behind a bar, as Nagios wants them."""
    found = result.window
    if result.problems:
        told = "; ".join(result.problems)
    elif found is not None and found.proven is not None and result.backup_age is not None:
        age = columns.seconds(result.backup_age)
        told = f"revision {found.last}, {age} old, {found.proven.strongest} up to {found.proven.revision}"
    else:
        told = "nothing to say"
    figures = []
    if result.backup_age is not None:
        figures.append(f"backup_age={result.backup_age:.0f}s")
    if result.proof_age is not None:
        figures.append(f"proof_age={result.proof_age:.0f}s")
    if found is not None and found.last is not None:
        figures.append(f"revision={found.last}")
    shown = " ".join(told.split()).replace("|", "/")
    return f"ROOTCELLAR {result.state} - {shown}" + (f" | {' '.join(figures)}" if figures else "")
