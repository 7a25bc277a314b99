"""`ls`: what is in a store, what can be got back from it, and whether that was ever tried."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import chains, orphans
from rootcellar.cli import columns, fallback, flags
from rootcellar.cli.document import Document, Part
from rootcellar.cli.values import SECOND
from rootcellar.cli.window import SeenProof, Window, latest_proof, moment, window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Chain
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.cli.console import Console
    from rootcellar.cli.context import Context


_BELOW = 50
"""Prefixes further down that are shown to a person."""


class ListedObject(Part, frozen=True):
    """An object of a chain.  `start` is 0 for a full; `size` is as stored."""

    key: str
    kind: str
    start: int
    last: int
    size: int
    captured_at: datetime
    recorded: bool


class ListedChain(Part, frozen=True):
    """A full and what continues it.  `first` to `last` are its restorable revisions, `missing` what lies
    behind.  `key_ids`: each of these keys opens all of it, if it is `encrypted`.
    """

    objects: tuple[ListedObject, ...]
    first: int
    last: int
    first_time: datetime
    last_time: datetime
    size: int
    missing: tuple[int, int] | None
    proof: SeenProof | None
    held: tuple[str, ...]
    cautions: tuple[str, ...]
    encrypted: bool = False
    key_ids: tuple[str, ...] = ()


class Backups(Document, frozen=True):
    """What `ls` shows.  `problems` are sentences; `below` are prefixes further down that have
    backups of their own.
    """

    store: str
    cluster_id: str | None
    timeline: int
    timelines: tuple[int, ...]
    window: Window
    chains: tuple[ListedChain, ...]
    problems: tuple[str, ...]
    below: tuple[str, ...] = ()


def run(context: Context) -> int:
    """List a timeline."""
    store, catalogue = fallback.furthest(context)
    wanted = context.arguments.get(flags.TIMELINE)
    timeline = catalogue.lineage(wanted)[0].timeline
    listed = _document(store.url, catalogue, timeline)
    if not context.console.is_text:
        context.console.document(listed)
        return 0
    age = timedelta(microseconds=context.arguments.need(flags.PROOF_AGE) // 1000)
    told = _Told(context.console, listed, datetime.now(UTC), age.total_seconds())
    context.console.lines(told.lines(with_objects=context.arguments.has(flags.OBJECTS)))
    return 0


def _document(url: str, catalogue: Catalogue, timeline: int) -> Backups:
    held = {hold.key: hold.reason for hold in catalogue.holds}
    return Backups(
        store=url,
        cluster_id=catalogue.marker.cluster_id if catalogue.marker else None,
        timeline=timeline,
        timelines=tuple(sorted({each.timeline for each in catalogue.snapshots} | {timeline})),
        window=window(catalogue, timeline),
        chains=tuple(_chain(catalogue, chain, held) for chain in chains(catalogue, timeline)),
        problems=tuple(_problems(catalogue, timeline)),
        below=catalogue.below,
    )


def _chain(catalogue: Catalogue, chain: Chain, held: dict[str, str]) -> ListedChain:
    snapshots = (chain.full, *chain.deltas)
    cautions = dict.fromkeys(
        notice.message for each in snapshots if each.record is not None for notice in each.record.warnings
    )
    return ListedChain(
        objects=tuple(map(_object, snapshots)),
        first=chain.full.last,
        last=chain.reach,
        first_time=moment(chain.full.ended_at),
        last_time=moment(snapshots[-1].ended_at),
        size=sum(each.size for each in snapshots),
        missing=(chain.gap.first, chain.gap.last) if chain.gap is not None else None,
        proof=latest_proof(catalogue, chain),
        held=tuple(held[each] for each in (chain.full.name.key,) if each in held),
        cautions=tuple(cautions),
        encrypted=any(each.name.is_encrypted for each in snapshots),
        key_ids=_key_ids(catalogue, snapshots),
    )


def _key_ids(catalogue: Catalogue, snapshots: Iterable[Snapshot]) -> tuple[str, ...]:
    """The keys that open every encrypted one of these."""
    each_s = [catalogue.key_ids(each) for each in snapshots if each.name.is_encrypted]
    return tuple(key_id for key_id in each_s[0] if all(key_id in ids for ids in each_s)) if each_s else ()


def _opening(chain: ListedChain) -> str:
    return f"opens with {' or '.join(chain.key_ids)}" if chain.key_ids else "no recorded key opens all of it"


def _object(snapshot: Snapshot) -> ListedObject:
    return ListedObject(
        key=snapshot.key,
        kind="full" if snapshot.is_full else "delta",
        start=snapshot.name.start,
        last=snapshot.last,
        size=snapshot.size,
        captured_at=moment(snapshot.ended_at),
        recorded=snapshot.record is not None,
    )


def _problems(catalogue: Catalogue, timeline: int) -> Iterator[str]:
    alone = orphans(catalogue, timeline)
    if alone:
        yield f"{columns.plural(len(alone), 'delta')} no full leads to, the first {alone[0].key}"
    for snapshot in catalogue.resized:
        yield f"{snapshot.key} is not as long as it was when it was written"
    for record in catalogue.lost:
        yield f"{record.key} is recorded, but gone"
    for damage in catalogue.damaged:
        yield f"{damage.key} cannot be believed: {damage.reason}"
    if (seen := _seen_by_ebr(catalogue, timeline)) is not None:
        yield f"etcdbrctl would restore an old state, revision {seen}: it does not see what is sealed since"
    if catalogue.strays:
        many = columns.plural(len(catalogue.strays), "object")
        yield f"{many} that etcdbrctl would take for a snapshot and is none, the first {catalogue.strays[0]}"


def _seen_by_ebr(catalogue: Catalogue, timeline: int) -> int | None:
    """The last revision that EBR sees, if there are newer ones that it does not."""
    here = [each for each in catalogue.on(timeline) if each.key == each.name.key]
    seen = max((each.name.last for each in here if not each.name.is_sealed), default=None)
    sealed = max((each.name.last for each in here if each.name.is_sealed), default=-1)
    return seen if seen is not None and seen < sealed else None


class _Told:
    """The listing in words."""

    def __init__(self, console: Console, listed: Backups, now: datetime, proof_age: float) -> None:
        self._style = console.out.style
        self._listed = listed
        self._now = now
        self._proof_age = proof_age

    def lines(self, *, with_objects: bool) -> Iterator[str]:
        listed = self._listed
        yield self._style(listed.store, "bold")
        yield f"  {self._whose()}"
        yield ""
        if not listed.chains:
            yield "can restore  nothing: there is no full here"
            yield from self._further_down()
        else:
            yield from self._answers()
            yield ""
            yield from self._table()
        if with_objects:
            for number, chain in enumerate(listed.chains, 1):
                yield ""
                yield from self._objects(number, chain)
        yield from self._remarks()

    def _further_down(self) -> Iterator[str]:
        below = self._listed.below
        if below:
            yield ""
            yield "Backups lie further down.  Put one of these behind the store's URL:"
        yield from (f"  {prefix}" for prefix in below[:_BELOW])
        if len(below) > _BELOW:
            yield f"  and {len(below) - _BELOW} more"

    def _whose(self) -> str:
        listed = self._listed
        recorded = [each.recorded for chain in listed.chains for each in chain.objects]
        is_foreign = recorded and not any(recorded)
        nobody = "no catalogue: written by another tool" if is_foreign else "of no known cluster"
        whose = f"cluster {listed.cluster_id}" if listed.cluster_id else nobody
        others = [str(number) for number in listed.timelines if number != listed.timeline]
        also = f" (others: {', '.join(others)})" if others else ""
        return f"{whose}, timeline {listed.timeline}{also}"

    def _answers(self) -> Iterator[str]:
        window = self._listed.window
        ranges = " and ".join(
            f"revision {first}" if first == last else f"every revision from {first} to {last}"
            for first, last in window.ranges
        )
        yield f"can restore  {ranges}"
        span = f"{columns.date(window.first_time)} to {columns.date(window.last_time)}"
        yield f"             {span}, {self._quiet()}"
        proven = window.proven
        if proven is None:
            yield f"proven       {self._style('never', 'red')}: try `rootcellar verify --level 4`"
            yield "takes        nobody knows before a proof has tried it"
            return
        age = proven.age(self._now)
        good = age <= self._proof_age
        told = f"{proven.strongest} up to revision {proven.revision}, {self._ago(proven.finished_at)}"
        late = "" if good else f", longer ago than {columns.seconds(self._proof_age)}"
        yield f"proven       {self._style(told, 'green' if good else 'yellow')}{late}"
        yield f"takes        {columns.seconds(proven.seconds)}, as measured by that proof"

    def _quiet(self) -> str:
        window = self._listed.window
        if window.alive_until is not None:
            return f"unchanged until {columns.date(window.alive_until)}"
        return self._ago(window.last_time) if window.last_time else ""

    def _ago(self, at: datetime) -> str:
        return columns.ago(int(at.timestamp() * SECOND), int(self._now.timestamp() * SECOND))

    def _table(self) -> Iterator[str]:
        rows = [
            (
                str(number),
                columns.short_date(chain.first_time),
                f"{chain.first} to {chain.last}" if chain.last > chain.first else str(chain.first),
                columns.short_date(chain.last_time),
                str(len(chain.objects) - 1),
                columns.size(chain.size),
                self._proof(chain.proof),
                "held" if chain.held else "",
            )
            for number, chain in enumerate(self._listed.chains, 1)
        ]
        header = ("CHAIN", "TAKEN (UTC)", "REVISIONS", "UP TO (UTC)", "DELTAS", "STORED", "PROVEN", "")
        lines = list(columns.table(header, rows, right=(0, 4, 5)))
        yield self._style(lines[0], "dim")
        yield from lines[1:]

    def _proof(self, proof: SeenProof | None) -> str:
        if proof is None:
            return "never"
        if proof.failed:
            return f"{proof.failed[0]} FAILED {self._ago(proof.finished_at)}"
        return f"{proof.strongest} {self._ago(proof.finished_at)}"

    def _objects(self, number: int, chain: ListedChain) -> Iterator[str]:
        yield self._style(f"chain {number}", "bold")
        rows = [
            (each.kind, f"{each.start} to {each.last}", columns.size(each.size), each.key)
            for each in chain.objects
        ]
        yield from columns.table(("KIND", "REVISIONS", "STORED", "OBJECT"), rows, right=(2,))

    def _remarks(self) -> Iterator[str]:
        remarks = [
            f"chain {number}: revisions {chain.missing[0]} to {chain.missing[1]} are missing behind it"
            for number, chain in enumerate(self._listed.chains, 1)
            if chain.missing is not None
        ]
        remarks += [
            f"chain {number} is encrypted: {_opening(chain)}"
            for number, chain in enumerate(self._listed.chains, 1)
            if chain.encrypted
        ]
        remarks += [caution for chain in self._listed.chains for caution in chain.cautions]
        remarks += self._listed.problems
        if remarks:
            yield ""
        yield from (f"{self._style('note:', 'yellow')} {remark}" for remark in dict.fromkeys(remarks))
