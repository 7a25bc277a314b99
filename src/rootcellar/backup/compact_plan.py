"""Which chain is folded, and up to where.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.chain import Latest, plan_chain
from rootcellar.backup.plan_restore import Wish, plan_restore
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from rootcellar.backup.catalogue import Catalogue
    from rootcellar.backup.chain import ChainPlan, Target
    from rootcellar.backup.restore_plan import RestorePlan


@dataclass(frozen=True, slots=True)
class Fold:
    """What is to be folded: a chain with at least one delta, and how to read it."""

    chain: ChainPlan
    plan: RestorePlan

    @property
    def revision(self) -> int:
        """The last revision of the result."""
        assert self.chain.revision is not None  # noqa: S101  a fold never ends at a time
        return self.chain.revision

    @property
    def stored_size(self) -> int:
        """Bytes to read."""
        return self.plan.full.size + sum(planned.size for planned in self.plan.deltas)


def plan_compaction(
    catalogue: Catalogue, url: str, target: Target | None = None, *, compact_to: int | None = None
) -> Fold | None:
    """The newest chain of the living timeline, or the one that leads to a revision; None: it is one full
    already.

    `compact_to` None: the last compaction that the chain's records know of.  Pure.  Raises
    NothingToRestoreError, ChainError, UsageError (a chain that EBR could not read when folded).
    """
    target = target or Latest()
    chain = plan_chain(catalogue, target)
    if not chain.steps:
        return None
    if sealed := next((each.key for each in chain.snapshots if each.name.is_sealed), None):
        raise UsageError(
            f"{sealed} is sealed, and only chains that etcdbrctl can read are folded",
            hint="take a new full instead: `rootcellar snapshot full`",
        )
    wish = Wish(target, token="compact", quota=0, compact_to=compact_to)  # noqa: S106  a token of no cluster
    return Fold(chain, plan_restore(catalogue, url, wish))
