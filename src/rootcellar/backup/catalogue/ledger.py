"""Writing what `records` defines.  One document, one key, one create-only put each.

Order, and what a crash leaves: a record follows its object (a crash between: a backup without a record,
which is valid); a tombstone precedes the deletion (a crash between: a tombstone beside its object, which
the next prune removes); a pin comes with the first read (a crash: it expires); a proof is filed behind its
checks.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.records import Hold, Pin, Release, Tombstone
from rootcellar.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from rootcellar.backup.catalogue.history import Snapshot
    from rootcellar.backup.catalogue.records import Proof, Record
    from rootcellar.stores.protocol import Store


def write_record(store: Store, record: Record) -> None:
    """Raises RecordError when the record contradicts itself, AlreadyExistsError when there is another
    one.
    """
    documents.put_once(store, keys.record(record.name), record)


def keep_proof(store: Store, proof: Proof) -> str | None:
    """File a proof under the last object that it covers; its key, None when that is no snapshot's."""
    name = names.read(proof.objects[-1].key)
    if name is None:
        return None
    key = keys.proof(name, proof.finished_at, secrets.token_hex(4))
    documents.put_once(store, key, proof)
    return key


def write_hold(
    store: Store, full: Snapshot, *, reason: str, by: str, now: datetime, through: int | None = None
) -> Hold:
    """Forbid deletion of a full and of what leads from it to `through`."""
    hold = Hold(
        nonce=secrets.token_hex(8),
        key=_full_key(full),
        reason=reason,
        by=by,
        created_at=now,
        through=through,
    )
    documents.put_once(store, keys.hold(hold.nonce), hold)
    return hold


def release_hold(store: Store, hold: Hold, *, reason: str, by: str, now: datetime) -> None:
    """Lift a hold.  Lifting it twice raises AlreadyExistsError."""
    documents.put_once(
        store, keys.release(hold.nonce), Release(hold=hold.nonce, reason=reason, by=by, created_at=now)
    )


def write_pin(
    store: Store, full: Snapshot, *, by: str, now: datetime, until: datetime, through: int | None = None
) -> Pin:
    """Keep a chain from being pruned while it is read.  A longer stay takes a second pin."""
    pin = Pin(
        nonce=secrets.token_hex(8),
        key=_full_key(full),
        by=by,
        created_at=now,
        until=until,
        through=through,
    )
    documents.put_once(store, keys.pin(until, pin.nonce), pin)
    return pin


def remove_pin(store: Store, pin: Pin) -> None:
    """The reader is done.  Removing it twice is fine."""
    store.delete(keys.pin(pin.until, pin.nonce))


def write_tombstone(
    store: Store, snapshot: Snapshot, *, reason: str, by: str, epoch: int, now: datetime
) -> None:
    """Say that a snapshot is about to be removed on purpose."""
    tombstone = Tombstone(key=snapshot.name.key, reason=reason, by=by, epoch=epoch, created_at=now)
    documents.put_once(store, keys.tombstone(snapshot.name), tombstone)


def _full_key(full: Snapshot) -> str:
    if not full.is_full:
        raise UsageError(
            f"{full.key} is a delta", hint="name the full it builds on, and the revision to keep up to"
        )
    return full.name.key
