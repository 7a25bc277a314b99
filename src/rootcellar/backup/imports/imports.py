"""Taking over what other tools backed up: one database, in whatever wrapping, as a full of a store.

It is written as a capture writes one (`capture.publisher` has the order and what a crash leaves), with a hash
behind it where there was none, so that everything that reads backups reads it.  Its record says where it came
from and what could not be checked.

Imports lie in a prefix of their own.  Nothing tells whether an imported database belongs to the history that
other objects of a prefix continue, and a delta of another history applied to it would make a wrong restore
that looks right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rootcellar.backup.capture.publisher import Publisher, Tally, used_keys, utc_now
from rootcellar.backup.catalogue import fence, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.records import AT_REST, Notice, Record
from rootcellar.backup.imports.unwrapped import unwrapped
from rootcellar.backup.objects import codecs
from rootcellar.backup.objects.pipeline import ahead
from rootcellar.bolt.check import check
from rootcellar.bolt.file import BoltFile
from rootcellar.errors import BoltError, DamagedObjectError, IdentityError, RecordError
from rootcellar.mvcc.meta import StoreMeta
from rootcellar.mvcc.probe import SnapshotProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from rootcellar.backup.catalogue.catalogue import Catalogue
    from rootcellar.backup.imports.unwrapped import Stored, Unwrapped
    from rootcellar.backup.objects.sealing.keyring import Recipient
    from rootcellar.backup.restore.database import Progress
    from rootcellar.mvcc.probe import SnapshotFacts
    from rootcellar.stores.protocol import Store

IMPORTED = "imported"
"""Code of the notice that marks a record as that of an import."""
UNKNOWN_ID = "0"
"""For cluster and member: a database does not say which member it was."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The record of an import.  `repeated`: this very database was there already, and nothing was written."""

    record: Record
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Proven:
    """What one pass over the whole database told."""

    facts: SnapshotFacts
    tally: Tally


def import_backup(  # noqa: PLR0913 - all but the first two have defaults that do, or a name
    source: Path | Stored,
    store: Store,
    *,
    by: str,
    suffix: str = names.GZIP,
    recipients: tuple[Recipient, ...] = (),
    taken_at: datetime | None = None,
    scratch: Path | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress = lambda _phase, _more: None,
) -> Imported:
    """Check the database in `source` and write it to `store` as a full.

    `by` is the writer's name in the record.  `suffix` says how it is compressed, and whether it is encrypted
    for `recipients`: such an import is never a repeated one, as no record tells its content.  `taken_at` is
    when the database was taken, by default what its name, its notes or its file say.  `progress` is called
    with "check" and "full" and bytes of the database.

    Raises UsageError, FormatError and below (what `unwrapped` does; a database that is not sound),
    IdentityError (the prefix is somebody's), TargetError, FencedError, StoreError.
    """
    catalogue = read_catalogue(store)
    _refuse_foreign(catalogue, store)
    with unwrapped(source, scratch=scratch) as found:
        proven = _proven(found, progress)
        repeated = _same(catalogue, proven.tally)
        if repeated is not None:
            return Imported(repeated, repeated=True)
        moment = taken_at or found.wrapping.taken_at
        epoch = fence.claim_epoch(store, by, clock())
        publisher = Publisher(
            store, epoch, catalogue.newest_timeline, used_keys(catalogue), clock, recipients
        )
        revision = proven.facts.revision
        name = publisher.unused(lambda at: names.full(revision, at, suffix), int(moment.timestamp()))
        payload = codecs.append_hash(_told(found, progress))
        packed = codecs.compress(ahead(payload), suffix.removesuffix(names.AGE))
        stored, _ = publisher.put_full(name, packed)
    record = Record(
        key=name.key,
        kind=name.kind,
        start=0,
        last_revision=revision,
        compact_revision=-1 if proven.facts.compact_revision is None else proven.facts.compact_revision,
        payload_size=proven.tally.size,
        payload_sha256="" if name.is_encrypted else proven.tally.sha256,
        stored_size=stored.size,
        stored_sha256=stored.sha256,
        cluster_id=UNKNOWN_ID,
        member_id=UNKNOWN_ID,
        timeline=publisher.timeline,
        epoch=epoch.number,
        writer=epoch.writer,
        captured_at=moment,
        etcd_version=found.wrapping.etcd_version or proven.facts.cluster_version or "",
        auth_revision=proven.facts.auth_revision,
        warnings=_notices(found, proven.facts),
        key_ids=publisher.key_ids(name),
    )
    publisher.record(record)
    return Imported(record)


def _refuse_foreign(catalogue: Catalogue, store: Store) -> None:
    """Raise IdentityError unless all that is there was imported.

    A full without a record, in a prefix that somebody claimed and no cluster marked, is what an import that
    was killed left.
    """
    marker = catalogue.marker
    foreign = [
        each.key
        for each in catalogue.snapshots
        if not (each.is_full and (_is_import(each.record) if each.record else catalogue.epoch))
    ]
    if marker is None and not foreign:
        return
    whose = f"holds the backups of cluster {marker.cluster_id}" if marker else f"is in use: {foreign[0]}"
    raise IdentityError(
        f"{store.url} {whose}",
        hint="import into a prefix of its own: nothing tells whether an import is of the same history",
    )


def _is_import(record: Record) -> bool:
    return any(notice.code == IMPORTED for notice in record.warnings)


def _same(catalogue: Catalogue, tally: Tally) -> Record | None:
    records = (each.record for each in catalogue.snapshots if each.record is not None)
    return next((record for record in records if record.payload_sha256 == tally.sha256), None)


def _proven(found: Unwrapped, progress: Progress) -> _Proven:
    """Read all of it once: structure, facts, hash.  Raises DamagedObjectError."""
    name = found.wrapping.path.name
    probe, tally = SnapshotProbe(), Tally()
    try:
        with BoltFile(found.path) as file:
            check(file)
            revision = StoreMeta.read(file).revision
        for chunk in ahead(found.chunks()):
            tally.add(chunk)
            probe.feed(chunk)
            progress("check", len(chunk))
        facts = probe.result()
    except (BoltError, RecordError) as error:
        hint = "take another backup: etcd could not start on this one"
        raise DamagedObjectError(name, error.message, hint=hint) from error
    if facts.revision != revision:
        raise DamagedObjectError(
            name, f"its pages end with revision {facts.revision}, its tree with {revision}"
        )
    return _Proven(facts, tally)


def _told(found: Unwrapped, progress: Progress) -> Iterator[bytes]:
    for chunk in found.chunks():
        progress("full", len(chunk))
        yield chunk


def _notices(found: Unwrapped, facts: SnapshotFacts) -> tuple[Notice, ...]:
    wrapping = found.wrapping
    notices = [Notice(IMPORTED, f"imported from {wrapping.path.name} ({wrapping.form})"), *found.notices]
    if facts.encrypted_at_rest:
        notices.append(AT_REST)
    return tuple(notices)
