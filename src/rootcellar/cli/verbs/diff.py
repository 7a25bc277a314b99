"""`diff`: what differs between two points, two backups, or a backup and the live etcd."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

from rootcellar.backup.browse import browse
from rootcellar.backup.browse.difference import Difference, Kind, difference
from rootcellar.backup.browse.extract import text
from rootcellar.backup.browse.live import LiveKeyspace
from rootcellar.cli import columns, connecting, flags, sources
from rootcellar.cli.backups import source
from rootcellar.cli.document import Document, Part, stream
from rootcellar.cli.looking import PHASES, base64, within
from rootcellar.cli.progress import progress
from rootcellar.cli.sealing import keyring
from rootcellar.cli.targets import at
from rootcellar.errors import UsageError
from rootcellar.mvcc.kubernetes import recognise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.browse.live import Readable
    from rootcellar.cli.console import Console
    from rootcellar.cli.context import Context

_MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~", Kind.REWRITTEN: "="}
_COLOURS = {Kind.ADDED: "green", Kind.REMOVED: "red", Kind.CHANGED: "yellow", Kind.REWRITTEN: "dim"}


class DifferentKey(Part, frozen=True, omit_defaults=True, kw_only=True):
    """A key that differs.  Revisions are those of its last change; values only when asked for."""

    key: str | None = None
    key_base64: str | None = None
    type: str
    fields: tuple[str, ...] = ()
    before_revision: int | None = None
    after_revision: int | None = None
    before: str | None = None
    before_base64: str | None = None
    after: str | None = None
    after_base64: str | None = None


class Differences(Document, frozen=True):
    """What stands above the differences: what was compared with what."""

    ITEMS: ClassVar[type | None] = DifferentKey
    before: str
    before_revision: int
    after: str
    after_revision: int


def run(context: Context) -> int:
    """Compare, and tell while it is compared."""
    arguments, console = context.arguments, context.console
    with ExitStack() as stack:
        head, before, after = _two(context, stack)
        counted = Counter[Kind]()
        found = _counted(
            difference(before, after, within(arguments), rewritten=arguments.has(flags.REWRITTEN)), counted
        )
        with_values = arguments.has(flags.VALUES)
        if console.is_text:
            for each in found:
                console.lines(_lines(each, console, with_values=with_values))
            told = (
                ", ".join(f"{counted[kind]:,} {kind}" for kind in Kind if counted[kind]) or "no differences"
            )
            console.note(f"{told} from revision {head.before_revision} to revision {head.after_revision}")
        else:
            stream(console, head, (_part(each, with_values=with_values) for each in found))
    return 1 if counted and arguments.has(flags.EXIT_CODE) else 0


def _two(context: Context, stack: ExitStack) -> tuple[Differences, Readable, Readable]:
    arguments = context.arguments
    first, second = at(arguments.need(flags.FROM)), at(arguments.need(flags.TO))
    other = arguments.get(flags.AGAINST)
    live = arguments.has(flags.LIVE)
    if live and (other is not None or arguments.has(flags.TO)):
        raise UsageError("--live stands for the second point", hint="leave out --against and --to")
    if not live and other is None and first == second:
        raise UsageError("both points are the same", hint="say --from, --to, --against or --live")
    place = source(context)
    timeline, exclude = arguments.get(flags.TIMELINE), arguments.all(flags.EXCLUDE)
    scratch = arguments.get(flags.SCRATCH)
    keys = keyring(context, place)
    with progress(context.console, PHASES) as advance:
        if other is None and not live:
            before, after = stack.enter_context(
                browse.opened_twice(
                    place,
                    first,
                    second,
                    timeline=timeline,
                    exclude=exclude,
                    scratch=scratch,
                    keyring=keys,
                    progress=advance,
                )
            )
            return _head(before, after.origin, after.revision), before.keyspace, after.keyspace
        before = stack.enter_context(
            browse.opened(
                place,
                first,
                timeline=timeline,
                exclude=exclude,
                scratch=scratch,
                keyring=keys,
                progress=advance,
            )
        )
        if other is not None:
            place = sources.at(context, other)
            keys = keyring(context, place)
            after = stack.enter_context(
                browse.opened(place, second, scratch=scratch, keyring=keys, progress=advance)
            )
            return _head(before, after.origin, after.revision), before.keyspace, after.keyspace
    client = stack.enter_context(connecting.client(context))
    keyspace = LiveKeyspace(client)
    return _head(before, ",".join(client.endpoints), keyspace.revision), before.keyspace, keyspace


def _head(before: browse.Opened, after: str, revision: int) -> Differences:
    return Differences(
        before=before.origin, before_revision=before.revision, after=after, after_revision=revision
    )


def _counted(found: Iterator[Difference], counted: Counter[Kind]) -> Iterator[Difference]:
    for each in found:
        counted[each.kind] += 1
        yield each


def _lines(found: Difference, console: Console, *, with_values: bool) -> Iterator[str]:
    style = _COLOURS[found.kind]
    told = f"{_MARKS[found.kind]} {columns.key(found.key)}"
    if found.kind is Kind.CHANGED and found.fields:
        told += f" ({', '.join(name for name in found.fields if name in {'value', 'lease'})})"
    yield console.out.style(told, style)
    if with_values:
        for mark, record in (("-", found.before), ("+", found.after)):
            if record is not None:
                yield f"    {mark} {_shown(record.value)}"


def _shown(value: bytes) -> str:
    known = recognise(value)
    return f"{known}, {columns.size(len(value))}" if known is not None else columns.key(value)


def _part(found: Difference, *, with_values: bool) -> DifferentKey:
    before, after = found.before, found.after
    was = before.value if with_values and before is not None else None
    now = after.value if with_values and after is not None else None
    return DifferentKey(
        key=text(found.key),
        key_base64=base64(found.key),
        type=found.kind.value,
        fields=found.fields,
        before_revision=before.mod_revision if before is not None else None,
        after_revision=after.mod_revision if after is not None else None,
        before=None if was is None else text(was),
        before_base64=None if was is None else base64(was),
        after=None if now is None else text(now),
        after_base64=None if now is None else base64(now),
    )
