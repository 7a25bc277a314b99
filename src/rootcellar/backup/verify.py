"""Proving a chain: from looking at a listing to starting a real etcd on what it restores to.

A proof is a set of checks, each passed, failed or skipped with a reason; nothing is green that was not
tried.  The costly ones are a restore: what they prove is the very path that a person in need will take, on a
scratch directory.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.boot import boot
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.records import Check, Finding, HashKV, Link, Proof, Result
from rootcellar.backup.objects import codecs, delta
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.objects.sealing.seal import NOTHING
from rootcellar.backup.restore import versions
from rootcellar.backup.restore.pins import pinned_plan
from rootcellar.backup.restore.restore import fetch_full, proven_bytes, restore, stored_bytes, unlock_plan
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import (
    BoltError,
    ChainError,
    DamagedObjectError,
    NoKeyError,
    ProofError,
    RecordError,
    RootcellarError,
    StoreError,
    TargetError,
)
from rootcellar.etcd.process import EtcdBinary, find_etcd
from rootcellar.mvcc.meta import StoreMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.backup.restore.database import Progress
    from rootcellar.backup.restore.plan import PlannedObject, RestorePlan
    from rootcellar.backup.restore.restore import Restored
    from rootcellar.stores.protocol import Store

LEVELS = {
    1: frozenset({Check.LISTED}),
    2: frozenset({Check.LISTED, Check.HASH}),
    3: frozenset({Check.LISTED, Check.HASH, Check.STRUCTURE}),
    4: frozenset({Check.LISTED, Check.HASH, Check.STRUCTURE, Check.REPLAYED, Check.COMPARED}),
    5: frozenset(Check),
}


def verify(  # noqa: PLR0913 - all but the first three have defaults that do
    store: Store,
    plan: RestorePlan,
    checks: Collection[Check],
    *,
    by: str,
    scratch: Path | None = None,
    etcd: EtcdBinary | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Progress = lambda _phase, _more: None,
    keyring: Keyring = NO_KEYS,
) -> Proof:
    """Try `checks` on the chain of `plan`; what came of them, failures included.

    `plan` has one member and no bump.  `scratch` is where a restore is tried (a directory of its own is made
    there, and removed): it takes the database's size.  `keyring` opens what is encrypted.  Raises TargetError
    (no room, no etcd to boot), EtcdError (it came to no word on the data), NoKeyError (for checks beyond the
    hash), StoreError, ChainError (a wanted time lies in a gap behind the chain): then nothing was proven or
    disproven.
    """
    started = now()
    trial = _Trial(store, plan, frozenset(checks), etcd, progress, keyring)
    with tempfile.TemporaryDirectory(prefix="rootcellar-proof-", dir=scratch) as directory:
        trial.run(Path(directory))
    objects = [plan.full, *plan.deltas]
    return Proof(
        objects=tuple(Link(planned.key, trial.read.get(planned.key, "")) for planned in objects),
        revision=trial.revision or objects[-1].last,
        findings=tuple(trial.findings[each] for each in Check if each in trial.findings),
        started_at=started,
        finished_at=now(),
        by=by,
        hashkv=trial.hashkv,
        etcd_version=trial.etcd_version,
    )


class _Trial:
    """The checks under way and what they have found."""

    def __init__(
        self,
        store: Store,
        plan: RestorePlan,
        checks: frozenset[Check],
        etcd: EtcdBinary | None,
        progress: Progress,
        keyring: Keyring,
    ) -> None:
        self._store = store
        self._plan = plan
        self._checks = checks
        self._etcd = etcd
        self._progress = progress
        self._keyring = keyring
        self._unlocked = NOTHING
        self._locked: NoKeyError | None = None
        self.findings: dict[Check, Finding] = {}
        self.read: dict[str, str] = {}
        self.revision = 0
        self.hashkv: HashKV | None = None
        self.etcd_version = ""

    def run(self, scratch: Path) -> None:
        try:
            self._try(scratch)
        except DamagedObjectError as error:
            self._failed(Check.HASH, error)
        except (BoltError, RecordError, ChainError) as error:
            if isinstance(error, ChainError) and self._plan.must_stop:
                raise  # the gap behind the chain, in which the wanted time lies, says nothing against it
            self._failed(Check.STRUCTURE, error)
            self._hash_the_rest()
        except ProofError as error:
            self._failed(Check.COMPARED, error)
        for each in self._checks - self.findings.keys():
            self.findings[each] = Finding(each, Result.SKIPPED, "a check before it failed")

    def _try(self, scratch: Path) -> None:
        self._listed()
        if self._checks - {Check.LISTED}:
            self._unlock()
        if self._checks & {Check.REPLAYED, Check.COMPARED, Check.BOOTED}:
            self._replayed(scratch)
        elif self._checks & {Check.STRUCTURE, Check.HASH}:
            with pinned_plan(self._store, self._plan, by="rootcellar verify"):
                if Check.STRUCTURE in self._checks:
                    self._structure(scratch)
                elif self._locked is not None:
                    self._stored_hashes(self._locked)
                else:
                    self._hashes((self._plan.full, *self._plan.deltas))

    def _passed(self, each: Check, detail: str = "") -> None:
        if each in self._checks:
            self.findings[each] = Finding(each, Result.PASSED, detail)

    def _failed(self, each: Check, error: RootcellarError) -> None:
        self.findings[each] = Finding(each, Result.FAILED, error.message)

    def _listed(self) -> None:
        objects = [self._plan.full, *self._plan.deltas]
        changed = [each for each in objects if each.recorded_size not in (0, each.size)]
        if changed:
            what = f"{changed[0].key} has {changed[0].size} bytes, not {changed[0].recorded_size} as recorded"
            self._failed(Check.LISTED, RootcellarError(what))
        else:
            self._passed(Check.LISTED, f"{len(objects)} objects")

    def _bytes(self, planned: PlannedObject) -> Iterable[bytes]:
        """An object's payload, every hash that there is of it held."""
        stored = proven_bytes(self._store, planned, self.read, self._unlocked)
        payload = codecs.decompress(stored, planned.suffix, name=planned.key)
        if planned is self._plan.full and not self._full_has_tail:
            return payload
        return codecs.HashTail(payload, name=planned.key)

    @cached_property
    def _full_has_tail(self) -> bool:
        """Whether a hash follows the full's database; of a bare file only the size tells."""
        full = self._plan.full
        if full.has_tail is not None:
            return full.has_tail
        size = full.size
        if full.suffix != names.NONE:
            stored = proven_bytes(self._store, full, self.read, self._unlocked)
            size = sum(map(len, codecs.decompress(stored, full.suffix, name=full.key)))
        return size % 512 == codecs.HASH_SIZE

    def _unlock(self) -> None:
        """Without a key what is stored can be held against the records, and nothing beyond."""
        try:
            self._unlocked = unlock_plan(self._store, self._plan, self._keyring)
        except NoKeyError as error:
            if self._checks - {Check.LISTED, Check.HASH}:
                raise
            self._locked = error

    def _stored_hashes(self, locked: NoKeyError) -> None:
        """Hold the stored bytes against the sha256 in their records."""
        objects = [self._plan.full, *self._plan.deltas]
        for planned in objects:
            for chunk in stored_bytes(self._store, planned, self.read):
                self._progress("full", len(chunk))
        unrecorded = [planned.key for planned in objects if not planned.sha256]
        if unrecorded:
            reason = f"{unrecorded[0]} has no record, and {locked.message}"
            self.findings[Check.HASH] = Finding(Check.HASH, Result.SKIPPED, reason)
        else:
            self._passed(Check.HASH, f"of the stored bytes; the hash inside was skipped: {locked.message}")

    def _hashes(self, objects: Iterable[PlannedObject]) -> None:
        """Hold these objects against their hashes, as the others of the chain have been."""
        if Check.HASH not in self._checks:
            return
        for planned in objects:
            for chunk in self._bytes(planned):
                self._progress("full", len(chunk))
        full = self._plan.full
        if full.sha256 or self._full_has_tail:
            self._passed(Check.HASH)
        else:
            reason = f"no hash is in {full.key}, and none was recorded of it"
            self.findings[Check.HASH] = Finding(Check.HASH, Result.SKIPPED, reason)

    def _hash_the_rest(self) -> None:
        """Behind a structure that failed: how far a delta was read then is not known, so each is read anew.
        The full's hashes were held before anything looked into it.
        """
        full = () if self._plan.full.key in self.read else (self._plan.full,)
        try:
            with pinned_plan(self._store, self._plan, by="rootcellar verify"):
                self._hashes((*full, *self._plan.deltas))
        except DamagedObjectError as error:
            self._failed(Check.HASH, error)
        except StoreError as error:  # what was found before is worth more
            self.findings[Check.HASH] = Finding(Check.HASH, Result.SKIPPED, error.message)

    def _structure(self, scratch: Path) -> None:
        path = scratch / "db"
        fetch_full(path, self._store, self._plan.full, self.read, self._unlocked, self._progress)
        with BoltFile(path) as file:
            found = check(file)
            reached = int(StoreMeta.read(file).revision)
        for planned in self._plan.deltas:
            for events in delta.decode(self._bytes(planned), name=planned.key, last=planned.last):
                if events[0].mod_revision > reached + 1:
                    raise RecordError(f"{planned.key} begins after a gap: the chain has reached {reached}")
                reached = max(reached, events[-1].mod_revision)
                self._progress("deltas", len(events))
        self._hashes(())
        self._passed(Check.STRUCTURE, f"{found.pages_in_use} pages, {sum(found.rows.values())} rows")

    def _replayed(self, scratch: Path) -> None:
        plan = self._plan
        restored = restore(
            plan,
            self._store,
            {plan.member(None).name: scratch / "data"},
            progress=self._progress,
            read=self.read,
            keyring=self._keyring,
        )
        if restored is None:
            raise TargetError(f"{scratch} was not empty", hint="give an empty scratch directory")
        self.revision = restored.revision
        self.hashkv = HashKV(restored.hashkv.hash, restored.hashkv.revision, restored.hashkv.compact_revision)
        self._passed(Check.STRUCTURE)
        self._passed(Check.REPLAYED, f"HashKV {restored.hashkv.hash} at revision {restored.revision}")
        if restored.compared:
            self._passed(Check.COMPARED)
        elif Check.COMPARED in self._checks:
            reason = "no HashKV of the source was recorded"
            self.findings[Check.COMPARED] = Finding(Check.COMPARED, Result.SKIPPED, reason)
        # A restore leaves out what lies below its full's last revision, and may end within a delta.
        rest = [each for each in plan.deltas if each.key not in self.read or each.last > self.revision]
        with pinned_plan(self._store, plan, by="rootcellar verify") if rest else nullcontext():
            self._hashes(rest)
        if Check.BOOTED in self._checks:
            self._boot(scratch, restored)

    def _boot(self, scratch: Path, restored: Restored) -> None:
        binary = self._etcd or find_etcd()
        versions.target(str(binary.version), versions.parse(restored.for_etcd))
        self.etcd_version = str(binary.version)
        try:
            told = boot(
                binary,
                scratch / "data",
                name=self._plan.member(None).name,
                expected=restored.hashkv,
                has_authentication=restored.auth_enabled,
            )
        except ProofError as error:
            self._failed(Check.BOOTED, error)
        else:
            self._passed(Check.BOOTED, told)
