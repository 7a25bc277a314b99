"""What the agent keeps in order, out of the configuration: its jobs, and further stores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent.defragment import Threshold
from rootcellar.agent.errands import prune_job
from rootcellar.agent.keeping import Folding, Growth, compact_job, defragment_job
from rootcellar.agent.mirror import Mirror
from rootcellar.agent.proving import Proving
from rootcellar.backup.capture.full import FullOptions
from rootcellar.cli import agency, flags, sources, values
from rootcellar.cli.configuration import reveal, standby
from rootcellar.cli.retaining import configured_rules
from rootcellar.cli.sealing import configured_writing, keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rootcellar.agent.jobs import Job
    from rootcellar.agent.journal import Journal
    from rootcellar.agent.settings import Settings
    from rootcellar.cli import schema
    from rootcellar.cli.context import Context


def settings(context: Context, journal: Callable[[], Journal]) -> Settings:
    """All that an agent is told, with its jobs and its further stores.  Raises ConfigError, UsageError."""
    found = agency.settings(context)
    jobs = tuple(_jobs(context, found, journal))
    mirrors = tuple(_mirror(context, found, each) for each in sources.mirrors(context))
    after = context.configuration.file.agent.standby_after
    return replace(
        found, jobs=jobs, mirrors=mirrors, standby_after=agency.period("agent.standby-after", after)
    )


def _jobs(context: Context, found: Settings, journal: Callable[[], Journal]) -> Iterator[Job]:
    """Those that the configuration asks for."""
    schedules, seed = context.configuration.file.schedules, found.writer
    if (defrag := schedules.defrag) is not None:
        yield defragment_job(
            agency.cron(defrag, seed),
            Threshold(defrag.waste / 100, values.size(defrag.least)),
            timeout=values.span(defrag.each) / values.SECOND,
            quota=context.arguments.get(flags.QUOTA) or 0,
        )
    if found.open_store is None:
        return
    identities = partial(keyring, context)
    proving = Proving(journal, identities, context.arguments.get(flags.ETCD))
    for name, written, level in _proofs(schedules):
        yield proving.job(name, agency.cron(written, seed), level, scratch=_path(written.scratch))
    if (compact := schedules.compact) is not None:
        yield compact_job(
            agency.cron(compact, seed),
            Growth(compact.deltas, values.size(compact.bytes) if compact.bytes else None),
            Folding(found.options.full.suffix, found.options.recipients, _path(compact.scratch)),
            identities=identities,
        )
    configured = sources.configured(context)
    if configured is not None and configured.retention is not None:
        yield prune_job(agency.cron(schedules.prune, seed), configured_rules(configured.retention))


def _proofs(schedules: schema.Schedules) -> Iterator[tuple[str, schema.ProofSchedule, int]]:
    """The proofs that have a schedule: job, when, level."""
    proofs = schedules.proofs
    if (verify := schedules.verify) is not None:
        yield "verify", verify, verify.level
    levels = {"hash": (proofs.hash, 2), "structure": (proofs.structure, 3)}
    for name, (written, level) in {**levels, "replay": (proofs.replay, 4), "boot": (proofs.boot, 5)}.items():
        if written is not None:
            yield f"proof-{name}", written, level


def _mirror(context: Context, found: Settings, written: schema.Store) -> Mirror:
    schedules, own = context.configuration.file.schedules, standby(written).name
    how = configured_writing(written)
    options = replace(
        found.options,
        full=FullOptions(how.suffix, live_hash=found.options.full.live_hash),
        recipients=how.recipients,
    )
    return Mirror(
        name=written.name,
        url=reveal(written.url),
        open=partial(sources.opened, context, f"@{written.name}", forms=None),
        cron=agency.cron(schedules.mirror, found.writer) if schedules.mirror is not None else None,
        prune=agency.cron(schedules.prune, found.writer),
        rules=configured_rules(written.retention) if written.retention is not None else None,
        standby=partial(sources.opened, context, f"@{own}", forms=None),
        options=options,
        wants_encryption=written.encryption is not None,
    )


def _path(written: str | None) -> Path | None:
    return Path(reveal(written)) if written else None
