"""Jobs that keep what there is in order: chains are folded, etcd gives back space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.agent.defragment import Threshold, defragment
from rootcellar.agent.jobs import Job
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.compact.compact import carry_out
from rootcellar.backup.compact.plan import plan_compaction
from rootcellar.backup.objects.sealing.keyring import NO_KEYS, Keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rootcellar.agent.jobs import Errand
    from rootcellar.agent.schedule import Cron
    from rootcellar.backup.compact.plan import Fold
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Growth:
    """From what on a chain is folded: so many `deltas`, or `bytes` of them as stored.  None: whatever."""

    deltas: int | None = None
    bytes: int | None = None

    def why(self, fold: Fold) -> str | None:
        """Why a chain is to be folded now, None where it is not."""
        behind = fold.plan.deltas
        count, size = len(behind), sum(each.size for each in behind)
        if self.deltas is None and self.bytes is None:
            return f"{count} deltas"
        if self.deltas is not None and count >= self.deltas:
            return f"{count} deltas, {self.deltas} is the most"
        if self.bytes is not None and size >= self.bytes:
            return f"{size} bytes of deltas, {self.bytes} is the most"
        return None


@dataclass(frozen=True, slots=True)
class Folding:
    """How the full that a chain is folded into is written."""

    suffix: str = names.GZIP
    recipients: tuple[Recipient, ...] = ()
    scratch: Path | None = None


def compact_job(
    cron: Cron,
    growth: Growth,
    folding: Folding,
    *,
    identities: Callable[[Store], Keyring] = lambda _store: NO_KEYS,
) -> Job:
    """The newest chain, folded at each tick at which it has grown enough.

    It needs no epoch: see `backup.compact`.
    """

    async def go(errand: Errand) -> str:
        store = errand.store
        assert store is not None  # noqa: S101  the job needs one
        return await errand.thread(lambda: _fold(store, errand.writer, growth, folding, identities))

    return Job("compact", cron, go)


def _fold(
    store: Store, writer: str, growth: Growth, folding: Folding, identities: Callable[[Store], Keyring]
) -> str:
    catalogue = read_catalogue(store)
    if not catalogue.snapshots:
        return "there is nothing to fold yet"
    fold = plan_compaction(catalogue, store.url)
    if fold is None:
        return "the newest chain is one full"
    why = growth.why(fold)
    if why is None:
        return f"{len(fold.plan.deltas)} deltas are not enough"
    done = carry_out(
        store,
        catalogue,
        fold,
        by=writer,
        suffix=folding.suffix,
        recipients=folding.recipients,
        keyring=identities(store),
        scratch=folding.scratch,
    )
    return f"{done.key}, for {why}"


def defragment_job(cron: Cron, threshold: Threshold, *, timeout: float, quota: int = 0) -> Job:
    """Members that waste enough, followers first, at each tick; the agent beside the leader drives it.

    `timeout` is for one member, in seconds; `quota` in bytes, for etcd that does not say it.
    """

    async def run(errand: Errand) -> str:
        done = await errand.thread(lambda: defragment(errand.client, threshold, timeout=timeout, quota=quota))
        for alarm, reason in done.armed:
            errand.log.warning("nospace-kept", member=f"{alarm.member_id:x}", reason=reason)
        return _told([each.seat.name for each in done.done], [f"{a.member_id:x}" for a in done.disarmed])

    return Job("defragment", cron, run, needs_store=False, bound=4 * timeout)


def _told(members: Sequence[str], disarmed: Sequence[str]) -> str:
    told = ", ".join(members) or "no member wastes enough"
    return f"{told}; NOSPACE taken back of {', '.join(disarmed)}" if disarmed else told
