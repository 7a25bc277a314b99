"""Snapshots, records and timelines as a test wants them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.history import SECOND, History, Snapshot
from rootcellar.backup.catalogue.ownership import Heartbeat, Timeline
from rootcellar.backup.catalogue.records import Record

EPOCH = 1_700_000_000
"""The unix second at which the tests' histories begin."""


def moment(seconds: float) -> datetime:
    """So many seconds into a test's history."""
    return datetime.fromtimestamp(EPOCH, UTC) + timedelta(seconds=seconds)


def nanos(seconds: float) -> int:
    return EPOCH * SECOND + round(seconds * 1_000_000) * 1000


def record(name: names.SnapshotName, **fields) -> Record:
    defaults = {
        "key": name.key,
        "kind": name.kind,
        "start": name.start,
        "last_revision": name.last,
        "compact_revision": -1,
        "payload_size": 1000,
        "payload_sha256": "a" * 64,
        "stored_size": 100,
        "stored_sha256": "b" * 64,
        "cluster_id": "cdf818194e3a8c32",
        "member_id": "8e9e05c52164694d",
        "timeline": 1,
        "epoch": 1,
        "writer": "agent/1",
        "captured_at": moment(0),
    }
    return Record(**(defaults | fields))


def full(
    last: int, *, at: float = 0, real: int | None = None, recorded=False, timeline=1, **fields
) -> Snapshot:
    """A full named after `last`, done `at` so many seconds, whose pages go up to `real`."""
    name = names.full(last, EPOCH + int(at))
    if not recorded and real is None and not fields:
        return Snapshot(name, name.key, 100, timeline)
    fields = {"last_revision": real or last, "timeline": timeline, "captured_at": moment(at)} | fields
    return Snapshot(name, name.key, 100, timeline, record(name, **fields))


def delta(start: int, last: int, *, at: float = 0, recorded=False, timeline=1, **fields) -> Snapshot:
    """A delta of these revisions, cut `at` so many seconds."""
    name = names.delta(start, last, EPOCH + int(at))
    if not recorded and not fields:
        return Snapshot(name, name.key, 100, timeline)
    fields = {"timeline": timeline, "captured_at": moment(at)} | fields
    return Snapshot(name, name.key, 100, timeline, record(name, **fields))


def timeline(number: int, parent: int | None = None, forked_at: int = 0, *, at: float = 0) -> Timeline:
    return Timeline(
        number=number,
        parent=parent,
        forked_at=forked_at,
        cluster_id="cdf818194e3a8c32",
        writer="agent/1",
        created_at=moment(at),
        nonce=f"{number:016x}",
    )


def heartbeat(at: float, revision: int, *, timeline: int = 1) -> Heartbeat:
    return Heartbeat(time=moment(at), revision=revision, timeline=timeline, epoch=1, agent="agent/1")


def history(*snapshots: Snapshot, timelines=(), beat: Heartbeat | None = None) -> History:
    ordered = sorted(snapshots, key=lambda each: (each.name.order, each.key))
    return History(tuple(ordered), tuple(timelines), beat)
