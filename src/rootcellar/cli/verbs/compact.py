"""`compact`: fold a chain into a new full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, Latest
from rootcellar.backup.compact.compact import carry_out
from rootcellar.backup.compact.plan import plan_compaction
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document
from rootcellar.cli.identity import whoami
from rootcellar.cli.progress import Phase, progress
from rootcellar.cli.sealing import keyring, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.compact.compact import Compacted
    from rootcellar.backup.compact.plan import Fold, Unfinished
    from rootcellar.cli.context import Context


class NothingToCompact(Document, frozen=True):
    """The newest chain is one full already."""

    store: str


class CompactionPlan(Document, frozen=True):
    """What would be folded.  `compact_revision` is -1 for no compaction; `size` is what is to be read, in
    bytes.
    """

    store: str
    objects: tuple[str, ...]
    revision: int
    compact_revision: int
    size: int


class Compaction(Document, frozen=True):
    """The full that was written.

    `base_size` and `size` are the databases before and after, `chain_size` and `stored_size` the objects,
    in bytes. `recorded` is false in a store of etcd-backup-restore that no cluster was bound to.
    """

    store: str
    key: str
    objects: tuple[str, ...]
    revision: int
    compact_revision: int
    hash_kv: int
    base_size: int
    size: int
    chain_size: int
    stored_size: int
    rows_dropped: int
    recorded: bool
    seconds: float


def run(context: Context) -> int:
    """Plan, fold, tell."""
    arguments, console = context.arguments, context.console
    store = sources.writable(context)
    revision = arguments.get(flags.TO_REVISION)
    target = Latest() if revision is None else AtRevision(revision)
    catalogue = read_catalogue(store)
    fold = plan_compaction(catalogue, store.url, target, compact_to=arguments.get(flags.COMPACT_TO))
    if fold is None:
        _tell(context, NothingToCompact(store=store.url), ["nothing to fold: the chain is one full already"])
        return 0
    if arguments.has(flags.DRY_RUN):
        planned = _planned(store.url, fold)
        _tell(context, planned, _told_plan(planned, fold.unfinished))
        return 0
    how = writing(context, default=_like_its_base(fold))
    phases = {"full": Phase("read"), "deltas": Phase("apply", None, "events"), "store": Phase("pack")}
    with progress(console, phases) as advance:
        done = carry_out(
            store,
            catalogue,
            fold,
            by=whoami(),
            suffix=how.suffix,
            recipients=how.recipients,
            keyring=keyring(context, store),
            scratch=arguments.get(flags.SCRATCH),
            progress=advance,
        )
    shown = _document(store.url, done)
    _tell(context, shown, _told(shown))
    if not shown.recorded:
        console.warn("the full has no record: nothing in the store tells which cluster it is of")
    return 0


def _like_its_base(fold: Fold) -> str:
    """How a fold is compressed if nobody says: a chain of zstd stays one."""
    name = fold.chain.full.name
    return names.ZSTD if name.is_sealed and not name.is_encrypted else names.GZIP


def _tell(context: Context, shown: Document, lines: Iterator[str] | list[str]) -> None:
    if context.console.is_text:
        context.console.lines(lines)
    else:
        context.console.document(shown)


def _planned(url: str, fold: Fold) -> CompactionPlan:
    return CompactionPlan(
        store=url,
        objects=tuple(each.key for each in fold.chain.snapshots),
        revision=fold.revision,
        compact_revision=fold.plan.compact_revision,
        size=fold.stored_size,
    )


def _document(url: str, done: Compacted) -> Compaction:
    return Compaction(
        store=url,
        key=done.key,
        objects=done.folded,
        revision=done.hashkv.revision,
        compact_revision=done.hashkv.compact_revision,
        hash_kv=done.hashkv.hash,
        base_size=done.base_size,
        size=done.size,
        chain_size=done.chain_size,
        stored_size=done.stored_size,
        rows_dropped=done.rows_dropped,
        recorded=done.record is not None,
        seconds=round(done.seconds, 3),
    )


def _told_plan(planned: CompactionPlan, left: Unfinished | None) -> Iterator[str]:
    if left is not None:
        yield f"prove and record {left.full.key}, which a fold that was killed left"
    yield f"fold {planned.objects[0]} and {columns.plural(len(planned.objects) - 1, 'delta')}"
    yield f"  to revision  {planned.revision}"
    compacted = f"at revision {planned.compact_revision}" if planned.compact_revision >= 0 else "none"
    yield f"  compaction   {compacted}"
    yield f"  to read      {columns.size(planned.size)}"


def _told(shown: Compaction) -> Iterator[str]:
    deltas = columns.plural(len(shown.objects) - 1, "delta")
    yield f"{shown.key}  up to revision {shown.revision}, of {shown.objects[0]} and {deltas}"
    yield f"  HashKV    {shown.hash_kv}, that of the chain; compacted at {shown.compact_revision}"
    yield f"  database  {columns.size(shown.size)}, was {columns.size(shown.base_size)}"
    stored = f"{columns.size(shown.stored_size)}, the chain has {columns.size(shown.chain_size)}"
    yield f"  stored    {stored}; took {columns.seconds(shown.seconds)}"
