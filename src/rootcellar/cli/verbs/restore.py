"""`restore`: from a store, a snapshot file or a plan to data directories that etcd starts on."""

from __future__ import annotations

import secrets
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.imports.unwrapped import Stored
from rootcellar.backup.restore.plan import read_plan, write_plan
from rootcellar.backup.restore.planner import DEFAULT_MEMBER, Wish, plan_bare, plan_restore
from rootcellar.backup.restore.restore import restore, unlock_plan
from rootcellar.cli import fallback, flags, sources
from rootcellar.cli.backups import single, source
from rootcellar.cli.document import Document
from rootcellar.cli.progress import reading
from rootcellar.cli.recovery import told_plan, told_result
from rootcellar.cli.sealing import keyring
from rootcellar.cli.targets import target
from rootcellar.errors import NoKeyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rootcellar.backup.objects.sealing.keyring import Keyring
    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.backup.restore.restore import Restored
    from rootcellar.cli.arguments import Arguments
    from rootcellar.cli.context import Context
    from rootcellar.stores.protocol import Store

DECIDED_BY_A_PLAN = (
    flags.TO_REVISION,
    flags.TO_TIME,
    flags.TIMELINE,
    flags.FOR_ETCD,
    flags.BUMP_REVISION,
    flags.KEEP_HISTORY,
    flags.COMPACT_TO,
    flags.MEMBER,
    flags.TOKEN,
    flags.QUOTA,
    flags.EXCLUDE,
    flags.TRIAL,
)


class RestoreResult(Document, frozen=True):
    """What came of a restore.  `seconds` maps phases to times; `total` is the time to recover."""

    plan: str
    store: str
    revision: int
    hash_kv: int
    compact_revision: int
    compared: bool
    last_time: str
    bumped_to: int | None
    for_etcd: str
    cluster_id: str
    members: dict[str, str]
    quarantined: tuple[str, ...]
    size: int
    events: int
    auth_enabled: bool
    alarms_dropped: tuple[str, ...]
    leases_created: int
    leases_of_unknown_ttl: int
    seconds: dict[str, float]
    warnings: tuple[str, ...]


class AlreadyRestored(Document, frozen=True):
    """Every data directory holds what the plan makes: nothing was done."""

    plan: str
    members: dict[str, str]


def run(context: Context) -> int:
    """Plan, show, ask, restore, tell."""
    with ExitStack() as stack:
        store, plan = _planned(context, stack)
        return _carry_out(context, store, plan)


def _carry_out(context: Context, store: Store, plan: RestorePlan) -> int:
    arguments, console = context.arguments, context.console
    out = arguments.get(flags.OUT)
    if out is not None:
        write_plan(plan, out)
    if console.is_text and (arguments.has(flags.DRY_RUN) or not console.quiet):
        console.lines(told_plan(plan))
    for warning in plan.warnings:
        console.warn(warning)
    keys = keyring(context, store)
    if arguments.has(flags.DRY_RUN):
        _warn_of_keys(context, store, plan, keys)
        if not console.is_text:
            console.document(plan)
        if out is not None:
            console.note(f"to carry it out: rootcellar restore {_single(context)}--plan {out} --data-dir DIR")
        return 0
    targets = _targets(plan, arguments)
    _confirm(context, targets)
    console.finish()
    with reading(console, store, plan) as (metered, advance):
        restored = restore(
            plan, metered, targets, replace=arguments.has(flags.REPLACE), progress=advance, keyring=keys
        )
    if restored is None:
        _tell_repeated(context, plan, targets)
        return 0
    for warning in restored.warnings:
        console.warn(warning)
    if console.is_text:
        console.lines(told_result(plan, restored))
    else:
        console.document(_document(plan, restored))
    return 0


def _warn_of_keys(context: Context, store: Store, plan: RestorePlan, keys: Keyring) -> None:
    """A plan may be for another host, which has the key that is missing here."""
    try:
        unlock_plan(store, plan, keys)
    except NoKeyError as error:
        context.console.warn(error.message)


def _planned(context: Context, stack: ExitStack) -> tuple[Store, RestorePlan]:
    arguments = context.arguments
    path = arguments.get(flags.PLAN)
    if path is not None:
        for option in DECIDED_BY_A_PLAN:
            if arguments.has(option):
                raise UsageError(
                    f"{option.flag} does not go with --plan",
                    hint="the plan has decided that: make another one",
                )
        plan = read_plan(path)
        return _read_from(context, stack, plan.store), plan
    wish = _wish(arguments)
    if fallback.has_several(context) and not arguments.has(flags.OBJECT_KEY):
        store, catalogue = fallback.furthest(context, wish.target)
        return store, plan_restore(catalogue, store.url, wish)
    place = source(context)
    if isinstance(place, Path | Stored):
        store, planned = stack.enter_context(single(place))
        return store, plan_bare(store.url, planned, wish)
    return place, plan_restore(read_catalogue(place), place.url, wish)


