"""`show`: all that is known about one object of a store."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  msgspec reads the annotations at run time
from typing import TYPE_CHECKING, Any

import msgspec

from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.cli import columns, flags, sources
from rootcellar.cli.document import Document
from rootcellar.cli.window import SeenProof, find, moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.cli.context import Context


class Object(Document, frozen=True):
    """A full or a delta.  `record` is what its writer knew, None for an object without one."""

    store: str
    key: str
    type: str
    start: int
    last: int
    last_is_sure: bool
    size: int
    compression: str
    final: bool
    timeline: int
    timeline_assumed: bool
    captured_at: datetime
    record: dict[str, Any] | None
    proofs: tuple[SeenProof, ...]
    holds: tuple[dict[str, Any], ...]
    key_ids: tuple[str, ...] = ()


def run(context: Context) -> int:
    """Find it, and tell."""
    store = sources.readable(context)
    catalogue = read_catalogue(store)
    snapshot = find(catalogue, context.arguments.needed(flags.OBJECT))
    shown = _document(store.url, catalogue, snapshot)
    if context.console.is_text:
        context.console.lines(_lines(shown))
    else:
        context.console.document(shown)
    return 0


def _document(url: str, catalogue: Catalogue, snapshot: Snapshot) -> Object:
    proofs = (
        each for each in catalogue.proofs if any(link.key == snapshot.name.key for link in each.objects)
    )
    holds = (each for each in catalogue.holds if each.key == snapshot.name.key)
    return Object(
        store=url,
        key=snapshot.key,
        type="full" if snapshot.is_full else "delta",
        start=snapshot.name.start,
        last=snapshot.last,
        last_is_sure=snapshot.is_sure,
        size=snapshot.size,
        compression=snapshot.name.suffix.removeprefix(".") or "none",
        final=snapshot.name.final,
        timeline=snapshot.timeline,
        timeline_assumed=snapshot.assumed,
        captured_at=moment(snapshot.ended_at),
        record=msgspec.to_builtins(snapshot.record) if snapshot.record is not None else None,
        proofs=tuple(map(SeenProof.of, proofs)),
        holds=tuple(msgspec.to_builtins(each) for each in holds),
        key_ids=catalogue.key_ids(snapshot),
    )


def _lines(shown: Object) -> Iterator[str]:
    yield shown.key
    sure = "" if shown.last_is_sure else ", or somewhat more: only reading it tells"
    span = f"up to {shown.last}{sure}" if shown.type == "full" else f"{shown.start} to {shown.last}"
    yield f"  kind        {shown.type}{', the last word before a migration' if shown.final else ''}"
    yield f"  revisions   {span}"
    yield f"  captured    {columns.date(shown.captured_at)}"
    yield f"  stored      {shown.size:,} bytes ({shown.compression})"
    if shown.key_ids:
        yield f"  opens with  {', '.join(shown.key_ids)}"
    yield f"  timeline    {shown.timeline}{' (guessed from its time)' if shown.timeline_assumed else ''}"
    if shown.record is None:
        yield "  record      none: its writer kept no catalogue, or died before it could"
    else:
        yield from _record(shown.record)
    for proof in shown.proofs:
        failed = f", FAILED: {', '.join(proof.failed)}" if proof.failed else ""
        yield f"  proof       {columns.date(proof.finished_at)} {', '.join(proof.passed)}{failed}"
    if not shown.proofs:
        yield "  proof       none"
    for hold in shown.holds:
        yield f"  held        {hold['reason']} (by {hold['by']}, {hold['nonce']})"


_OF_A_RECORD = (
    ("cluster_id", "cluster"),
    ("member_id", "member"),
    ("etcd_version", "etcd"),
    ("compact_revision", "compacted"),
    ("auth_revision", "auth"),
    ("payload_size", "unpacked"),
    ("stored_sha256", "sha256"),
    ("writer", "writer"),
    ("epoch", "epoch"),
    ("first_received", "first event"),
    ("last_received", "last event"),
)


def _record(record: dict[str, Any]) -> Iterator[str]:
    for name, label in _OF_A_RECORD:
        if record.get(name) not in (None, ""):
            yield f"  {label:<11} {record[name]}"
    if record.get("hashkv"):
        yield f"  HashKV      {record['hashkv']['hash']} at revision {record['hashkv']['revision']}"
    if record.get("leases"):
        yield f"  leases      {len(record['leases'])}"
    if record.get("catch_up"):
        yield "  caught up   its events were read from etcd's history: their times are later than the changes"
    for notice in record.get("warnings", ()):
        yield f"  note        {notice['message']}"
