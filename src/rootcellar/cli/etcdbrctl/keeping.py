"""What the reference does beside its snapshots: garbage collection, defragmentation, the second store."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from rootcellar.agent.defragment import ALWAYS
from rootcellar.agent.errands import prune_job
from rootcellar.agent.jobs import every
from rootcellar.agent.keeping import defragment_job
from rootcellar.agent.mirror import Mirror
from rootcellar.agent.schedule import Cron
from rootcellar.backup.prune.retention import Exponential, LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.cli.etcdbrctl import stores
from rootcellar.cli.etcdbrctl.sections import (
    Connection,
    Restoration,
    SecondSite,
    Snapshots,
    Snapstore,
    Upkeep,
)
from rootcellar.cli.values import SECOND
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rootcellar.agent.jobs import Job
    from rootcellar.cli.etcdbrctl.reading import Configuration

PARALLEL = 10
"""As many copies at a time as there."""


def jobs(configuration: Configuration, seed: str, *, has_store: bool) -> Iterator[Job]:
    """What the flags ask for.  Raises UsageError."""
    said, shots = configuration.get(Connection), configuration.get(Snapshots)
    quota = configuration.get(Restoration).quota if configuration.command == "server" else 0
    cron = Cron(configuration.get(Upkeep).defragmentation, seed=seed)
    yield defragment_job(cron, ALWAYS, timeout=said.defrag_timeout / SECOND, quota=quota)
    period = shots.gc_period / SECOND
    if has_store and period > 1:
        yield prune_job(None, rules(configuration), every(period))


def rules(configuration: Configuration) -> Rules:
    """What the flags keep.  Raises UsageError."""
    shots = configuration.get(Snapshots)
    policy = LimitBased(shots.max_backups) if shots.gc_policy == "LimitBased" else Exponential()
    return Rules(policy, deltas=timedelta(microseconds=shots.delta_retention // 1000))


def mirrors(configuration: Configuration, environ: Mapping[str, str]) -> tuple[Mirror, ...]:
    """The second store, which is copied to, and not otherwise written to.  Raises UsageError, ConfigError."""
    if configuration.command != "server" or not configuration.get(SecondSite).enabled:
        return ()
    for before in ("", stores.SECOND):
        if not configuration.get(Snapstore, before).provider:
            raise UsageError(
                "--secondary-backup-sync-enabled needs two stores",
                hint=f"--{before}storage-provider is not given",
            )
    period = configuration.get(SecondSite).period / SECOND
    if period < 1:
        raise UsageError("--secondary-backup-sync-period is less than a second", hint="the default is 1h")
    gc = configuration.get(Snapshots).gc_period / SECOND > 1
    return (
        Mirror(
            name="secondary",
            url=stores.opened(configuration, environ, stores.SECOND).url,
            open=partial(stores.opened, configuration, environ, stores.SECOND),
            every=period,
            rules=rules(configuration) if gc else None,
            parallel=PARALLEL,
        ),
    )
