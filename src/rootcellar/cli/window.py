"""The three questions of a tired person: what can I get back, is it proven, how long will it take."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.chain import recovery_window
from rootcellar.backup.catalogue.history import SECOND
from rootcellar.backup.catalogue.records import Result
from rootcellar.cli.document import Part
from rootcellar.errors import NotFoundError

if TYPE_CHECKING:
    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Chain
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.records import Proof


class SeenProof(Part, frozen=True):
    """What was proven of a chain.  `seconds` is how long that took on the machine that did it."""

    revision: int
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    finished_at: datetime
    seconds: float
    by: str

    @classmethod
    def of(cls, proof: Proof) -> SeenProof:
        """The proof as people are shown it."""
        return cls(
            revision=proof.revision,
            passed=tuple(each.check.value for each in proof.findings if each.result is Result.PASSED),
            failed=tuple(each.check.value for each in proof.findings if each.result is Result.FAILED),
            finished_at=proof.finished_at,
            seconds=round((proof.finished_at - proof.started_at).total_seconds(), 3),
            by=proof.by,
        )

    @property
    def strongest(self) -> str:
        """The check that says most."""
        return self.passed[-1] if self.passed else "nothing"

    def age(self, now: datetime) -> float:
        """Seconds since it ended."""
        return (now - self.finished_at).total_seconds()


class Window(Part, frozen=True):
    """What can be restored of a timeline.

    `ranges` are closed ranges of revisions.  `first_time` and `last_time` are when the first was captured and
    by when all up to the last had been received; `alive_until` is when an agent last saw etcd at that
    revision.
    """

    ranges: tuple[tuple[int, int], ...]
    first: int | None
    last: int | None
    first_time: datetime | None
    last_time: datetime | None
    alive_until: datetime | None
    proven: SeenProof | None


def window(catalogue: Catalogue, timeline: int) -> Window:
    """The recovery window of a timeline."""
    found = recovery_window(catalogue, catalogue.proofs, timeline)
    here = catalogue.on(timeline)
    firsts = [each.ended_at for each in here if each.is_full and each.last == found.first]
    lasts = [each.ended_at for each in here if each.last == found.last]
    beat = catalogue.heartbeat
    alive = beat is not None and beat.timeline == timeline and beat.revision == found.last
    return Window(
        ranges=found.ranges,
        first=found.first,
        last=found.last,
        first_time=moment(min(firsts)) if firsts else None,
        last_time=moment(min(lasts)) if lasts else None,
        alive_until=beat.time if beat is not None and alive else None,
        proven=SeenProof.of(found.proof) if found.proof is not None else None,
    )


def latest_proof(catalogue: Catalogue, chain: Chain) -> SeenProof | None:
    """The newest word on a chain, good or bad, about the objects as they are.

    What an upload has proven in passing is no word on a chain; what it has disproven is.
    """
    there = {each.name.key: each for each in (chain.full, *chain.deltas)}
    for proof in reversed(catalogue.proofs):
        covered = [there.get(link.key) for link in proof.objects]
        if proof.in_passing and (proof.failed is None or covered[0] is None):
            continue
        if proof.in_passing:
            return SeenProof.of(proof)
        if covered and covered[0] is chain.full and all(each is not None for each in covered):
            return SeenProof.of(proof)
    return None


def find(catalogue: Catalogue, wanted: str) -> Snapshot:
    """An object by its key or by its name alone.  Raises NotFoundError."""
    for snapshot in catalogue.snapshots:
        if wanted in (snapshot.key, snapshot.name.key, snapshot.name.name):
            return snapshot
    raise NotFoundError(f"{wanted}: no such snapshot", hint="`rootcellar ls --objects` has their names")


def moment(nanoseconds: int) -> datetime:
    """Unix nanoseconds as an aware datetime."""
    return datetime.fromtimestamp(nanoseconds // SECOND, UTC).replace(
        microsecond=nanoseconds % SECOND // 1000
    )