def _read_from(context: Context, stack: ExitStack, url: str) -> Store:
    """The store of a plan.  STORE, when given, is where to read instead: the same objects may lie there."""
    if sources.word(context) is None and not context.arguments.has(flags.OBJECT_KEY):
        return sources.planned(context, url)
    place = source(context)
    return stack.enter_context(single(place))[0] if isinstance(place, Path | Stored) else place


def _single(context: Context) -> str:
    """What to write before --plan for a single backup: a plan cannot name what lies in no store."""
    named, key = sources.word(context), context.arguments.get(flags.OBJECT_KEY)
    if key is None and (named is None or not isinstance(sources.at(context, named), Path)):
        return ""
    words = [] if named is None else [named]
    words += [] if key is None else [flags.OBJECT_KEY.flag, key]
    return "".join(f"{shlex.quote(word)} " for word in words)


def _wish(arguments: Arguments) -> Wish:
    wish = Wish(
        target=target(arguments),
        token=arguments.get(flags.TOKEN) or secrets.token_hex(16),
        members=arguments.all(flags.MEMBER) or (DEFAULT_MEMBER,),
        timeline=arguments.get(flags.TIMELINE),
        for_etcd=arguments.get(flags.FOR_ETCD),
        bump_revision=arguments.get(flags.BUMP_REVISION),
        keep_history=arguments.has(flags.KEEP_HISTORY),
        compact_to=arguments.get(flags.COMPACT_TO),
        exclude=frozenset(arguments.all(flags.EXCLUDE)),
        announce=not arguments.has(flags.TRIAL),
    )
    quota = arguments.get(flags.QUOTA)
    return wish if quota is None else replace(wish, quota=quota)


def _targets(plan: RestorePlan, arguments: Arguments) -> dict[str, Path]:
    """Data directories by member.  Several members without a word to tell them apart go side by side."""
    given = arguments.all(flags.DATA_DIR)
    chosen = arguments.get(flags.NAME)
    if not given:
        raise UsageError(
            "--data-dir is needed", hint="say where etcd's data shall be, or look first with --dry-run"
        )
    if len(given) == 1 and "=" not in given[0]:
        top = _directory(given[0])
        if chosen is None and len(plan.members) > 1:
            return {member.name: top / member.name for member in plan.members}
        return {plan.member(chosen).name: top}
    named = dict(each.split("=", 1) for each in given if "=" in each)
    if len(named) != len(given) or chosen is not None:
        raise UsageError(
            "each data directory needs its own member",
            hint="write --data-dir NAME=DIR for each, without --name",
        )
    return {plan.member(name).name: _directory(path) for name, path in named.items()}


def _directory(path: str) -> Path:
    """Absolute, because it is shown in commands for a unit file or another shell."""
    return Path(path).expanduser().absolute()


def _confirm(context: Context, targets: Mapping[str, Path]) -> None:
    occupied = [str(path) for path in targets.values() if (path / "member").exists()]
    if context.arguments.has(flags.REPLACE) and occupied:
        deed = f"replace the data in {', '.join(occupied)}, keeping it in quarantine"
        context.console.confirm(deed, yes=context.arguments.has(flags.YES))


def _tell_repeated(context: Context, plan: RestorePlan, targets: Mapping[str, Path]) -> None:
    if context.console.is_text:
        context.console.lines(["nothing to do: this very restore is there already"])
        return
    members = {name: str(path) for name, path in targets.items()}
    context.console.document(AlreadyRestored(plan=plan.digest, members=members))


def _document(plan: RestorePlan, restored: Restored) -> RestoreResult:
    return RestoreResult(
        plan=plan.digest,
        store=plan.store,
        revision=restored.revision,
        hash_kv=restored.hashkv.hash,
        compact_revision=restored.compact_revision,
        compared=restored.compared,
        last_time=restored.last_time,
        bumped_to=restored.bumped_to,
        for_etcd=restored.for_etcd,
        cluster_id=restored.cluster_id,
        members=restored.members,
        quarantined=restored.quarantined,
        size=restored.size,
        events=restored.events,
        auth_enabled=restored.auth_enabled,
        alarms_dropped=restored.alarms_dropped,
        leases_created=restored.leases_created,
        leases_of_unknown_ttl=restored.leases_of_unknown_ttl,
        seconds=restored.seconds,
        warnings=(*plan.warnings, *restored.warnings),
    )
