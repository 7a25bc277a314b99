"""`verify`: try what a restore would have to do, and file what came of it."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime  # noqa: TC003  msgspec reads the annotations at run time
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, chains, nothing_here
from rootcellar.backup.catalogue.ledger import keep_proof
from rootcellar.backup.catalogue.records import Check, Finding, Proof, Result
from rootcellar.backup.imports.unwrapped import Stored
from rootcellar.backup.restore.planner import Wish, plan_bare, plan_restore
from rootcellar.backup.verify import LEVELS, verify
from rootcellar.cli import columns, flags
from rootcellar.cli.backups import single, source
from rootcellar.cli.document import Document, Part
from rootcellar.cli.identity import whoami
from rootcellar.cli.progress import reading
from rootcellar.cli.sealing import keyring
from rootcellar.cli.targets import target
from rootcellar.errors import ProofError, StoreError, UsageError
from rootcellar.etcd.process import find_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import Target
    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.cli.arguments import Arguments
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store

_DEFAULT_LEVEL = 4


class Verified(Part, frozen=True):
    """One chain and what was found.  `key` is where the proof was filed, None when it was not."""

    objects: tuple[str, ...]
    revision: int
    findings: tuple[Finding, ...]
    hash_kv: int | None
    etcd_version: str
    started_at: datetime
    finished_at: datetime
    key: str | None


class Verification(Document, frozen=True):
    """All that was tried.  `passed` is false when any check of any chain failed."""

    store: str
    passed: bool
    proofs: tuple[Verified, ...]


def run(context: Context) -> int:
    """Prove one chain, or all."""
    checks = _checks(context.arguments)
    with ExitStack() as stack:
        store, plans, is_kept = _plans(context, stack)
        proofs = []
        for plan in plans:
            proof = _prove(context, store, plan, checks)
            proofs.append(_verified(proof, _keep(context, store, proof) if is_kept else None))
            if context.console.is_text:
                context.console.lines(_lines(context, proofs[-1]))
    failed = [each for proof in proofs for each in proof.findings if each.result is Result.FAILED]
    if not context.console.is_text:
        url = plans[0].store
        context.console.document(Verification(store=url, passed=not failed, proofs=tuple(proofs)))
    if failed:
        raise ProofError(
            f"{failed[0].check} failed: {failed[0].detail}",
            hint="take a new full now; `rootcellar ls` shows which other chain reaches far enough",
        )
    return 0


def _checks(arguments: Arguments) -> frozenset[Check]:
    level, named = arguments.get(flags.LEVEL), arguments.get(flags.CHECKS)
    if level is not None and named is not None:
        raise UsageError("--level and --checks exclude each other", hint="give one of them")
    if named is None:
        return LEVELS[int(level) if level is not None else _DEFAULT_LEVEL]
    known = [check.value for check in Check]
    for name in named:
        if name not in known:
            raise UsageError(f"there is no check {name!r}", hint=f"there are {', '.join(known)}")
    return frozenset(map(Check, named))


def _plans(context: Context, stack: ExitStack) -> tuple[Store, list[RestorePlan], bool]:
    """The store, a plan for each chain to prove, and whether proofs of them can be filed."""
    arguments = context.arguments
    place = source(context)
    if isinstance(place, Path | Stored):
        store, planned = stack.enter_context(single(place, arguments.get(flags.SCRATCH)))
        return store, [plan_bare(store.url, planned, _wish(target(arguments), None))], False
    catalogue = read_catalogue(place)
    timeline = arguments.get(flags.TIMELINE)
    wishes = [_wish(target(arguments), timeline)]
    if arguments.has(flags.ALL_CHAINS):
        wishes = _each_chain(catalogue, timeline)
        if not wishes:
            raise nothing_here(catalogue)
    plans = [plan_restore(catalogue, place.url, wish) for wish in wishes]
    return place, plans, not arguments.has(flags.NO_RECORD)


def _each_chain(catalogue: Catalogue, timeline: int | None) -> list[Wish]:
    """A wish for each chain, to its end and from its own full: a chain that goes on into the next one can be
    had from that one's full too, which is what a restore would take.
    """
    found = chains(catalogue, catalogue.lineage(timeline)[0].timeline)
    fulls = frozenset(chain.full.key for chain in found)
    return [_wish(AtRevision(each.reach), timeline, without=fulls - {each.full.key}) for each in found]


def _wish(wanted: Target, timeline: int | None, without: frozenset[str] = frozenset()) -> Wish:
    return Wish(
        wanted,
        token="proof",  # noqa: S106 - no secret
        timeline=timeline,
        bump_revision=0,
        quota=0,
        exclude=without,
    )


def _prove(context: Context, store: Store, plan: RestorePlan, checks: frozenset[Check]) -> Proof:
    arguments = context.arguments
    etcd = find_etcd(arguments.get(flags.ETCD)) if Check.BOOTED in checks else None
    with reading(context.console, store, plan) as (metered, advance):
        return verify(
            metered,
            plan,
            checks,
            by=whoami(),
            scratch=arguments.get(flags.SCRATCH),
            etcd=etcd,
            progress=advance,
            keyring=keyring(context, store),
        )


def _keep(context: Context, store: Store, proof: Proof) -> str | None:
    try:
        return keep_proof(store, proof)
    except StoreError as error:
        context.console.warn(f"the proof could not be filed ({error.message})")
        return None


def _verified(proof: Proof, key: str | None) -> Verified:
    return Verified(
        objects=tuple(link.key for link in proof.objects),
        revision=proof.revision,
        findings=proof.findings,
        hash_kv=proof.hashkv.hash if proof.hashkv is not None else None,
        etcd_version=proof.etcd_version,
        started_at=proof.started_at,
        finished_at=proof.finished_at,
        key=key,
    )


_COLOURS = {Result.PASSED: "green", Result.FAILED: "red", Result.SKIPPED: "yellow"}


def _lines(context: Context, proof: Verified) -> Iterator[str]:
    style = context.console.out.style
    deltas = columns.plural(len(proof.objects) - 1, "delta")
    reached = f", to revision {proof.revision}" if proof.revision else ""
    yield f"{proof.objects[0]} and {deltas}{reached}"
    for finding in proof.findings:
        result = style(f"{finding.result:<7}", _COLOURS[finding.result])
        yield f"  {finding.check:<11} {result}  {finding.detail}".rstrip()
    took = columns.seconds((proof.finished_at - proof.started_at).total_seconds())
    yield f"  took {took}{f', filed as {proof.key}' if proof.key else ', not filed'}"
