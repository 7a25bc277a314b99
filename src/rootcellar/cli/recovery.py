"""A restore in words: what is going to be done, what was done, what a person does next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.restore.plan import RestorePlan
    from rootcellar.backup.restore.restore import Restored


def told_plan(plan: RestorePlan) -> Iterator[str]:
    """What will be done."""
    stored = plan.full.size + sum(planned.size for planned in plan.deltas)
    yield f"restore from {plan.store}"
    yield f"  to          {_goal(plan)}"
    if plan.covers:
        since, _, until = plan.covers.partition(" to ")
        yield f"  state of    {since if since == until else plan.covers}"
    yield f"  full        {plan.full.key}"
    if plan.deltas:
        yield f"  deltas      {columns.plural(len(plan.deltas), 'delta')} to {plan.deltas[-1].key}"
    yield f"  to read     {columns.size(stored)}"
    for member in plan.members:
        yield f"  member      {member.name} at {','.join(member.peer_urls)}, id {member.id}"
    yield f"  cluster     {plan.cluster_id}, token {plan.token}"
    yield f"  etcd        {plan.for_etcd or plan.source_version or 'that of the backup'}"
    yield f"  compaction  {'none' if plan.compact_revision < 0 else f'at revision {plan.compact_revision}'}"
    yield f"  bump        {_bump(plan)}"
    yield f"  quota       {columns.size(plan.quota) if plan.quota else 'none'}"


def _goal(plan: RestorePlan) -> str:
    if plan.moment is not None:
        return f"the last revision received by {columns.moment(plan.moment)}"
    if plan.upto is not None:
        return f"revision {plan.upto}"
    return "the last revision in it"


def _bump(plan: RestorePlan) -> str:
    if plan.bump_revision is None:
        return "1,000,000,000 revisions if the keys are Kubernetes', else none"
    return f"{plan.bump_revision:,} revisions" if plan.bump_revision else "none"


def told_result(plan: RestorePlan, restored: Restored) -> Iterator[str]:
    """What was done, and what comes next."""
    seconds = {name: columns.seconds(value) for name, value in restored.seconds.items()}
    parts = ", ".join(f"{name} {value}" for name, value in seconds.items() if name != "total")
    hashkv = restored.hashkv
    yield ""
    yield f"restored to revision {restored.revision} in {seconds['total']}"
    yield f"  time        {parts}"
    compacted = (
        f"compacted at {hashkv.compact_revision}" if hashkv.compact_revision >= 0 else "never compacted"
    )
    yield f"  HashKV      {hashkv.hash} at revision {hashkv.revision}, {compacted}"
    yield f"  compared    {_compared(restored)}"
    if restored.last_time:
        yield f"  last event  {restored.last_time}"
    if restored.bumped_to is not None:
        yield f"  bumped      etcd goes on from revision {restored.bumped_to:,}; all before it is compacted"
    yield f"  size        {columns.size(restored.size)}"
    for alarm in restored.alarms_dropped:
        yield f"  dropped     alarm {alarm}"
    if restored.leases_created:
        unknown = restored.leases_of_unknown_ttl
        guessed = f", {unknown} of them with a default TTL" if unknown else ""
        yield f"  leases      {restored.leases_created} created anew{guessed}"
    for quarantine in restored.quarantined:
        yield f"  old data    {quarantine}"
    yield ""
    yield from _next_steps(plan, restored)


def _compared(restored: Restored) -> str:
    if restored.compared:
        return "the full has the HashKV that the live etcd answered when it was taken"
    return "with nothing: no HashKV of the live etcd was recorded"


def _next_steps(plan: RestorePlan, restored: Restored) -> Iterator[str]:
    cluster = ",".join(f"{member.name}={url}" for member in plan.members for url in member.peer_urls)
    elsewhere = [member.name for member in plan.members if member.name not in restored.members]
    is_kubernetes = restored.bumped_to is not None and plan.bump_revision is None
    yield "next:"
    if elsewhere:
        yield f"  build {', '.join(elsewhere)} on their hosts, from the same plan: --plan FILE --name NAME"
    if is_kubernetes:
        yield "  keep every kube-apiserver stopped until all etcd members run"
    for name, path in restored.members.items():
        urls = ",".join(plan.member(name).peer_urls)
        yield f"  start etcd {restored.for_etcd} on {path}:"
        yield f"    etcd --name {name} --data-dir {path} \\"
        yield f"      --initial-cluster {cluster} --initial-cluster-token {plan.token} \\"
        yield f"      --initial-advertise-peer-urls {urls} --listen-peer-urls {urls}"
    if is_kubernetes:
        yield "  then start the API servers, and restart what keeps copies of their objects:"
        yield "  kube-controller-manager, kube-scheduler, kubelets, kube-proxy and your own operators"
    if restored.auth_enabled:
        yield "  authentication is on, with users and roles as they were in the full"
