"""Taking a full: etcd's database, from the stream of one member into one object, in a single pass.

    Snapshot stream -> length and sha256 -> page watcher -> compression -> store.put

Nothing is whole in memory or on disk, and nothing becomes visible before all of it was found right: the
length that etcd announced, the sha256 that it sends behind the database, what the pages themselves say of
size and revision.

The name says H, a revision that etcd had reached before the stream: EBR takes that for the full's, and starts
deltas behind it.  H is read through the very member that is streamed, so that its database surely holds it: a
linearizable read makes the member catch up first.  (A learner answers none; H comes from the voters, and the
learner is waited for.)  What the database really ends with, R, is at or above H; it is found in the pages as
they pass and goes into the record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rootcellar.backup.capture.outcome import Captured
from rootcellar.backup.capture.publisher import Tally
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.records import AT_REST, Caution, HashKV, Notice, Record
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.pipeline import ahead
from rootcellar.errors import EtcdDeniedError, EtcdError, EtcdUnavailableError, FormatError
from rootcellar.etcd import failures
from rootcellar.etcd.answers import AlarmKind
from rootcellar.mvcc.probe import SnapshotProbe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from rootcellar.backup.capture.publisher import Publisher
    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.names import SnapshotName
    from rootcellar.backup.restore.database import Progress
    from rootcellar.etcd.answers import Status
    from rootcellar.etcd.client import EtcdClient
    from rootcellar.etcd.snapshot import SnapshotStream
    from rootcellar.mvcc.probe import SnapshotFacts

LIVE_HASH_UNANSWERED = "live-hash-unanswered"
MAY_DIVERGE = "etcd-may-diverge"
CORRUPT_ALARM = "etcd-corrupt-alarm"

_OTHER = "capture from another member, and check this one: `etcdutl snapshot status`, alarms, disks"
_LEARNER_SECONDS = 60.0
_LEARNER_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class FullOptions:
    """How a full is taken.

    `suffix` is the compression (`names.GZIP`, ...).  `final` promises that nothing follows.  `live_hash` asks
    the member for its HashKV afterwards: it reads the keyspace under a lock, so it is off unless wanted.
    """

    suffix: str = names.GZIP
    final: bool = False
    live_hash: bool = False


def begin_full(client: EtcdClient, source: EtcdClient | None = None) -> Source:
    """Have one member's database stream: its first bytes have come when this returns.  Close the stream.

    The first endpoint of `source` (default: of `client`) that answers is the member.  It may be a learner, if
    `client` has a voter.  Raises EtcdError and below (EtcdDeniedError without the role root).
    """
    failed: list[EtcdUnavailableError] = []
    for endpoint in (source or client).endpoints:
        member = (source or client).member(endpoint)
        try:
            status = member.status()
            revision = _reached(client, member, is_learner=status.is_learner)
            return Source(member, status, revision, member.snapshot())
        except EtcdUnavailableError as error:
            failed.append(error)
    raise failures.unavailable(failed)


def store_full(
    client: EtcdClient,
    publisher: Publisher,
    source: Source,
    *,
    reached: int,
    options: FullOptions | None = None,
    newest: Snapshot | None = None,
    progress: Progress = lambda _phase, _more: None,
) -> Captured:
    """Stream the database into the store, and record it.  Closes the stream.

    `reached` is a revision that etcd told once the stream had begun.  `newest` is the snapshot before it, for
    the chain link; `progress` is called with "full" and bytes of the database.  Raises EtcdError and below,
    StoreErrors, FencedError.
    """
    began = time.monotonic()
    options = options or FullOptions()
    with source.stream:
        begun = publisher.clock()
        name = _name(source.revision, begun, options, publisher, newest)
        shot = _Shot(source, begun, progress)
        claim = publisher.claim_full(name, reached)
        # Hashing and watching have a thread of their own, compressing and uploading this one.
        stored, etag = publisher.put_full(name, codecs.compress(ahead(shot.blocks()), options.suffix))
    facts, hashkv, notices = shot.facts, None, list(_notices(client, source, shot.facts, publisher, name))
    if options.live_hash:
        try:
            hashkv = _live_hash(source, facts.revision)
        except EtcdError as error:
            notices.append(Notice(LIVE_HASH_UNANSWERED, error.message))
    record = Record(
        key=name.key,
        kind=name.kind,
        start=0,
        last_revision=facts.revision,
        compact_revision=-1 if facts.compact_revision is None else facts.compact_revision,
        payload_size=shot.tally.size,
        payload_sha256="" if name.is_encrypted else shot.tally.sha256,
        stored_size=stored.size,
        stored_sha256=stored.sha256,
        cluster_id=f"{source.status.header.cluster_id:x}",
        member_id=f"{source.status.header.member_id:x}",
        timeline=publisher.timeline,
        epoch=publisher.epoch.number,
        writer=publisher.epoch.writer,
        captured_at=shot.begun,
        hashkv=hashkv,
        etcd_version=str(source.status.version),
        auth_revision=facts.auth_revision,
        previous=newest.record.link if newest and newest.record else None,
        last_change=client.fingerprint(facts.revision),
        warnings=tuple(notices),
        key_ids=publisher.key_ids(name),
    )
    publisher.record(record)
    publisher.settle(claim)
    return Captured(record, time.monotonic() - began, etag)


@dataclass(frozen=True, slots=True)
class Source:
    """A member whose database has begun to stream, and a revision that it surely holds."""

    member: EtcdClient
    status: Status
    revision: int
    stream: SnapshotStream


def _reached(client: EtcdClient, member: EtcdClient, *, is_learner: bool) -> int:
    """A revision that the cluster has reached, and the member too."""
    if not is_learner:
        return member.header().revision
    revision = client.header().revision
    deadline = time.monotonic() + _LEARNER_SECONDS
    while (own := member.range(b"\0", limit=1, serializable=True).revision) < revision:
        if time.monotonic() > deadline:
            raise EtcdUnavailableError(
                f"{member.endpoints[0]}: the learner is at revision {own}, the cluster at {revision}",
                hint="wait until it has caught up, or stream from a voting member",
            )
        time.sleep(_LEARNER_PAUSE)
    return revision


def _name(
    revision: int, begun: datetime, options: FullOptions, publisher: Publisher, newest: Snapshot | None
) -> SnapshotName:
    second = int(begun.timestamp())
    if newest is not None and newest.name.last == revision:
        # EBR orders snapshots of one revision by their second, and would replay a delta behind this full.
        second = max(second, newest.name.created + 1)
    late = [each.name for each in [*publisher.rivals.values()] if each.name.last == revision]
    second = max([second, *(each.created + 1 for each in late)])
    return publisher.unused(
        lambda second: names.full(revision, second, options.suffix, final=options.final), second
    )


class _Shot:
    """The database as it passes: counted, hashed, watched, and held to what etcd says of it."""

    def __init__(self, source: Source, begun: datetime, progress: Progress) -> None:
        self._source = source
        self._progress = progress
        self._probe = SnapshotProbe()
        self.begun = begun
        self.tally = Tally()
        self.facts: SnapshotFacts

    def blocks(self) -> Iterator[bytes]:
        """The database and its hash.  If anything is wrong, raises behind the last block, before the end."""
        stream = self._source.stream
        left, tail = stream.size, b""
        for block in stream:
            part = block[:left] if left < len(block) else block
            if part:
                left -= len(part)
                self.tally.add(part)
                self._probe.feed(part)
            tail += block[len(part) :]
            yield block
            self._progress("full", len(part))
        self._settle(tail)

    def _settle(self, tail: bytes) -> None:
        where = self._source.stream.endpoint
        if tail != self.tally.digest:
            raise EtcdError(
                f"{where}: the snapshot's sha256 is not that of the bytes that came",
                hint="take it again; if this repeats, the member's memory or network is at fault",
                operation="Snapshot",
            )
        try:
            self.facts = self._probe.result()
        except FormatError as error:
            raise EtcdError(f"{where}: its database is damaged: {error.message}", hint=_OTHER) from error
        if self.facts.size != self.tally.size:
            raise EtcdError(
                f"{where}: a database of {self.facts.size} bytes came as {self.tally.size}", hint=_OTHER
            )
        if self.facts.revision < self._source.revision:
            raise EtcdError(
                f"{where}: its database ends at revision {self.facts.revision}, and it had answered from"
                f" revision {self._source.revision}",
                hint=_OTHER,
            )


def _live_hash(source: Source, revision: int) -> HashKV:
    answer = source.member.hash_kv(revision)
    return HashKV(answer.hash, answer.revision, answer.compact_revision)


def _notices(
    client: EtcdClient, source: Source, facts: SnapshotFacts, publisher: Publisher, name: SnapshotName
) -> Iterator[Notice]:
    version = source.status.version
    if facts.encrypted_at_rest:
        yield AT_REST
    if (3, 5, 0) <= version <= (3, 5, 2):
        yield Notice(
            MAY_DIVERGE, f"members of etcd {version} can differ from each other: compare HashKV, and upgrade"
        )
    problem = names.visibility_problem(urlsplit(publisher.store.url).path.strip("/"))
    if problem and not name.is_sealed:
        yield Notice(Caution.EBR_CANNOT_SEE, problem)
    try:
        alarms = client.alarms()
    except EtcdDeniedError:
        return
    for alarm in alarms:
        if alarm.kind is AlarmKind.CORRUPT:
            yield Notice(
                CORRUPT_ALARM,
                f"member {alarm.member_id:x} has raised CORRUPT: compare members before trusting this",
            )
