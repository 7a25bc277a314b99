"""What `snapshot full` and `snapshot delta` share: one capture, and what it came to."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rootcellar.backup.capture.capture import CaptureOptions, capture
from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.capture.proof import prove_upload
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.catalogue import documents, keys
from rootcellar.backup.catalogue.documents import Document as StoredDocument
from rootcellar.backup.catalogue.fence import beat
from rootcellar.backup.catalogue.ownership import Epoch, Timeline
from rootcellar.cli import agency, columns, connecting, flags, sources
from rootcellar.cli.document import Document, Part
from rootcellar.cli.identity import whoami
from rootcellar.cli.progress import Phase, progress
from rootcellar.cli.sealing import writing
from rootcellar.errors import EtcdError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rootcellar.agent.doorway import Doorway
    from rootcellar.backup.capture.outcome import Capture, Captured
    from rootcellar.cli.context import Context
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.stores.protocol import Store

D = TypeVar("D", bound=StoredDocument)


class CapturedObject(Part, frozen=True):
    """An object that was written.  `size` is unpacked, `stored_size` as it lies there, in bytes."""

    key: str
    start: int
    last: int
    size: int
    stored_size: int
    hash_kv: int | None
    seconds: float
    notices: tuple[str, ...]


class Snapshot(Document, frozen=True):
    """What a capture did.  `why_full` says why a full was taken where a delta was asked for.

    `timeline` is the number of the one it opened, if it did; `abandoned` what was then moved out of
    etcdbrctl's sight, `locked` what could not be.  `revision` is the newest that is in the store now.
    """

    store: str
    revision: int
    full: CapturedObject | None
    deltas: tuple[CapturedObject, ...]
    why_full: str | None
    timeline: int | None
    abandoned: tuple[str, ...]
    locked: tuple[str, ...]


def snapshot(context: Context, *, full: bool) -> int:
    """Take a full or deltas, and tell what came of it.  Where an agent runs here, it is asked to."""
    arguments, console = context.arguments, context.console
    store = sources.writable(context)
    agent = None if arguments.has(flags.TAKE_OVER) else agency.running(context, store.url)
    if agent is not None:
        return _through(context, agent, full=full)
    writer = whoami()
    how = writing(context)
    options = CaptureOptions(
        full=FullOptions(
            suffix=how.suffix,
            final=arguments.has(flags.FINAL),
            live_hash=arguments.need(flags.LIVE_HASH) == "full",
        ),
        override=arguments.get(flags.TAKE_OVER) or "",
        recipients=how.recipients,
        allows_clear=arguments.has(flags.UNENCRYPTED),
    )
    with connecting.client(context) as client:
        revision = client.header().revision  # what the store will hold if there is nothing to write
        with progress(console, _phases(context, client)) as advance:
            done = capture(client, store, full=full, writer=writer, options=options, progress=advance)
        written = (*done.deltas, *((done.full,) if done.full is not None else ()))
        revision = written[-1].record.last_revision if written else revision
        _alive(client, store, writer, revision)
    for each in written:
        _prove(context, store, each)
    return _show(context, _document(store.url, revision, done))


def _through(context: Context, agent: Doorway, *, full: bool) -> int:
    """Have the running agent do it, because two writers would fence each other."""
    context.console.note(f"the agent with process id {agent.pid} writes to this store: it is asked to")
    answer = agent.snapshot("full" if full else "delta", final=full and context.arguments.has(flags.FINAL))
    return _show(context, msgspec.convert({"kind": Snapshot.__name__, **answer}, Snapshot))


def _show(context: Context, shown: Snapshot) -> int:
    console = context.console
    if console.is_text:
        console.lines(_lines(shown))
    else:
        console.document(shown)
    for captured in (*shown.deltas, *((shown.full,) if shown.full is not None else ())):
        for notice in captured.notices:
            console.warn(notice)
    for key in shown.locked:
        console.warn(f"{key} cannot be moved away: do not use etcdbrctl on this prefix any more")
    return 0


def _prove(context: Context, store: Store, captured: Captured) -> None:
    """File what the upload proves in passing, and warn of what it disproves."""
    try:
        proof = prove_upload(store, captured, utc_now)
    except StoreError as error:
        context.console.warn(f"the proof of {captured.key} could not be filed ({error.message})")
        return
    if (failed := proof.failed) is not None:
        context.console.warn(f"{failed.detail}: take another full, and find out who writes to this prefix")


def _phases(context: Context, client: EtcdClient) -> Mapping[str, Phase]:
    """How much a full will be, as far as etcd says: only for the bar."""
    size = None
    if context.console.shows_progress:
        with suppress(EtcdError):  # the capture will say what is wrong
            size = client.status().db_size
    return {"full": Phase("full", size), "delta": Phase("deltas", None, "revisions")}


def _alive(client: EtcdClient, store: Store, writer: str, captured: int) -> None:
    """Leave a heartbeat where etcd still is at the last captured revision.

    So that a quiet etcd is told from a timer that no longer runs.  Not by reading the whole catalogue, which
    may be long: two documents say all that is needed.
    """
    epoch = _newest(store, keys.EPOCHS, Epoch)
    timeline = _newest(store, keys.TIMELINES, Timeline)
    now = datetime.now(UTC)
    if epoch is None or timeline is None or epoch.writer != writer:
        return  # another took over while we were at work: it speaks for itself
    if client.header().revision == captured:
        beat(store, epoch, captured, timeline.number, now)


def _newest(store: Store, prefix: str, kind: type[D]) -> D | None:
    """The last of the documents that are numbered in the order of their keys."""
    last = max((info.key for info in store.list(prefix)), default=None)
    return None if last is None else documents.fetch(store, last, kind)


def _document(url: str, revision: int, done: Capture) -> Snapshot:
    abandoned = done.abandoned
    return Snapshot(
        store=url,
        revision=revision,
        full=_captured(done.full) if done.full is not None else None,
        deltas=tuple(map(_captured, done.deltas)),
        why_full=done.why_full.reason if done.why_full is not None else None,
        timeline=done.timeline.number if done.timeline is not None else None,
        abandoned=abandoned.moved if abandoned is not None else (),
        locked=abandoned.locked if abandoned is not None else (),
    )


def _captured(captured: Captured) -> CapturedObject:
    record = captured.record
    return CapturedObject(
        key=record.key,
        start=record.start,
        last=record.last_revision,
        size=record.payload_size,
        stored_size=record.stored_size,
        hash_kv=record.hashkv.hash if record.hashkv is not None else None,
        seconds=round(captured.seconds, 3),
        notices=tuple(notice.message for notice in record.warnings),
    )


def _lines(shown: Snapshot) -> Iterator[str]:
    if shown.timeline is not None and shown.timeline > 1:
        yield f"history has forked: this is timeline {shown.timeline}"
    if shown.abandoned:
        yield f"{columns.plural(len(shown.abandoned), 'snapshot')} of the old timeline moved to abandoned/"
    for each in shown.deltas:
        span = f"revisions {each.start} to {each.last}" if each.last > each.start else f"revision {each.last}"
        yield f"{each.key}  {span}, {_figures(each)}"
    if shown.why_full is not None:
        yield f"a full is needed: {shown.why_full}"
    if shown.full is not None:
        hashed = f", HashKV {shown.full.hash_kv}" if shown.full.hash_kv is not None else ""
        yield f"{shown.full.key}  up to revision {shown.full.last}{hashed}, {_figures(shown.full)}"
    if shown.full is None and not shown.deltas:
        yield f"nothing new behind revision {shown.revision}"


def _figures(each: CapturedObject) -> str:
    stored = f"{columns.size(each.size)} stored as {columns.size(each.stored_size)}"
    return f"{stored} in {columns.seconds(each.seconds)}"
