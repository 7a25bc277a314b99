"""Which chain is folded, up to where, and whether a fold that was killed waits to be finished.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.chain import AtRevision, Latest, plan_chain
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.errors import ChainError, NothingToRestoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.chain import ChainPlan, Target
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.backup.restore.plan import RestorePlan


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A full that a fold was killed behind, before it was recorded.  `claims` are the keys of what it
    claimed, `stored_sha256` what it meant to store.
    """

    full: Snapshot
    claims: tuple[str, ...]
    stored_sha256: str


@dataclass(frozen=True, slots=True)
class Fold:
    """What is to be folded: a chain with at least one delta, and how to read it.

    `unfinished` is what the fold comes to, if that is there and only its record is not.
    """

    chain: ChainPlan
    plan: RestorePlan
    unfinished: Unfinished | None = None

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

    `compact_to` None: the last compaction that the chain's records know of.  Raises NothingToRestoreError,
    ChainError.
    """
    target = target or Latest()
    chain, unfinished = plan_chain(catalogue, target), None
    if not chain.steps:
        unfinished = _unfinished(catalogue, chain.full)
        if unfinished is None:
            return None
        try:
            chain = plan_chain(catalogue.without([chain.full.key]), AtRevision(chain.full.last))
        except (NothingToRestoreError, ChainError):
            return None  # what it was folded from has been pruned
        if not chain.steps or cluster_of(catalogue, chain) is None:
            return None
    wish = Wish(target, token="compact", quota=0, compact_to=compact_to)  # noqa: S106  a token of no cluster
    if unfinished is not None:
        left = catalogue.without([unfinished.full.key])
        wish = replace(wish, target=AtRevision(unfinished.full.last))
        return Fold(chain, plan_restore(left, url, wish), unfinished)
    return Fold(chain, plan_restore(catalogue, url, wish))


def _unfinished(catalogue: Catalogue, full: Snapshot) -> Unfinished | None:
    """Of fulls only folds know the hash as they claim them; a record says all that their claims said."""
    if full.record is not None:
        return None
    claims = {key: claim for key, claim in catalogue.claims.items() if claim.key == full.name.key}
    meant = {claim.stored_sha256 for claim in claims.values()}
    sha256 = meant.pop() if len(meant) == 1 else None
    return Unfinished(full, tuple(claims), sha256) if sha256 is not None else None


def cluster_of(catalogue: Catalogue, chain: ChainPlan) -> str | None:
    """Whose chain this is; None where nothing tells."""
    for snapshot in reversed(chain.snapshots):
        if snapshot.record is not None:
            return snapshot.record.cluster_id
    return catalogue.marker.cluster_id if catalogue.marker is not None else None


def refuse_exposure(fold: Fold, suffix: str, recipients: Sequence[Recipient]) -> None:
    """A fold is out of etcdbrctl's sight if its chain is, and encrypted if that is: it shows etcdbrctl no
    half of a history, and nobody a secret.  (A sealed fold of a chain that etcdbrctl reads leaves it that
    chain.)  Raises UsageError.
    """
    if suffix not in names.WRITABLE_SUFFIXES | names.SEALED_SUFFIXES:
        raise UsageError(f"a chain is not folded into {suffix}", hint="choose gzip, zlib, none or zstd")
    is_sealed, is_encrypted = suffix in names.SEALED_SUFFIXES, suffix.endswith(names.AGE)
    for name in (each.name for each in fold.chain.snapshots):
        if name.is_encrypted and not is_encrypted:
            raise UsageError(
                f"{name.key} is encrypted, and the fold would not be",
                hint="say who may open it: `encryption` of the store in the configuration",
            )
        if name.is_sealed and not is_sealed:
            hint = "fold it with --compression zstd"
            raise UsageError(f"{name.key} is sealed, and etcdbrctl could read the fold", hint=hint)
    if is_encrypted and not recipients:
        raise UsageError("the fold would have no recipients", hint="say who may open it")
