"""What becomes of all that is no snapshot: documents that have served, and what writers left behind.

Pure.  Nothing goes that could still speak for a backup: ages are held to the store's own times, documents
that cannot be read stay, and so does every key that nobody here understands.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rootcellar.backup.catalogue import keys, names
from rootcellar.backup.prune.judgement import CLOCK_SLACK
from rootcellar.backup.prune.values import Decision, What, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.prune.values import Ground, Rules

EPOCHS_KEPT: Final = 8
"""The newest alone counts; a few more tell a person who wrote of late."""

_SETTLED = timedelta(days=1)
"""A claim this old is no longer of a writer at work."""

_NUMBERED = re.compile(r"\d{10}\.json\Z", re.ASCII)
_CLAIM = re.compile(r"(\d{20})_\d{10}(_[0-9a-f]+)?\.json\Z", re.ASCII)
_BY_STEM = {keys.RECORDS: What.RECORD, keys.PROOFS: What.PROOF, keys.GRANTS: What.GRANT}


class Sweep:
    """Decides beside what was decided on snapshots."""

    def __init__(self, ground: Ground, rules: Rules, now: datetime, snapshots: Sequence[Decision]) -> None:
        self._ground = ground
        self._catalogue = ground.catalogue
        self._rules = rules
        self._now = now
        self._infos = {info.key: info for info in ground.listing}
        there = [each.snapshot for each in snapshots if each.snapshot is not None]
        self._stays = [each.snapshot for each in snapshots if each.snapshot is not None and each.keep]
        self._kept = {each.name.key for each in self._stays}
        self._stems = {keys.stem(each.name) for each in there}
        self._buried = {_stem(key) for key in self._below(keys.TOMBSTONES)}
        self._described: dict[str, list[str]] = {}
        for prefix in _BY_STEM:
            for key in self._below(prefix):
                self._described.setdefault(_stem(key), []).append(key)
        self._kept_proofs = {
            _proof_place(proof.objects[-1].key, proof.finished_at)
            for proof in self._catalogue.proofs
            if proof.objects and proof.objects[0].key in self._kept
        }
        self._parts: dict[str, list[str]] = {}
        for key in self._catalogue.parts:
            self._parts.setdefault(key.rpartition("/")[0], []).append(key)

    def dependents(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What goes right behind a snapshot: its pieces, and what speaks of it alone."""
        pieces = self._parts.get(snapshot.key, [])
        if snapshot.name.key in self._kept:
            return tuple(pieces)  # the other one of two copies stays
        described = self._described.get(keys.stem(snapshot.name), [])
        if not snapshot.is_full and snapshot.record is not None:
            claim = keys.claim(snapshot.name.start, snapshot.record.epoch)
            described = [*described, *([claim] if claim in self._infos else [])]
        return (*pieces, *(key for key in described if not self._is_of_kept_full(key)))

    def decisions(self) -> Iterator[Decision]:
        """In order: a record before the tombstone that explains it, a hold before what lifts it."""
        yield from self._lost()
        yield from self._descriptions()
        yield from self._holds()
        yield from self._pins()
        yield from self._epochs()
        yield from self._claims()
        yield from self._heartbeats()
        yield from self._parts_alone()
        yield from self._strays()
        yield from self._tombstones()

    # documents

    def _lost(self) -> Iterator[Decision]:
        """Records without an object: the word that something is missing stays while older backups do."""
        for record in self._catalogue.lost:
            key = keys.record(record.name)
            older = [each for each in self._stays if each.timeline == record.timeline and each.is_full]
            reason = f"the record of {record.key}, which is gone"
            if any(full.last <= record.last_revision for full in older) or not self._is_old(key):
                yield self._decided(key, What.LOST, reason, keep=True)
            else:
                yield self._decided(key, What.LOST, f"{reason}, like everything older")

    def _descriptions(self) -> Iterator[Decision]:
        """Records, proofs and grants of what is gone on purpose; without a tombstone they have to be old."""
        lost = {keys.record(record.name) for record in self._catalogue.lost}
        unreadable = {damage.key for damage in self._catalogue.damaged}
        for stem, described in self._described.items():
            if stem in self._stems:
                continue
            for key in described:
                if key in lost or self._is_of_kept_full(key):
                    continue
                if stem in self._buried or (key not in unreadable and self._is_old(key)):
                    what = _BY_STEM["/".join(key.split("/", 2)[:2]) + "/"]
                    yield self._decided(key, what, "what it describes is gone")

    def _holds(self) -> Iterator[Decision]:
        gone = [hold for hold in self._ground.released if hold.key not in self._kept]
        for hold in gone:
            reason = "it was released, and what it held is gone"
            yield self._decided(keys.hold(hold.nonce), What.HOLD, reason)
            yield self._decided(keys.release(hold.nonce), What.RELEASE, reason)
        for key in self._below(keys.RELEASES):
            if keys.HOLDS + key.removeprefix(keys.RELEASES) not in self._infos and self._is_old(key):
                yield self._decided(key, What.RELEASE, "the hold that it lifted is gone")

    def _pins(self) -> Iterator[Decision]:
        for pin in self._catalogue.pins:
            if pin.until + CLOCK_SLACK <= self._now:
                yield self._decided(keys.pin(pin.until, pin.nonce), What.PIN, "it has expired")

    def _epochs(self) -> Iterator[Decision]:
        numbered = [k for k in self._below(keys.EPOCHS) if _NUMBERED.match(k.removeprefix(keys.EPOCHS))]
        for key in sorted(numbered)[:-EPOCHS_KEPT]:
            yield self._decided(key, What.EPOCH, f"{EPOCHS_KEPT} newer writers came")

    def _claims(self) -> Iterator[Decision]:
        """Claims of slots that are filled; that of an object without a record tells its timeline.

        A full is claimed with a nonce behind the slot, and its claim taken back: what lies here is of a
        writer that was killed, and stays while a full without a record is there.
        """
        needed = {each.name.start for each in self._catalogue.unrecorded if not each.is_full}
        unrecorded = {each.name.key for each in self._catalogue.unrecorded}
        waiting = {key for key, claim in self._catalogue.claims.items() if claim.key in unrecorded}
        waiting |= {damage.key for damage in self._catalogue.damaged}
        newest = self._catalogue.newest_timeline
        top = max((each.last for each in self._catalogue.snapshots if each.timeline == newest), default=0)
        for key in self._below(keys.CLAIMS):
            found = _CLAIM.match(key.removeprefix(keys.CLAIMS))
            if found is None:
                continue
            if found[2] is not None:
                if key not in waiting and self._is_old(key):
                    yield self._decided(key, What.CLAIM, "the writer that left it was killed")
                continue
            if int(found[1]) in needed or int(found[1]) > top:
                continue
            if self._is_old(key, _SETTLED):
                yield self._decided(key, What.CLAIM, "its slot is filled")

    def _heartbeats(self) -> Iterator[Decision]:
        for key in sorted(self._below(keys.HEARTBEATS))[:-1]:
            yield self._decided(key, What.HEARTBEAT, "there is a newer one")

    def _tombstones(self) -> Iterator[Decision]:
        for key in self._below(keys.TOMBSTONES):
            if _stem(key) not in self._stems and self._is_old(key):
                yield self._decided(key, What.TOMBSTONE, f"what it told is {told(self._rules.grace)} old")

    # what is no document

    def _parts_alone(self) -> Iterator[Decision]:
        for whole, pieces in self._parts.items():
            if whole in self._infos or any(each.key == whole for each in self._catalogue.snapshots):
                continue
            for key in pieces:
                keep = not self._is_old(key)
                yield self._decided(key, What.PART, f"a part, and {whole} is not there", keep=keep)

    def _strays(self) -> Iterator[Decision]:
        for key in self._catalogue.strays:
            name = names.parse(key)
            if name is None or not name.extra:
                reason = "its compression is not known here: perhaps a newer rootcellar can read it"
                yield self._decided(key, What.STRAY, reason, keep=True)
                continue
            reason = "etcdbrctl takes it for a snapshot, and it is none"
            yield self._decided(key, What.STRAY, reason, keep=not self._is_old(key))

    # what these share

    def _decided(self, key: str, what: What, reason: str, *, keep: bool = False) -> Decision:
        info = self._infos.get(key)
        return Decision(key, what, keep, reason, info.size if info is not None else 0)

    def _below(self, prefix: str) -> list[str]:
        return [key for key in self._infos if key.startswith(prefix)]

    def _is_old(self, key: str, age: timedelta | None = None) -> bool:
        """By the store's time; what came after the listing is never old."""
        info = self._infos.get(key)
        limit = self._rules.grace if age is None else age
        return info is not None and self._now - info.modified > limit

    def _is_of_kept_full(self, key: str) -> bool:
        """Whether this is a proof that begins with a full which stays, and so still says something."""
        return key.startswith(keys.PROOFS) and key.rpartition("_")[0] in self._kept_proofs


def _stem(key: str) -> str:
    """The snapshot that a key of the catalogue speaks of: its third segment, without `.json`."""
    return key.split("/")[2].removesuffix(".json")


def _proof_place(last: str, finished_at: datetime) -> str:
    """A proof's key without its nonce."""
    name = names.read(last)
    return "" if name is None else keys.proof(name, finished_at, "").rpartition("_")[0]
