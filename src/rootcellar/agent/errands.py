"""The jobs that an agent can have: fulls, proofs, retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.agent.jobs import Job
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.objects.sealing.keyring import NO_KEYS
from rootcellar.backup.prune.prune import ask, prune
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import unlock_plan
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.errors import FencedError, NoKeyError, ProofError, StoreError
from rootcellar.etcd.process import find_etcd

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import datetime
    from pathlib import Path

    from rootcellar.agent.captures import Captures
    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.catalogue.records import Proof
    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.backup.prune.values import Rules
    from rootcellar.stores.protocol import Store

KEYLESS = frozenset({Check.LISTED, Check.HASH})
"""What can be checked of an encrypted chain without a key."""


def full_job(cron: Cron, captures: Callable[[], Captures | None], *, skip_unchanged: bool) -> Job:
    """A full at each tick.  One that was taken since the tick, for whatever reason, is it."""

    async def run(errand: Errand) -> str:
        current = captures()
        if current is None:
            raise FencedError("this agent does not lead")
        await current.opened.wait()
        last = current.last_full_at
        if last is not None and last >= errand.tick:
            return "a full was taken since"
        taken = await current.full(unless_unchanged=skip_unchanged, why="schedule")
        return taken.key if taken is not None else "nothing changed since the last full"

    def since() -> datetime | None:
        current = captures()
        return current.last_full_at if current is not None else None

    return Job("full", cron, run, since=since)


def verify_job(
    cron: Cron,
    level: int,
    *,
    scratch: Path | None,
    etcd: Path | None,
    proven: Callable[[Proof], None],
    identities: Callable[[Store], Keyring] = lambda _store: NO_KEYS,
) -> Job:
    """A proof of the newest chain at each tick, filed in the store.  A failed one is an error.

    Where no identity opens what is encrypted, what can be held against its record is, and that is said.
    """

    async def run(errand: Errand) -> str:
        store = errand.store
        assert store is not None  # noqa: S101  the job needs one
        proof, locked = await errand.thread(
            lambda: _prove(store, level, errand.writer, scratch, etcd, identities(store))
        )
        proven(proof)
        for finding in proof.findings:
            if finding.result is Result.FAILED:
                raise ProofError(
                    f"{finding.check} failed: {finding.detail}",
                    hint="take a new full now; `rootcellar ls` shows which other chain reaches far enough",
                )
        passed = [each.check.value for each in proof.findings if each.result is Result.PASSED]
        beyond = f"; nothing beyond, for {locked.message}" if locked is not None else ""
        return f"revision {proof.revision}: {', '.join(passed)}{beyond}"

    return Job("verify", cron, run)


def prune_job(cron: Cron | None, rules: Rules, mark: Callable[[], Hashable] = lambda: None) -> Job:
    """What the retention rules do not keep is deleted at each tick, in the epoch of the open session."""

    async def run(errand: Errand) -> str:
        store, epoch = errand.store, errand.epoch
        if store is None or epoch is None:
            raise FencedError("no session is open, so nothing can be pruned under its fence")
        live = await errand.thread(lambda: ask(errand.client))
        done = await errand.thread(lambda: prune(store, rules, writer=errand.writer, epoch=epoch, live=live))
        for key, error in done.failed.items():
            raise StoreError(f"{len(done.failed)} objects cannot be deleted, the first {key}: {error}")
        return f"{len(done.deleted)} objects deleted"

    return Job("prune", cron, run, mark=mark)


def _prove(
    store: Store, level: int, writer: str, scratch: Path | None, etcd: Path | None, keyring: Keyring
) -> tuple[Proof, NoKeyError | None]:
    """The proof, and why it goes no further than without a key, if so."""
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
