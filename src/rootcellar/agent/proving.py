"""The newest chain proven, each level on a schedule of its own.

What an upload shows for free is filed by `captures`; here is what costs something: reading all of it again,
restoring it to scratch, booting a real etcd on that.  One at a time, because two would want the same room;
one whose tick a stronger proof has already served does nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rootcellar.agent.jobs import Job
from rootcellar.agent.journal import Damage
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import unlock_plan
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import NoKeyError, NothingToRestoreError, ProofError
from rootcellar.etcd.process import find_etcd

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.journal import Journal
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.catalogue.records import Proof
    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.stores.protocol import Store

KEYLESS = frozenset({Check.LISTED, Check.HASH})
"""What can be checked of an encrypted chain without a key."""
STRONGEST = {1: Check.LISTED, 2: Check.HASH, 3: Check.STRUCTURE, 4: Check.REPLAYED, 5: Check.BOOTED}
"""What a level is for: when this has passed, its tick is served."""
_OF_OBJECTS = frozenset({Check.LISTED, Check.HASH, Check.STRUCTURE})


@dataclass(frozen=True)
class Proving:
    """What all proofs of one agent share.  `etcd` names the binary to boot, or its directory; `identities`
    open what is encrypted.
    """

    journal: Callable[[], Journal]
    identities: Callable[[Store], Keyring] = lambda _store: NO_KEYS
    etcd: Path | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def job(self, name: str, cron: Cron, level: int, *, scratch: Path | None = None) -> Job:
        """A proof of the newest chain at each tick, filed in the store.

        A failed one is an error, and stands until the next tick: trying again would find the same.  Where no
        identity opens what is encrypted, what can be held against its record is, and that is said.
        """
        strongest = STRONGEST[level]

        def since() -> datetime | None:
            seen = self.journal().proofs.get(strongest)
            return seen.at if seen is not None else None

        async def run(errand: Errand) -> str:
            async with self.turn:
                if errand.is_served(since()):
                    return "a proof that says as much was made since"
                return await self._prove(errand, level, scratch)

        return Job(name, cron, run, since=since, proves=strongest)

    async def _prove(self, errand: Errand, level: int, scratch: Path | None) -> str:
        store = errand.store
        assert store is not None  # noqa: S101  the job needs one
        journal = self.journal()
        try:
            proof, locked = await errand.thread(
                lambda: prove(store, level, errand.writer, scratch, self.etcd, self.identities(store))
            )
        except NothingToRestoreError:
            if journal.full.captured_at:
                raise
            return "there is no full yet"
        journal.proven(proof)
        if (failed := proof.failed) is not None:
            if failed.check in _OF_OBJECTS and journal.full.captured_at <= proof.started_at.timestamp():
                journal.damage = Damage(failed.detail, proof.revision)
            raise ProofError(
                f"{failed.check} failed: {failed.detail}",
                hint="take a new full now; `rootcellar ls` shows which other chain reaches far enough",
            )
        passed = [each.check.value for each in proof.findings if each.result is Result.PASSED]
        beyond = f"; nothing beyond, for {locked.message}" if locked is not None else ""
        return f"revision {proof.revision}: {', '.join(passed)}{beyond}"


def prove(
    store: Store, level: int, writer: str, scratch: Path | None, etcd: Path | None, keyring: Keyring
) -> tuple[Proof, NoKeyError | None]:
    """The proof of the newest chain, filed, and why it goes no further than without a key, if so."""
    checks, locked = LEVELS[level], None
    wish = Wish(Latest(), token="proof", bump_revision=0, quota=0)  # noqa: S106  no secret
    plan = plan_restore(read_catalogue(store), store.url, wish)
    try:
        unlock_plan(store, plan, keyring)
    except NoKeyError as error:
        checks, locked = checks & KEYLESS, error
    binary = find_etcd(etcd) if Check.BOOTED in checks else None
    proof = verify(store, plan, checks, by=writer, scratch=scratch, etcd=binary, keyring=keyring)
    keep_proof(store, proof)
    return proof, locked
