"""Which snapshots a prune deletes and which it keeps, each with its reason.  Pure.

A full stays for the first of these reasons that it has; all but the last two hold its deltas, too:

1. it is the newest that can be restored, or a hold or a pin in force covers it (with the deltas that this
   needs);
2. it is the newest that a replay or a boot has proven, or one of the `minimum` newest that can be proven;
3. its deltas lie within the time for which deltas are kept;
4. the policy keeps it.

A dead line is judged by the same policy, by itself, and its newest chain stays whole, until `abandoned` has
passed since its fork; then all of it goes.  What already has a tombstone counts as gone, and is finished,
unless something of the first two reasons wants it back.

Deltas of a full go together or not at all, so that no chain is left with a hole.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue.chain import leading, orphans
from rootcellar.backup.catalogue.history import nanoseconds
from rootcellar.backup.catalogue.lines import dead_lines, living_line
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.prune.retention import Full
from rootcellar.backup.prune.values import Decision, What, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import History, Snapshot
    from rootcellar.backup.catalogue.lines import Line, Stand
    from rootcellar.backup.catalogue.records import Hold, Pin, Proof
    from rootcellar.backup.prune.values import Ground, Rules

CLOCK_SLACK: Final = timedelta(minutes=5)
"""How far a reader's clock may be off, that set a pin's end."""


@dataclass
class _Kept:
    """Names of snapshots that stay, with the first reason; and fulls whose deltas all stay, up to a fork."""

    reasons: dict[str, str] = field(default_factory=dict)
    whole: dict[str, list[int | None]] = field(default_factory=dict)

    def full(self, full: Snapshot, reason: str) -> None:
        self.reasons.setdefault(full.name.key, reason)

    def chain(self, stand: Stand, reason: str) -> None:
        self.full(stand.full, reason)
        self.deltas(stand, reason)

    def deltas(self, stand: Stand, reason: str) -> None:
        self.whole.setdefault(stand.full.name.key, []).append(stand.upto)
        for delta in stand.deltas:
            self.reasons.setdefault(delta.name.key, reason)

    def covers(self, full: Snapshot, delta: Snapshot) -> bool:
        """Whether a delta lies in a part of the chain that stays whole."""
        forks = self.whole.get(full.name.key, ())
        return any(upto is None or delta.name.start <= upto for upto in forks)


class Judgement:
    """What becomes of each snapshot."""

    def __init__(self, ground: Ground, rules: Rules, now: datetime) -> None:
        self._rules = rules
        self._now = now
        self._catalogue = catalogue = ground.catalogue
        self._modified = {info.key: info.modified for info in ground.listing}
        self._buried = {each.key: each.reason for each in catalogue.tombstones}
        self._all = _once(catalogue)
        buried = [each.key for each in catalogue.snapshots if each.name.key in self._buried]
        self._history = self._all.without(buried)
        self._living = living_line(self._history)
        self._dead = dead_lines(self._history)
        self._kept = _Kept()
        self._verdicts: dict[str, str] = {}
        self._bases = _Bases(self._all)
        self._there = {each.name.key: each for each in self._all.snapshots}
        self._resized = {each.name.key for each in catalogue.resized}
        self._proofs: dict[str, list[Proof]] = {}
        for proof in reversed(catalogue.proofs):
            if proof.objects:
                self._proofs.setdefault(proof.objects[0].key, []).append(proof)
        self._orphans = {
            each.name.key
            for number in {each.timeline for each in self._all.snapshots}
            for each in orphans(self._history, number)
        }
        self._keep_what_must_be()
        self._apply(self._living)
        for line in self._dead:
            self._apply_to_dead(line)
        self._keep_overlaps()

    @property
    def kept(self) -> dict[str, str]:
        """The names of the snapshots that stay, with the reasons."""
        return self._kept.reasons

    def decisions(self) -> Iterator[Decision]:
        """Deltas first and fulls last, each newest to oldest."""
        for snapshot in sorted(self._catalogue.snapshots, key=_age_order, reverse=True):
            name = snapshot.name.key
            keep = name in self.kept
            reason = self.kept.get(name) or self._why_not(snapshot)
            what = What.FULL if snapshot.is_full else What.DELTA
            if name in self._orphans and not keep:
                what, (keep, reason) = What.ORPHAN, self._orphan(snapshot)
            base = self._bases.of(snapshot) if what is What.DELTA else None
            yield Decision(
                snapshot.key,
                what,
                keep,
                reason,
                snapshot.size,
                snapshot,
                base=base.name.key if base is not None else "",
            )

    # what goes past the policy

    def _keep_what_must_be(self) -> None:
        stands = [*self._candidates()]
        for stand in stands[:1]:
            self._kept.chain(stand, "the newest")
        for hold in self._catalogue.holds:
            self._cover(hold, f"held by {hold.by}: {hold.reason}")
        for pin in self._catalogue.pins:
            if pin.until + CLOCK_SLACK > self._now:
                self._cover(pin, f"read by {pin.by} until {pin.until:%Y-%m-%d %H:%M} UTC at most")
        for stand in stands:
            if self._is_proven(stand):
                self._kept.chain(stand, "the newest that was proven")
                break
        provable = [stand for stand in stands if self._is_provable(stand)]
        for stand in provable[: self._rules.minimum]:
            self._kept.chain(stand, f"one of the newest {self._rules.minimum} that can be proven")

    def _candidates(self) -> Iterator[Stand]:
        """All chains, in the order in which a person would turn to them; each full once.

        The living newest to oldest, then the dead; then what a prune that was killed had condemned already.
        """
        seen: set[str] = set()
        lines = [self._living, *reversed(self._dead)]
        if self._buried:
            lines += [living_line(self._all), *reversed(dead_lines(self._all))]
        for line in lines:
            for stand in reversed(line.stands):
                if stand.full.name.key not in seen:
                    seen.add(stand.full.name.key)
                    yield stand

    def _cover(self, lock: Hold | Pin, reason: str) -> None:
        for full in self._all.snapshots:
            if full.is_full and full.name.key == lock.key:
                self._kept.full(full, reason)
                if lock.through is not None:
                    for delta in leading(self._all, full, lock.through):
                        self._kept.reasons.setdefault(delta.name.key, reason)

    def _is_proven(self, stand: Stand) -> bool:
        """Whether its newest words are good ones, and one of them a replay or a boot of what is there."""
        for proof in self._proofs.get(stand.full.name.key, ()):
            if _has_failed(proof):
                return False
            if (proof.passed(Check.REPLAYED) or proof.passed(Check.BOOTED)) and all(
                link.key in self._there and _is_same(self._there[link.key], link.sha256)
                for link in proof.objects
            ):
                return True
        return False

    def _is_provable(self, stand: Stand) -> bool:
        """Whether nothing speaks against it: as long as it was written, and its last proof did not fail."""
        proofs = self._proofs.get(stand.full.name.key, ())
        return stand.full.name.key not in self._resized and not any(map(_has_failed, proofs[:1]))

    # the policy

    def _apply(self, line: Line) -> None:
        fulls = [Full(stand.full.key, stand.full.name.created_at) for stand in line.stands]
        for stand, (keep, reason) in zip(
            line.stands, self._rules.policy.judge(fulls, self._now), strict=True
        ):
            window = self._rules.deltas
            if window is not None and (stand.until is None or stand.until > _ago(self._now, window)):
                self._kept.chain(stand, f"deltas are kept for {told(window)}")
            # A full at a fork lives elsewhere: a dead line wants it for its deltas alone.
            if keep and (window is None or stand.full.last > line.cut):
                self._kept.full(stand.full, reason)
                if window is None:
                    self._kept.deltas(stand, "its full is kept")
            self._verdicts.setdefault(stand.full.name.key, reason)

    def _apply_to_dead(self, line: Line) -> None:
        limit = self._rules.abandoned
        if line.died is not None and line.died <= _ago(self._now, limit):
            for stand in line.stands:
                reason = f"of timeline {line.timeline}, abandoned more than {told(limit)} ago"
                self._verdicts.setdefault(stand.full.name.key, reason)
            return
        newest = f"the newest of timeline {line.timeline}, abandoned less than {told(limit)} ago"
        self._kept.chain(line.stands[-1], newest)
        self._apply(line)

    def _keep_overlaps(self) -> None:
        """Deltas that repeat what others hold stay as long as these."""
        bases = _Bases(self._history)
        for delta in self._history.snapshots:
            if delta.is_full or delta.name.key in self.kept or delta.name.key in self._orphans:
                continue
            base = bases.of(delta)
            if base is not None and base.name.key in self.kept and self._kept.covers(base, delta):
                self._kept.reasons[delta.name.key] = "overlaps what is kept"

    # what remains

    def _orphan(self, delta: Snapshot) -> tuple[bool, str]:
        grace = told(self._rules.grace)
        here = self._history.on(delta.timeline)
        is_living = any(each.timeline == delta.timeline for each in self._history.lineage())
        if is_living and not any(each.is_full and each.last >= delta.last for each in here):
            return True, "no full leads to it, but it is newer than every full: a trace of what is lost"
        modified = self._modified.get(delta.key)
        if modified is None or self._now - modified <= self._rules.grace:
            return True, f"no full leads to it; it is reported for {grace}"
        return False, f"no full has led to it for {grace}"

    def _why_not(self, snapshot: Snapshot) -> str:
        name = snapshot.name.key
        if name in self._buried:
            return f"its removal was begun: {self._buried[name]}"
        if snapshot.is_full:
            return self._verdicts.get(name, "not kept by the policy")
        base = self._bases.of(snapshot)
        if base is not None and base.name.key not in self.kept:
            return "its full goes"
        window = self._rules.deltas
        if window is not None:
            return f"older than {told(window)}, for which deltas are kept"
        return "its full is kept without deltas"


class _Bases:
    """The full that a delta builds on: the newest of its timeline that it goes beyond."""

    def __init__(self, history: History) -> None:
        self._fulls: dict[int, list[tuple[int, int, Snapshot]]] = {}
        for full in history.snapshots:
            if full.is_full:
                row = (full.last, full.name.created, full)
                self._fulls.setdefault(full.timeline, []).append(row)
        for rows in self._fulls.values():
            rows.sort(key=lambda row: row[:2])

    def of(self, delta: Snapshot) -> Snapshot | None:
        rows = self._fulls.get(delta.timeline, [])
        index = bisect_left(rows, delta.last, key=lambda row: row[0]) - 1
        return rows[index][2] if index >= 0 else None


def _once(history: Catalogue) -> Catalogue:
    """A move to `abandoned/` that was killed leaves an object twice: one of them speaks for both."""
    found = {each.name.key: each for each in history.snapshots}
    return replace(history, snapshots=tuple(found.values()))


def _age_order(snapshot: Snapshot) -> tuple[bool, int, int, int, int, str]:
    name = snapshot.name
    return not snapshot.is_full, snapshot.timeline, snapshot.last, name.start, name.created, snapshot.key


def _has_failed(proof: Proof) -> bool:
    return any(finding.result is Result.FAILED for finding in proof.findings)


def _is_same(snapshot: Snapshot, sha256: str) -> bool:
    return snapshot.record is None or snapshot.record.stored_sha256 == sha256


def _ago(now: datetime, span: timedelta) -> int:
    return (nanoseconds(now) or 0) - span // timedelta(microseconds=1) * 1000
