"""`put-back`: write keys of a backup into the live etcd again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.backup.browse.extract import text
from rootcellar.backup.browse.live import LiveKeyspace
from rootcellar.backup.browse.putback import Action, LeaseRule, PutBack, Step, plan_put_back, put_back
from rootcellar.cli import columns, connecting, flags
from rootcellar.cli.document import Document, Part
from rootcellar.cli.looking import base64, opened
from rootcellar.errors import RootcellarError
from rootcellar.mvcc.history import KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rootcellar.cli.arguments import Arguments
    from rootcellar.cli.console import Console
    from rootcellar.cli.context import Context
    from rootcellar.etcd.client import EtcdClient

_MARKS = {Action.CREATE: "+", Action.OVERWRITE: "~", Action.DELETE: "-", Action.NEWER: "!"}
_COLOURS = {Action.CREATE: "green", Action.OVERWRITE: "yellow", Action.DELETE: "red", Action.NEWER: "cyan"}


class KeyPutBack(Part, frozen=True, omit_defaults=True, kw_only=True):
    """One key.  `written_at` is the revision that wrote it; without one it was left as it is."""

    key: str | None = None
    key_base64: str | None = None
    action: str
    written_at: int | None = None


class PutBackResult(Document, frozen=True):
    """What was done, or with `dry_run` would be.  `same` counts keys that needed nothing."""

    revision: int
    live_revision: int
    dry_run: bool
    same: int
    keys: tuple[KeyPutBack, ...]


def run(context: Context) -> int:
    """Compare, show, ask, write."""
    arguments, console = context.arguments, context.console
    with opened(context) as backup, connecting.client(context) as client:
        plan = plan_put_back(
            backup.keyspace,
            LiveKeyspace(client),
            _ranges(arguments),
            overwrite_newer=arguments.has(flags.OVERWRITE_NEWER),
            delete_extra=arguments.has(flags.DELETE_EXTRA),
            leases=LeaseRule(arguments.need(flags.LEASES)),
        )
        if console.is_text:
            console.lines(_plan_lines(plan, console))
        written: dict[bytes, int] = {}
        if plan.steps and not arguments.has(flags.DRY_RUN):
            many = columns.plural(len(plan.steps), "key")
            console.confirm(
                f"write {many} into the etcd at {','.join(client.endpoints)}",
                yes=arguments.has(flags.YES),
            )
            written = carry_out(client, plan, backup.lease_ttls)
    lost = 0 if arguments.has(flags.DRY_RUN) else len(plan.steps) - len(written)
    if console.is_text:
        if written:
            console.lines([f"{columns.plural(len(written), 'key')} written"])
    else:
        console.document(_document(plan, written, dry_run=arguments.has(flags.DRY_RUN)))
    if lost:
        raise RootcellarError(
            f"{columns.plural(lost, 'key')} left as they are: somebody wrote them in between",
            hint="run it again to see what they are now",
        )
    return 0


def _ranges(arguments: Arguments) -> list[KeyRange]:
    ranges = [KeyRange.single(key) for key in arguments.all(flags.ONLY)]
    prefix = arguments.get(flags.PREFIX)
    if prefix is not None:
        ranges.append(KeyRange.prefix(prefix))
    return ranges


def carry_out(client: EtcdClient, plan: PutBack, lease_ttls: Mapping[int, int]) -> dict[bytes, int]:
    """The revisions that wrote keys; a key that was lost to somebody is not among them."""
    outcomes = put_back(client, plan, lease_ttls=lease_ttls)
    return {outcome.step.key: outcome.revision for outcome in outcomes if outcome.written}


def _plan_lines(plan: PutBack, console: Console) -> Iterator[str]:
    for step in _in_order(plan):
        told = "is newer in etcd, and left alone" if step.action is Action.NEWER else ""
        line = f"{_MARKS[step.action]} {columns.key(step.key)} {told}".rstrip()
        yield console.out.style(line, _COLOURS[step.action])
    writes = ", ".join(
        f"{plan.count(action):,} to {action}" for action in (Action.CREATE, Action.OVERWRITE, Action.DELETE)
    )
    yield (
        f"revision {plan.revision} of the backup against revision {plan.live_revision} of etcd: "
        f"{writes}, {len(plan.newer):,} newer, {plan.same:,} the same"
    )


def _in_order(plan: PutBack) -> list[Step]:
    return sorted((*plan.steps, *plan.newer), key=lambda step: step.key)


def _document(plan: PutBack, written: Mapping[bytes, int], *, dry_run: bool) -> PutBackResult:
    keys = tuple(
        KeyPutBack(
            key=text(step.key),
            key_base64=base64(step.key),
            action=step.action.value,
            written_at=written.get(step.key),
        )
        for step in _in_order(plan)
    )
    return PutBackResult(
        revision=plan.revision, live_revision=plan.live_revision, dry_run=dry_run, same=plan.same, keys=keys
    )
