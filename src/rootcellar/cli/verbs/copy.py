"""`copy`: from one store into another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rootcellar.backup.copy import copy as copying
from rootcellar.backup.copy.plan import CopyWish, Known
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document, Part
from rootcellar.cli.progress import Phase, progress
from rootcellar.cli.values import SECOND
from rootcellar.errors import ConfigError, DamagedObjectError, NothingToRestoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.copy.copy import Copied
    from rootcellar.backup.copy.plan import CopyPlan
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store


class Uncopied(Part, frozen=True):
    """What was not copied, and why."""

    key: str
    reason: str


class PlannedCopy(Document, frozen=True):
    """What would be copied.  `present` is there, `conflicts` are names that another object has; `size` in
    bytes.
    """

    source: str
    destination: str
    objects: tuple[str, ...]
    present: int
    conflicts: tuple[str, ...]
    size: int
    final: bool | None


class CopyResult(Document, frozen=True):
    """What was copied.  `failed` were not, `left_out` follow them, `orphans` have no full in the source.

    `final`: whether a final full was found, None where none was waited for.
    """

    source: str
    destination: str
    copied: tuple[str, ...]
    present: int
    failed: tuple[Uncopied, ...]
    left_out: tuple[str, ...]
    orphans: tuple[str, ...]
    documents: int
    size: int
    seconds: float
    final: bool | None


def run(context: Context) -> int:
    """Wait if told, plan, copy, tell."""
    arguments, console = context.arguments, context.console
    source = sources.opened(context, arguments.needed(flags.SOURCE), forms=flags.SOURCE_CREDENTIALS)
    named = arguments.needed(flags.DESTINATION)
    destination = sources.opened(context, named)
    wish = _wish(context)
    final = _waited(context, source)
    planned = copying.plan(source, destination, wish, datetime.now(UTC))
    if not planned.groups:
        raise NothingToRestoreError(
            f"there is no backup to copy in {source.url}", hint="check its URL and prefix, and the filters"
        )
    _refuse_clear(context, named, planned)
    if arguments.has(flags.DRY_RUN):
        _tell_plan(context, _planned(source, destination, planned, final=final))
        return 0
    with progress(console, {"copy": Phase("copy", planned.size)}) as advance:
        parallel = arguments.need(flags.PARALLEL)
        done = copying.copy(source, destination, wish, parallel=parallel, progress=advance)
    shown = _document(source.url, destination.url, done, final=final)
    if console.is_text:
        console.lines(_told(shown))
    else:
        console.document(shown)
    if shown.failed:
        first = shown.failed[0]
        raise DamagedObjectError(
            first.key,
            f"{first.reason}; {columns.plural(len(shown.failed), 'object')} could not be copied",
            hint="`rootcellar verify` shows what the source is still good for",
        )
    return 0


def _wish(context: Context) -> CopyWish:
    arguments = context.arguments
    age = arguments.get(flags.MAX_BACKUP_AGE)
    return CopyWish(
        max_backups=arguments.get(flags.MAX_BACKUPS),
        max_age=None if age is None else timedelta(microseconds=age // 1000),
        chain=arguments.get(flags.ONE_CHAIN),
        upto=arguments.get(flags.UP_TO_REVISION),
    )


def _waited(context: Context, source: Store) -> bool | None:
    arguments = context.arguments
    if not arguments.has(flags.WAIT_FOR_FINAL):
        return None
    wait = arguments.get(flags.WAIT)
    found = copying.wait_for_final(source, None if wait is None else wait / SECOND)
    if not found:
        context.console.warn("no final full came: what is there is copied")
    return found


def _refuse_clear(context: Context, named: str, planned: CopyPlan) -> None:
    """Nothing in the clear goes into a store that wants encryption.  Raises ConfigError."""
    configured = sources.configured(context, named)
    if configured is None or configured.encryption is None:
        return
    for move in planned.moves:
        if not move.snapshot.name.is_encrypted:
            raise ConfigError(
                f"store @{configured.name} wants encryption, and {move.snapshot.key} is not encrypted",
                hint="nothing was written; name a store without `encryption`",
            )


def _planned(source: Store, destination: Store, planned: CopyPlan, *, final: bool | None) -> PlannedCopy:
    return PlannedCopy(
        source=source.url,
        destination=destination.url,
        objects=tuple(move.key for move in planned.moves if move.known in (Known.MISSING, Known.UNSURE)),
        present=sum(not move.is_due for move in planned.moves),
        conflicts=tuple(move.key for move in planned.moves if move.known is Known.OTHER),
        size=planned.size,
        final=final,
    )


def _tell_plan(context: Context, shown: PlannedCopy) -> None:
    if not context.console.is_text:
        context.console.document(shown)
        return
    context.console.lines(shown.objects)
    context.console.lines(
        f"{key}: the destination has another object of this name" for key in shown.conflicts
    )
    count = columns.plural(len(shown.objects), "object")
    context.console.lines([f"{count} to copy, {columns.size(shown.size)}; {shown.present} there already"])


def _document(source: str, destination: str, done: Copied, *, final: bool | None) -> CopyResult:
    return CopyResult(
        source=source,
        destination=destination,
        copied=done.copied,
        present=len(done.present),
        failed=tuple(Uncopied(key=each.key, reason=each.reason) for each in done.failed),
        left_out=done.left_out,
        orphans=done.orphans,
        documents=done.documents,
        size=done.size,
        seconds=round(done.seconds, 3),
        final=final,
    )


def _told(shown: CopyResult) -> Iterator[str]:
    count = columns.plural(len(shown.copied), "object")
    took = f"{columns.size(shown.size)} in {columns.seconds(shown.seconds)}"
    yield f"{count} copied into {shown.destination}, {took}; {shown.present} there already"
    for each in shown.failed:
        yield f"  not copied  {each.key}: {each.reason}"
    for key in shown.left_out:
        yield f"  left out    {key}: it follows one of those"
    for key in shown.orphans:
        yield f"  left out    {key}: no full leads to it"
