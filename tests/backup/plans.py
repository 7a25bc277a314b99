"""Restore plans for tests, made by the planner from what a store holds."""

from __future__ import annotations

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import AtRevision, AtTime, Latest
from rootcellar.backup.restore.planner import DEFAULT_MEMBER, Wish, plan_restore
from rootcellar.backup.restore.restore import restore

TOKEN = "a-token-of-its-own"


def plan_of(store, revision=None, *, moment=None, members=(DEFAULT_MEMBER,), **wish):
    """The plan for a revision or a moment (default: the end of the newest chain) with these members."""
    target = Latest() if revision is None else AtRevision(revision)
    if moment is not None:
        target = AtTime(moment)
    wish = {"token": TOKEN, "bump_revision": 0, **wish}
    return plan_restore(read_catalogue(store), store.url, Wish(target, members=tuple(members), **wish))


def restore_into(data_dir, store, revision=None, **wish):
    """Restore the only member into `data_dir`."""
    plan = plan_of(store, revision, **wish)
    return restore(plan, store, {plan.members[0].name: data_dir})


def restore_members(members, store, revision=None, **wish):
    """Restore the members of the testbed (not started yet) as one cluster, from one download."""
    urls = tuple(f"{member.name}={member.peer_url}" for member in members)
    plan = plan_of(store, revision, members=urls, **wish)
    return restore(plan, store, {member.name: member.data_dir for member in members})
