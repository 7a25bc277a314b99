"""`prune`: delete the backups that the retention policy does not keep, and what has served."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rootcellar.backup.prune.plan import plan_prune
from rootcellar.backup.prune.prune import Pruned, ask, prune, survey
from rootcellar.backup.prune.values import What, told
from rootcellar.cli import agency, columns, connecting, flags, retaining, sources
from rootcellar.cli.document import Document, Part
from rootcellar.cli.identity import whoami
from rootcellar.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rootcellar.backup.prune.values import Decision, Live, PrunePlan, Rules
    from rootcellar.cli.console import Console
    from rootcellar.cli.context import Context

_SHOWN = 20


class PrunedObject(Part, frozen=True):
    """What becomes of one object.  `size` is in stored bytes.

    `outcome` is `kept`, `planned` (to be deleted: with `dryRun`, or not reached), `deleted`, `locked` (the
    store's retention forbids it), `waits` (one that stays builds on it) or `failed`; `detail` says more.
    """

    key: str
    what: str
    keep: bool
    reason: str
    size: int
    outcome: str
    detail: str | None = None


class PruneResult(Document, frozen=True):
    """What was deleted, or with `dryRun` would be.

    `deltas` is for how many seconds deltas are kept, null for as long as their full.  `freed` is in stored
    bytes.  `uploads` is the number of unfinished ones that were removed.
    """

    store: str
    policy: str
    minimum: int
    deltas: float | None
    dry_run: bool
    objects: tuple[PrunedObject, ...]
    freed: int
    uploads: int


def run(context: Context) -> int:
    """Plan, show, ask, delete."""
    arguments, console = context.arguments, context.console
    rules = retaining.rules(context)
    store = sources.writable(context)
    live = _live(context)
    dry_run = arguments.has(flags.DRY_RUN)
    plan = plan_prune(survey(store), rules, datetime.now(UTC), live)
    if console.is_text:
        console.lines(_plan_lines(store.url, plan, rules, console))
    done = Pruned(plan)
    if not dry_run and not plan.is_empty:
        deed = f"delete {_counted(plan.doomed, plan.swept)} from {store.url}"
        console.confirm(deed, yes=arguments.has(flags.YES))
    if not dry_run:
        epoch = agency.epoch(context, store)  # of an agent here, which goes on writing meanwhile
        done = prune(
            store, rules, writer=epoch.writer if epoch is not None else whoami(), epoch=epoch, live=live
        )
    if done.unasked is not None:
        console.warn(f"what the store's retention forbids cannot be known before it is tried: {done.unasked}")
    if not console.is_text:
        console.document(_document(store.url, rules, done, dry_run=dry_run))
    elif not dry_run:
        console.lines(_done_lines(done))
    if done.failed:
        key, error = next(iter(done.failed.items()))
        many = columns.plural(len(done.failed), "object")
        raise StoreError(
            f"{many} could not be deleted, the first {key}: {error.message}",
            hint="the rest is done; mend what hinders, and run it again",
        )
    return 0


def _live(context: Context) -> Live | None:
    """What etcd says, where one is named on the command line, or is configured beside the store."""
    arguments = context.arguments
    given = arguments.has(flags.ENDPOINTS) or context.environ.get(flags.ENDPOINTS.variable)
    if not given and (sources.configured(context) is None or arguments.get(flags.ENDPOINTS) is None):
        return None
    with connecting.client(context) as client:
        return ask(client)


def _document(url: str, rules: Rules, done: Pruned, *, dry_run: bool) -> PruneResult:
    deleted = {each.key: each for each in done.deleted}
    listed = {each.key: each for each in (*done.plan.snapshots, *done.plan.leftovers)}
    return PruneResult(
        store=url,
        policy=str(rules.policy),
        minimum=rules.minimum,
        deltas=None if rules.deltas is None else rules.deltas.total_seconds(),
        dry_run=dry_run,
        objects=tuple(_shown(each, done, deleted) for each in {**deleted, **listed}.values()),
        freed=sum(each.size for each in done.deleted),
        uploads=done.uploads,
    )


def _shown(each: Decision, done: Pruned, deleted: dict[str, Decision]) -> PrunedObject:
    outcome, detail = ("kept", None) if each.keep else ("planned", None)
    if each.key in deleted:
        outcome = "deleted"
    elif each.key in done.locked:
        outcome, detail = "locked", done.locked[each.key]
    elif each.key in done.kept_for:
        outcome, detail = "waits", done.kept_for[each.key]
    elif each.key in done.failed:
        outcome, detail = "failed", done.failed[each.key].message
    return PrunedObject(
        key=each.key,
        what=each.what.value,
        keep=each.keep,
        reason=each.reason,
        size=each.size,
        outcome=outcome,
        detail=detail,
    )


def _plan_lines(url: str, plan: PrunePlan, rules: Rules, console: Console) -> Iterator[str]:
    style = console.out.style
    yield style(url, "bold")
    deltas = "as long as their full" if rules.deltas is None else f"for {told(rules.deltas)}"
    chains = columns.plural(rules.minimum, "chain")
    yield f"  keeps {rules.policy}; deltas {deltas}; at least {chains} that can be proven"
    behind = Counter((each.base, each.keep) for each in plan.snapshots if each.what is What.DELTA)
    rows = []
    for each in reversed(plan.snapshots):
        if each.what is What.FULL and each.snapshot is not None:
            name = each.snapshot.name
            kept, gone = behind[name.key, True], behind[name.key, False]
            told_ = f"{kept}" if not gone else f"{kept}, {gone} go"
            taken = columns.moment(each.snapshot.ended_at).removesuffix(" UTC")
            mark = "keep" if each.keep else "delete"
            rows.append((mark, each.key, taken, columns.size(each.size), told_, each.reason))
    yield ""
    for line in columns.table(("", "FULL", "TAKEN (UTC)", "SIZE", "DELTAS", "WHY"), rows, right=(3,)):
        yield style(line, "red") if line.startswith("delete") else line
    yield from _remarks([each for each in plan.snapshots if each.what is What.ORPHAN], "orphan")
    told_leftovers = [each for each in plan.leftovers if each.what in (What.LOST, What.STRAY, What.PART)]
    yield from _remarks(told_leftovers, "leftover")
    yield ""
    yield (
        f"to delete: {_counted(plan.doomed, plan.swept)}" if not plan.is_empty else "nothing is to be deleted"
    )


def _remarks(decisions: list[Decision], noun: str) -> Iterator[str]:
    """What somebody should look at, the first of many."""
    if decisions:
        yield ""
    for each in decisions[:_SHOWN]:
        yield f"{noun} {'stays' if each.keep else 'goes '}  {each.key}: {each.reason}"
    if len(decisions) > _SHOWN:
        yield f"and {len(decisions) - _SHOWN:,} more: --output json has all"


def _counted(doomed: Iterable[Decision], swept: Iterable[Decision]) -> str:
    counts = Counter("full" if each.what is What.FULL else "delta" for each in doomed)
    size = columns.size(sum(each.size for each in doomed))
    parts = [columns.plural(counts[noun], noun) for noun in ("full", "delta") if counts[noun]]
    told_ = f"{' and '.join(parts)} ({size})" if parts else ""
    leftovers = len(list(swept))
    if leftovers:
        told_ = (
            f"{told_}, {columns.plural(leftovers, 'leftover')}"
            if told_
            else columns.plural(leftovers, "leftover")
        )
    return told_ or "nothing"


def _done_lines(done: Pruned) -> Iterator[str]:
    snapshots = [each for each in done.deleted if each.snapshot is not None]
    leftovers = [each for each in done.deleted if each.snapshot is None]
    yield f"deleted: {_counted(snapshots, leftovers)}"
    if done.uploads:
        yield f"{columns.plural(done.uploads, 'unfinished upload')} removed"
    for key, reason in list(done.locked.items())[:_SHOWN]:
        yield f"locked   {key}: {reason}"
    if len(done.locked) > _SHOWN:
        yield f"and {len(done.locked) - _SHOWN:,} more that the store does not let go of"
    if done.kept_for:
        yield f"{columns.plural(len(done.kept_for), 'object')} stay, for what is locked builds on them"
