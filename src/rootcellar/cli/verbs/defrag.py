"""`defrag`: have etcd give back the space that it does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.agent.defragment import Threshold, defragment, look, plan_defragmentation
from rootcellar.cli import columns, connecting, flags
from rootcellar.cli import defrag_flags as own
from rootcellar.cli.document import Document, Part
from rootcellar.cli.values import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.agent.defragment import DefragPlan, DefragResult, Seat
    from rootcellar.cli.context import Context


class DefragmentedMember(Part, frozen=True):
    """One member, in bytes.  `after` is None for one that was left as it is."""

    name: str
    id: str
    leader: bool
    before: int
    in_use: int
    after: int | None


class Defragmentation(Document, frozen=True):
    """What was done, or with --dry-run would be: `members` in the order of their turns, then those spared.

    `disarmed` are members whose NOSPACE alarm was taken back, `armed` why others keep theirs.
    """

    dry_run: bool
    members: tuple[DefragmentedMember, ...]
    disarmed: tuple[str, ...]
    armed: tuple[str, ...]


def run(context: Context) -> int:
    """Followers first, the leader last, one at a time."""
    given = context.arguments
    threshold = Threshold(given.need(own.WASTE) / 100, given.need(own.LEAST))
    with connecting.client(context) as client:
        if given.has(flags.DRY_RUN):
            _show(context, _planned(plan_defragmentation(look(client), threshold)))
            return 0
        spared = plan_defragmentation(look(client), threshold).spared
        result = defragment(
            client,
            threshold,
            timeout=given.need(own.EACH) / SECOND,
            quota=given.get(flags.QUOTA) or 0,
            told=lambda done: context.console.note(f"{done.seat.name} in {columns.seconds(done.seconds)}"),
        )
    _show(context, _done(result, spared))
    return 0


def _planned(plan: DefragPlan) -> Defragmentation:
    seats = (*plan.turns, *plan.spared)
    return Defragmentation(True, tuple(_member(seat, None) for seat in seats), (), ())


def _done(result: DefragResult, spared: tuple[Seat, ...]) -> Defragmentation:
    members = [_member(done.seat, done.size) for done in result.done]
    members += [_member(seat, None) for seat in spared]
    return Defragmentation(
        dry_run=False,
        members=tuple(members),
        disarmed=tuple(f"{alarm.member_id:x}" for alarm in result.disarmed),
        armed=tuple(reason for _, reason in result.armed),
    )


def _member(seat: Seat, after: int | None) -> DefragmentedMember:
    return DefragmentedMember(seat.name, f"{seat.id:x}", seat.is_leader, seat.size, seat.in_use, after)


def _show(context: Context, shown: Defragmentation) -> None:
    if context.console.is_text:
        context.console.lines(_lines(shown))
    else:
        context.console.document(shown)
    for reason in shown.armed:
        context.console.warn(f"NOSPACE is kept: {reason}")


def _lines(shown: Defragmentation) -> Iterator[str]:
    for member in shown.members:
        role = "leader" if member.leader else "follower"
        sizes = f"{columns.size(member.before)}, {columns.size(member.in_use)} in use"
        after = f", now {columns.size(member.after)}" if member.after is not None else ""
        yield f"{member.name}  {role}, {sizes}{after}"
    for member_id in shown.disarmed:
        yield f"the NOSPACE alarm of {member_id} was taken back"
